"""The command line: quick help, and mistakes answered in one line."""

import subprocess
import sys

import pytest

from trot import cli
from trot.sim.errors import ModelError

HELP_WITHOUT_HEAVY_MODULES = """
import sys
from trot.cli import main
try:
    main(["--help"])
finally:
    heavy = {"torch", "warp", "mujoco"} & set(sys.modules)
    print("heavy:", *sorted(heavy))
"""


def trot(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "trot", *arguments], capture_output=True, text=True)


def raising(error: BaseException) -> object:
    def command(arguments: list[str]) -> int:
        raise error

    return command


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-c", HELP_WITHOUT_HEAVY_MODULES], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("heavy:")
    assert all(name in result.stdout for name in (*cli.COMMANDS, "--version"))


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 0
    assert "check" in capsys.readouterr().out


def test_version() -> None:
    assert trot("--version").stdout == "trot 0.1.0\n"


def test_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["chekc", "ant.xml"])
    assert stopped.value.code == 2
    assert "check" in capsys.readouterr().err


def test_missing_file_is_one_line() -> None:
    result = trot("check", "no_such_robot.xml")
    assert result.returncode == 2
    assert result.stderr.startswith("trot check: ")
    assert "no_such_robot.xml" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_model_error_is_printed_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "check", raising(ModelError("geom 'lid' is a mesh")))
    assert cli.main(["check"]) == 2
    assert capsys.readouterr().err == "trot check: geom 'lid' is a mesh\n"


def test_our_own_faults_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "check", raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["check"])


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.COMMANDS, "demo", raising(KeyboardInterrupt()))
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr() == ("trot demo: stopped\n", "")
    monkeypatch.setitem(cli.COMMANDS, "demo", raising(KeyboardInterrupt("Go on: trot resume x")))
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr() == ("Go on: trot resume x\n", "")


CTRL_C_DURING_IMPORTS = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "trot.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from trot.__main__ import run
sys.exit(run())
"""


def test_ctrl_c_while_modules_are_imported_is_one_line() -> None:
    result = subprocess.run([sys.executable, "-c", CTRL_C_DURING_IMPORTS], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "trot: stopped\n", "")


def test_bench_outside_the_repository_says_where_it_lives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # None in sys.modules is how Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "bench", None)
    monkeypatch.setitem(sys.modules, "bench.step", None)
    assert cli.main(["bench"]) == 2
    assert "repository" in capsys.readouterr().err
