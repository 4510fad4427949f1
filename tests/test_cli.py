"""The command line: quick help, and mistakes answered in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trot import cli
from trot.completion import TAKE_TASKS
from trot.learn.algorithms import ALGORITHMS, find_algorithm
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["--completion"]) == 0
    (tmp_path / "hop.py").touch()
    script = (
        capsys.readouterr().out
        + """
answer() { COMP_WORDS=(trot "$@"); COMP_CWORD=$#; _trot; echo "${COMPREPLY[@]}"; }
answer tr; answer render h; answer train qu; answer list a; answer train ant --w"""
    )
    asked = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert asked.stdout.splitlines() == ["try train", "hopper half_cheetah humanoid hop.py", "quadruped", "", ""]
    assert not asked.stderr and tuple(name for name in TAKE_TASKS if name in cli.COMMANDS) == TAKE_TASKS


def test_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chekc", "ant.xml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trot: there is no command 'chekc'. Did you mean check? There are: tasks, try, ")
    assert cli.main(["--foo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trot: there is no command '--foo'. There are: tasks, try, ")


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


CPU_MEMORY = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)"
CUDA_MEMORY = "CUDA out of memory. Tried to allocate 74.51 GiB. GPU 0 has a total capacity of 139.72 GiB of which ..."


@pytest.mark.parametrize(
    ("arguments", "error", "line"),
    [
        (
            "--seed 99 --num-worlds 70 --horizon=8",
            RuntimeError(CPU_MEMORY),
            "400000000000 bytes at once. Lower --num-worlds 70",
        ),
        ("--actor-hidden 64 9000", RuntimeError(CUDA_MEMORY), "74.51 GiB at once. Lower --actor-hidden 9000"),
        ("", MemoryError(), "there is not enough memory. Fewer worlds need less"),
    ],
)
def test_too_little_memory_is_one_line_that_names_the_option(
    arguments: str, error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "train", raising(error))
    assert cli.main(["train", *arguments.split()]) == 2
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith("trot train: ") and shown.endswith(line)


def test_other_errors_of_pytorch_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "train", raising(RuntimeError("mat1 and mat2 cannot be multiplied")))
    with pytest.raises(RuntimeError, match="mat1"):
        cli.main(["train"])


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


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m trot train --help | head -n 1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    first, code = ended.stdout.splitlines()
    assert first.startswith("usage: trot train") and code in ("0", "141") and ended.stderr == ""


def test_the_help_of_train_says_what_each_algorithm_is_good_for(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: {find_algorithm(name).summary}" in printed for name in ALGORITHMS)
