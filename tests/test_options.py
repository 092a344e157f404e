"""Options are those that a help text defines, and it is read once per version of a program."""

import pytest

from lib import backends, options

LLAMA = """
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto')
                                        replaces --no-flash-attn of old
--mlock                                 DEPRECATED in favor of `--load-mode`
-lm,   --load-mode MODE
                                        how weights are loaded (--direct-io is gone)
"""
ARGPARSE = """usage: server [-h] [--model MODEL] [--port PORT]

options:
  -h, --help            show this help message and exit
  -np PARALLEL, --parallel PARALLEL
  --prompt-cache-size PROMPT_CACHE_SIZE
                        entries kept (see --parallel and --nothing)
"""


def test_options_at_the_start_of_a_line_not_those_in_the_descriptions():
    assert options.listed(LLAMA) == {
        "-h", "--help", "--usage", "-c", "--ctx-size", "-fa", "--flash-attn", "--mlock", "-lm", "--load-mode",
    }  # fmt: skip
    assert options.listed(ARGPARSE) == {"-h", "--help", "-np", "--parallel", "--prompt-cache-size"}


def test_options_of_a_command_line_without_their_values():
    words = ["-m", "a-b.gguf", "-c", "512", "--temp", "-1", "--cache-ram=0", "-c", "1024", "--ignore-eos"]
    assert options.used(words) == ["-m", "-c", "--temp", "--cache-ram", "--ignore-eos"]


@pytest.fixture
def program(tmp_path):
    """A program that counts how often it is asked for help, and says what `tell` told it."""
    path = tmp_path / "server"

    def tell(text, code=0):
        path.write_text(f'#!/bin/sh\necho "$*" >> "$0.asked"\ncat <<"E"\n{text}\nE\nexit {code}\n')
        path.chmod(0o755)
        return [str(path)]

    return tell


def asked(tmp_path):
    return (tmp_path / "server.asked").read_text().split()


def test_help_is_read_once_per_version(program, tmp_path):
    words = program("  --port N  where it listens")
    assert [options.known(words, "1.0", {}, tmp_path) for _ in range(3)] == [{"--port"}] * 3
    assert asked(tmp_path) == ["--help"]
    options.known(words, "1.1", {}, tmp_path)
    assert asked(tmp_path) == ["--help"] * 2
    program("  --port N\n  --host H")
    assert options.known(words, "1.1", {}, tmp_path) == {"--port", "--host"}, "another file under the same version"


@pytest.mark.parametrize(("text", "code"), [("error: no GPU", 0), ("  --port N", 1), ("", 0)])
def test_no_help_is_none_and_not_kept(program, tmp_path, text, code):
    words = program(text, code)
    assert options.known(words, "1.0", {}, tmp_path) is None
    assert options.known(words, "1.0", {}, tmp_path) is None
    assert len(asked(tmp_path)) == 2


def test_a_program_that_is_not_there_is_none(tmp_path):
    assert options.known([str(tmp_path / "none")], "1.0", {}, tmp_path) is None


def test_the_wheels_own_server_knows_the_benchmarks_flags(tmp_path):
    backend = backends.get("llama.cpp")
    found = options.known(backend.program(), "1.0", {}, tmp_path)
    assert set(options.used(backend.flags)) <= found
    assert "--load-mode" in found and "--mlock" not in found
