"""Bad values on the command line: one line that names them, exit code 2, and nothing on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trot.cli import main
from trot.command_line import parse_call

HUGE = "99999999999999999999999"

MISTAKES = {
    "train ant --horizon 31": "horizon 31 does not split into critic_batches 4",
    "train ant --actor-lr 0": "actor_lr must be above 0, not 0.0",
    "train ant --actor-lr inf": "actor_lr must be above 0, not inf",
    "train ant --actor-lr abc": "Error parsing --actor-lr: could not convert string to float: 'abc'",
    "train ant --save-every 0": "save_every must be at least 1, not 0",
    "train ant --hrizon 3": "Unrecognized options: --hrizon, 3; perhaps you meant --horizon",
    "train cartpole --actor-hidden -3": "actor_hidden must be widths of at least 1, not (-3,)",
    "train cartpole --critic-hidden 8 0": "critic_hidden must be widths of at least 1, not (8, 0)",
    "train cartpole --adam-betas 0.9 1": "adam_betas must be 0 or more and below 1, not (0.9, 1.0)",
    "train cartpole --initial-log-std nan": "initial_log_std must be finite, not nan",
    f"train cartpole --seed {HUGE}": "seed must be a whole number of at least -2^63 and below 2^64 - 2^20",
    "train cartpole --device gpu": "device must be cpu or cuda, not gpu",
    "train ant --worlds 100000000000": "num_worlds 100000000000 takes",
    "train ant --num-worlds 100000000000": "num_worlds 100000000000 takes",
    "train cartpole --actor-hidden 100000000000": "not enough memory",
    "try ant --worlds 100000000000": "num_worlds 100000000000 takes",
    "check cartpole --worlds 100000000000": "num_worlds 100000000000 takes",
    "bench train --device gpu": "device must be cpu or cuda, not gpu",
    "bench train --tasks cartpole atn": "there is no task 'atn'. Did you mean ant?",
    "try cartpole --device gpu": "device must be cpu or cuda, not gpu",
    "try cartpole --steps 0": "steps must be at least 1, not 0",
    f"try cartpole --seed -{HUGE}": f"not -{HUGE}",
    "try cartpole --agent clever": "invalid choice 'clever' for argument '--agent'. Expected one of ('zero', 'random')",
    "try": "Missing from trot try",
    "eval run --device gpu": "invalid choice 'gpu' for argument '--device'. Expected one of ('auto', 'cpu', 'cuda')",
    "list --rns runs": "perhaps you meant --runs",
    "train ant --wrlds 3": "Unrecognized options: --wrlds, 3; perhaps you meant --worlds",
    "tasks 3": "Unrecognized options: 3",
    "demo --seed x": "Error parsing --seed",
    "resume": "The run folder",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = command.split()
    assert main([name, *rest]) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith(f"trot {name}: ")
    assert MISTAKES[command] in line
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_mistake_is_one_line_whatever_the_terminal(encoding: str) -> None:
    """The box that it is taken from looks different."""
    command = [sys.executable, "-m", "trot", "try", "cartpole", "--sed", "3"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "FORCE_COLOR": "1", "COLUMNS": "40"}
    shown = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert shown.returncode == 2
    assert shown.stderr == (
        "trot try: Unrecognized options: --sed, 3; perhaps you meant --seed (trot try --help shows all options)\n"
    )


@pytest.mark.parametrize("option", ["--worlds", "--num-worlds", "--num_worlds"])
def test_a_setting_of_a_users_own_is_found_by_either_name(option: str) -> None:
    def learn(num_worlds: int = 2) -> int:
        return num_worlds

    assert parse_call(learn, "trot learn", "Learn.", [option, "5"])() == 5
    assert parse_call(learn, "trot learn", "Learn.", [f"{option}=6"])() == 6
    with pytest.raises(ValueError, match="--world"):
        parse_call(learn, "trot learn", "Learn.", ["--world", "5"])


def test_the_end_of_a_command_itself_is_not_taken_for_a_mistake() -> None:
    """What runs is called after the arguments are read, so that its own errors and output stay as they are."""

    def end(code: int = 2) -> None:
        raise SystemExit(code)

    call = parse_call(end, "trot end", "End.", ["--code", "3"])
    with pytest.raises(SystemExit) as stopped:
        call()
    assert stopped.value.code == 3
