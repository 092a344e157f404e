"""How commands end: code and one line."""

import pytest

from lib import command, paths
from lib.files import TinymoeError


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TinymoeError("no plan 'x'"), 1, "sweep: no plan 'x'\n"),
        (
            FileExistsError(17, "File exists", str(paths.RUNS / "x")), 1,
            "sweep: runs/x: File exists; make room or move it, then the same command goes on\n",
        ),
        (KeyboardInterrupt(), 130, "sweep: interrupted; all is kept\n"),
    ],
)  # fmt: skip
def test_an_error_is_a_code_and_one_line(error, code, said, capsys):
    assert command.run("sweep", raising(error), "all is kept") == code
    assert capsys.readouterr() == ("", said)


def test_the_actions_own_code_is_passed_on_and_a_bug_keeps_its_traceback(capsys):
    assert command.run("sweep", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        command.run("sweep", raising(ZeroDivisionError()))
