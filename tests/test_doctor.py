"""Each check's line and level, on this machine and on a Mac that the stand-ins play; and what a sweep makes of them."""

import io
import subprocess

import pytest
from rich.console import Console

from lib import busy, doctor, hashes, machine, options, paths, plan, store, sweep
from lib.estimate import Estimate
from lib.files import write_json
from lib.finding import ERROR, OK, WARNING, Finding, count, show

BASE = dict(backends=["llama.cpp"], models=["tiny-trinity"], prompts=[8], gens=[8], requests=1, power="none")
LINUX_ABOUTS = ["machine", "python", "power", "llama.cpp", "models", "disk", "others"]
SUDOERS = "put this line into a file of its own by 'sudo visudo -f /etc/sudoers.d/powermetrics': {} NOPASSWD: "


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No other process is heavy, and nobody waits to see that."""
    monkeypatch.setattr(busy, "look", lambda: ([], 0.0))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A function that makes a llama-server with these options in its help, and the benchmark's own."""

    def make(*options, code=0):
        path = tmp_path / "llama-server"
        own = "\n".join(f"{o} X" for o in ("-m", "--host", "--port", "-c", "-ngl", "--parallel", "-fa", "-t"))
        switches = "\n".join(("--ignore-eos", "--no-cache-prompt", "--cache-ram N", *options))
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "version: 7000 (abc)" && exit {code}\n'
            f'cat <<"E"\n{own}\n{switches}\nE\nexit {code}\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("LLAMA_SERVER", str(path))

    monkeypatch.setattr(options, "CACHE", tmp_path)
    return make


def findings(folder, **changes):
    chosen = plan.Plan(**BASE | changes)
    return list(doctor.examine(chosen, list(plan.selected(chosen)), Estimate(chosen), folder))


def about(folder, what, **changes):
    """(level, found, do) of every finding about `what`."""
    return [(f.level, f.found, f.do) for f in findings(folder, **changes) if f.about == what]


# --- this machine ---


def test_tiny_models_off_a_mac_are_a_few_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "is_macos", lambda: False)
    monkeypatch.setattr(machine, "said", lambda *_: None)
    found = findings(tmp_path, power="auto")
    assert [f.about for f in found] == LINUX_ABOUTS
    assert {f.level for f in found} == {OK}
    assert about(tmp_path, "models") == [(OK, "1 tiny, made here from random weights when they are needed", "")]


def test_a_synthetic_plan_needs_neither_server_nor_meter(tmp_path):
    found = findings(tmp_path, synthetic=plan.Synthetic(machine="mac-mini-m4"), power="powermetrics")
    assert [f.about for f in found] == ["machine", "python", "plan"]


@pytest.mark.parametrize(("version", "level"), [((3, 10), ERROR), ((3, 11), OK), ((3, 13), OK), ((3, 14), ERROR)])
def test_python(monkeypatch, version, level):
    monkeypatch.setattr(doctor.sys, "version_info", version)
    assert doctor._python().level == level


@pytest.mark.parametrize(("answer", "levels"), [("yes", [OK]), ("no", [WARNING]), (None, [])])
def test_the_clock_where_timedatectl_answers(monkeypatch, answer, levels):
    monkeypatch.setattr(machine, "said", lambda *_: answer)
    assert [f.level for f in doctor._clock()] == levels


def test_disk_against_the_estimate(tmp_path, monkeypatch):
    chosen = plan.Plan(**BASE)
    cells = list(plan.selected(chosen))
    assert Estimate(chosen).space_MB(cells) == pytest.approx(200 + 0.1 * Estimate(chosen).total(cells))
    monkeypatch.setattr(doctor, "free_MB", lambda _: 150.0)
    ((level, found, do),) = about(tmp_path, "disk")
    assert level == ERROR and do == "free some space or shrink the plan"
    assert "0.1 GB free, about 0.2 GB needed for 1 cells in about 0:00:09" in found


def test_heavy_processes_are_named_with_their_pid(tmp_path, monkeypatch):
    many = [busy.Heavy(40 + n, f"program{n}", 0.9, 2 * 10**9) for n in range(7)]
    monkeypatch.setattr(busy, "look", lambda: (many, 1.25))
    ((level, found, do),) = about(tmp_path, "others")
    assert level == WARNING and do.startswith("close what is not needed")
    assert found.startswith("at work beside the sweep: program0 (pid 40) 0.9 cores, 2.0 GB, program1 (pid 41)")
    assert found.endswith(
        "program4 (pid 44) 0.9 cores, 2.0 GB, 2 more, 1.2 cores by processes that cannot be seen from here"
    )


# --- power ---


def test_powermetrics_that_may_be_run(tmp_path, mac):
    assert about(tmp_path, "power", power="powermetrics") == [
        (OK, "powermetrics runs by 'sudo -n /usr/bin/powermetrics'", "")
    ]


@pytest.mark.parametrize("way", ["password", "refuses"])
@pytest.mark.parametrize(("asked", "level"), [("powermetrics", ERROR), ("auto", WARNING)])
def test_a_refusal_gives_the_line_of_sudoers_for_that_one_program(tmp_path, mac, monkeypatch, way, asked, level):
    mac(sudo=way)
    monkeypatch.setattr(doctor.getpass, "getuser", lambda: "mini")
    ((found, said, do),) = about(tmp_path, "power", power=asked)
    assert found == level
    assert ("a password is required" if way == "password" else "is not allowed to execute") in said
    assert do == SUDOERS.format("mini ALL=(root)") + "/usr/bin/powermetrics"


def test_a_name_that_sudoers_would_misread_is_a_number(mac, monkeypatch):
    monkeypatch.setattr(doctor.getpass, "getuser", lambda: "ALL, mini")
    monkeypatch.setattr(doctor.os, "getuid", lambda: 501)
    assert doctor._allow("sudo: a password is required").endswith(": #501 ALL=(root) NOPASSWD: /usr/bin/powermetrics")


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("silent", "'sudo -n /usr/bin/powermetrics' said: nothing"),
        ("absent", "/usr/bin/powermetrics: command not found"),
    ],
)
def test_powermetrics_itself_that_fails_is_no_matter_of_sudoers(tmp_path, mac, way, said):
    mac(powermetrics=way)
    ((level, found, do),) = about(tmp_path, "power", power="powermetrics")
    assert level == ERROR and said in found
    assert do == "set 'power: modelled' or 'none' in the plan"


@pytest.mark.parametrize("asked", ["modelled", "none"])
def test_powermetrics_is_not_asked_where_the_plan_does_not(tmp_path, mac, monkeypatch, asked):
    log = tmp_path / "log"
    mac(sudo="password", log=str(log))
    assert about(tmp_path, "power", power=asked) == [
        (OK, f"{asked}, as the plan says; powermetrics is not asked for", "")
    ]
    assert "sudo" not in log.read_text()


# --- servers ---


def test_a_server_that_knows_every_option(tmp_path, server):
    server()
    assert about(tmp_path, "llama.cpp") == [
        (OK, "llama-server version: 7000 (abc); knows all 11 options of its command line", "")
    ]


def test_an_option_that_a_server_does_not_know_is_an_error(tmp_path, server):
    server("--load-mode MODE")
    assert about(tmp_path, "llama.cpp", flags={"llama.cpp": ["--mlock", "--prio", "2"]}) == [
        (ERROR, "llama-server version: 7000 (abc) does not know --mlock",
         "write '--load-mode mlock' in the plan's flags"),
        (ERROR, "llama-server version: 7000 (abc) does not know --prio",
         "take it out of the plan's flags for llama.cpp, or use a version that knows it"),
    ]  # fmt: skip


def test_mlock_before_and_after_load_mode(tmp_path, server):
    server("--mlock")
    (found,) = about(tmp_path, "llama.cpp", flags={"llama.cpp": ["--load-mode", "mlock"]})
    assert (found[0], found[2]) == (ERROR, "write '--mlock' in the plan's flags")
    server("--mlock", "--load-mode MODE")
    found = about(tmp_path, "llama.cpp", flags={"llama.cpp": ["--mlock"]})
    assert [f[0] for f in found] == [OK, WARNING] and found[1][2] == "write '--load-mode mlock' in the plan's flags"


def test_an_option_of_the_benchmarks_own_asks_for_another_version(tmp_path, server, monkeypatch):
    server()
    monkeypatch.setattr(doctor.options, "known", lambda *_: {"-m", "--host", "--port", "-c"})
    found = about(tmp_path, "llama.cpp")
    assert len(found) == 7 and {f[0] for f in found} == {ERROR}
    assert found[0][2] == "use a version that knows it: the benchmark's own settings need it"


def test_a_server_that_is_no_program(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "nowhere/llama-server")
    ((level, found, _),) = about(tmp_path, "llama.cpp")
    assert level == ERROR and "LLAMA_SERVER=nowhere/llama-server is not a program" in found


def test_a_server_whose_help_says_nothing_is_a_warning_only(tmp_path, server):
    server(code=1)
    ((level, found, _),) = about(tmp_path, "llama.cpp")
    assert level == WARNING and "its --help lists no options, so that ours are not checked" in found


def test_a_package_that_is_not_installed(tmp_path, monkeypatch):
    def version(self):
        raise doctor.importlib.metadata.PackageNotFoundError("mlx-lm")

    monkeypatch.setattr(doctor.backends.MlxLm, "version", version)
    assert about(tmp_path, "mlx-lm", backends=["mlx-lm"]) == [
        (ERROR, "the package mlx-lm is not installed", "run 'make env'")
    ]


# --- models ---


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    """A file of 3 GB (sparse) that stands for every model; the record of hashes is in the same folder."""
    path = tmp_path / "model.gguf"
    with path.open("wb") as f:
        f.truncate(3_000_000_000)
    monkeypatch.setattr(store, "locate", lambda *_: path)
    monkeypatch.setattr(hashes, "RECORD", tmp_path / "models.json")
    return path


def test_a_model_with_its_size_and_the_hash_that_is_recorded(tmp_path, gguf, mac):
    models = dict(models=["granite4-h-tiny"])
    named = "granite4-h-tiny for llama.cpp: 3.0 GB, SHA-256"
    assert about(tmp_path, "models", **models) == [(OK, f"{named} not recorded", "")]
    recorded = {"size": 3_000_000_000, "mtime_ns": gguf.stat().st_mtime_ns, "sha256": "ab12" * 16}
    write_json(hashes.RECORD, {str(gguf): recorded})
    assert about(tmp_path, "models", **models) == [(OK, f"{named} ab12ab12ab12... recorded", "")]
    write_json(hashes.RECORD, {str(gguf): recorded | {"mtime_ns": 1}})
    assert about(tmp_path, "models", **models) == [(OK, f"{named} not recorded", "")], "of an older file of that name"


def test_a_model_that_fills_the_memory(tmp_path, gguf, mac, monkeypatch):
    monkeypatch.setattr(machine, "memory_bytes", lambda: 4_000_000_000)
    found = about(tmp_path, "models", models=["granite4-h-tiny"])
    assert [f[0] for f in found] == [OK, WARNING]
    assert found[1][1] == "granite4-h-tiny for llama.cpp fills more than 70% of memory"


@pytest.mark.parametrize(("unsupported", "level"), [(False, ERROR), (True, OK)])
def test_a_model_that_is_not_here_is_an_error_unless_there_is_none(tmp_path, monkeypatch, unsupported, level):
    def locate(*_):
        error = store.StoreError("not here; fetch it: so and so")
        error.unsupported = unsupported
        raise error

    monkeypatch.setattr(store, "locate", locate)
    ((found, said, _),) = about(tmp_path, "models", models=["granite4-h-tiny"])
    assert found == level and said.startswith("not here; fetch it: so and so")


# --- a Mac ---


def test_a_mac_mini_is_a_page_of_ok(tmp_path, mac, monkeypatch):
    monkeypatch.setattr(doctor.macos, "_clock", lambda: Finding(OK, "clock", ""))
    found = findings(tmp_path, power="powermetrics")
    assert [f.about for f in found] == [
        "machine", "python", "power", "llama.cpp", "models", "disk",
        "mains", "low power", "sleep", "heat", "memory", "clock", "others",
    ]  # fmt: skip
    assert found[0].found == "Apple M4, 16 GB, macOS 15.5 (24F74)"
    assert {f.level for f in found} == {OK}


def test_a_python_for_intel_on_apple_silicon(tmp_path, mac, monkeypatch):
    monkeypatch.setattr(doctor.macos, "translated", lambda: True)
    ((level, found, do),) = about(tmp_path, "machine")
    assert level == ERROR and "run by Rosetta" in found and do.startswith("make .venv again")


def test_no_program_but_powermetrics_is_run_as_root(tmp_path, mac):
    log = tmp_path / "log"
    mac(log=str(log))
    findings(tmp_path, power="auto")
    asked = {line for line in log.read_text().splitlines() if line.startswith("sudo ")}
    assert {" ".join(line.split()[:3]) for line in asked} == {"sudo -n /usr/bin/powermetrics"}


# --- how it is said, and what follows ---


def printed(*args, **kwargs):
    console = Console(file=io.StringIO(), width=80, soft_wrap=True)
    show(*args, console, **kwargs)
    return console.file.getvalue()


def test_words_of_other_programs_are_neither_markup_nor_control():
    said = printed(Finding(WARNING, "others", "[red]evil\x1b[2J\nname[/]", "close it"))
    assert said == "warning others     [red]evil?[2J?name[/]; close it\n"
    assert printed(Finding(OK, "python", "3.12.1"), before="doctor: ") == "doctor: ok      python     3.12.1\n"


def test_counts_in_words():
    found = [Finding(ERROR, "", ""), Finding(WARNING, "", ""), Finding(ERROR, "", "")]
    assert [count(found, level) for level in (ERROR, WARNING, OK)] == ["2 errors", "1 warning", ""]


def test_exit_codes_and_the_last_line(make_plan, mac, monkeypatch, capfd):
    monkeypatch.setattr(doctor.macos, "_clock", lambda: Finding(OK, "clock", ""))
    assert doctor.main(["--plan", make_plan()]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "doctor: plan plan: nothing to object to"
    mac(thermal="Heavy", low_power="1")
    assert doctor.main(["--plan", make_plan()]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "doctor: plan plan: 2 warnings"
    mac(memory="critical")
    assert doctor.main(["--plan", make_plan()]) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "doctor: plan plan: 1 error, 2 warnings"
    assert doctor.main(["--plan", make_plan(), "--only", "vllm"]) == 1
    assert capfd.readouterr().err.startswith("doctor: ONLY=vllm matches no backend or model")


def test_a_sweep_prints_warnings_alone_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(busy, "look", lambda: ([busy.Heavy(7, "mds", 0.5, 0)], 0.0))
    chosen, console = plan.Plan(**BASE), Console(file=io.StringIO(), width=80, soft_wrap=True)
    doctor.check(chosen, list(plan.selected(chosen)), Estimate(chosen), tmp_path, console)
    (line,) = console.file.getvalue().splitlines()
    assert line.startswith("doctor: warning others     at work beside the sweep: mds (pid 7) 0.5 cores, 0 MB; close")


def test_an_error_ends_a_sweep_before_anything_is_written(scratch_run, make_plan, monkeypatch, capfd):
    monkeypatch.setenv("LLAMA_SERVER", "nowhere/llama-server")
    assert sweep.main(["--plan", make_plan(), "--run", scratch_run]) == 1
    said = capfd.readouterr()
    assert "doctor: error   llama.cpp  LLAMA_SERVER=nowhere/llama-server is not a program" in said.out
    assert said.err == (
        "sweep: the doctor found 1 error; correct that first, or pass it over (--skip-doctor, DOCTOR=0)\n"
    )
    assert not paths.run_folder(scratch_run).exists()
    assert sweep.main(["--plan", make_plan(), "--run", scratch_run, "--skip-doctor"]) == 3, "each cell keeps its reason"
    assert "doctor" not in capfd.readouterr().out


def test_a_sweep_with_nothing_to_do_and_a_dry_run_ask_no_doctor(scratch_run, make_plan, monkeypatch):
    monkeypatch.setattr(doctor, "check", lambda *_: pytest.fail("asked"))
    assert sweep.main(["--plan", make_plan(), "--run", scratch_run, "--dry-run"]) == 0
    monkeypatch.setattr(sweep.Sweep, "_settled", lambda *_: True)
    monkeypatch.setattr(sweep.Sweep, "_conclude", lambda _: 0)
    assert sweep.main(["--plan", make_plan(), "--run", scratch_run]) == 0


def test_make_says_how_to_pass_it_over():
    said = subprocess.run(
        ["make", "-n", "sweep", "DOCTOR=0", "PY=python3"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "-m lib.sweep" in said and "--skip-doctor" in said
