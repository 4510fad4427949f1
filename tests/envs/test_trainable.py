"""Tasks that nothing can learn are refused before a run folder is made, and those that merely look so are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from trot.cli import main
from trot.envs.registry import TASKS, make_env
from trot.envs.trainable import require_trainable

HEAD = """
import torch
import trot
from trot.envs.tasks.cartpole import CartPole

class Mine(CartPole):
"""

HOPELESS = {
    "constant observation": (
        "def observation(self, measured, action): return {'one': torch.ones_like(action), 'two': 2 + 0 * action}",
        "Mine.observation() is the same in all worlds and 1000 steps of random actions",
    ),
    "constant reward": (
        "def reward_terms(self, measured, action): return {'alive': torch.ones_like(action[:, 0])}",
        "Mine.reward_terms() depend on neither state nor action",
    ),
    "reward of a number alone": (
        "def reward_terms(self, measured, action): return {'gift': torch.zeros(len(action), 1) + 3}",
        "Mine.reward_terms() depend on neither state nor action",
    ),
    "no actions": (
        "num_actions = property(lambda self: 0)\n    def control(self, action): return torch.zeros(len(action), 1)",
        "Mine.num_actions is 0",
    ),
    "half an action": ("num_actions = property(lambda self: 0.5)", "Mine.num_actions must be a whole number"),
    "NaN in the first observation": (
        "def observation(self, measured, action): return {'fine': 1 + action, 'root': (-1 - action.abs()).sqrt()}",
        "Mine.observation()['root'] is nan at once",
    ),
    "NaN in a reward": (
        "def reward_terms(self, measured, action): return {'fine': action, 'log': (action - 2).log()}",
        "Mine.reward_terms()['log'] is nan at once",
    ),
    "infinite control": ("def control(self, action): return action / 0", "Mine.control() is "),
    "reward in double": (
        "def reward_terms(self, measured, action): return {'goal': action.double()}",
        "Mine.reward_terms()['goal'] must be torch.float32 on cpu, not torch.float64",
    ),
    "reward of all actions": (
        "def reward_terms(self, measured, action): return {'goal': action.repeat(1, 3)}",
        "Mine.reward_terms()['goal'] must be (num_worlds, 1), not (num_worlds, 3)",
    ),
    "observation in half": (
        "def observation(self, measured, action): return {'a': action.half()}",
        "Mine.observation()['a'] must be torch.float32 on cpu, not torch.float16",
    ),
    "fallen in numbers": (
        "def fallen(self, measured): return measured.position",
        "Mine.fallen() must be torch.bool on cpu, not torch.float32",
    ),
}


def write_task(folder: Path, body: str) -> str:
    (folder / "own.py").write_text(f"{HEAD}    {body}\n")
    return f"{folder / 'own.py'}:Mine"


@pytest.mark.parametrize("name", HOPELESS)
def test_it_is_refused_in_one_line_that_names_the_line_and_nothing_is_made(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body, message = HOPELESS[name]
    assert main(["train", write_task(tmp_path, body), "--iterations", "1", "--runs", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    # HEAD has six lines.
    assert line.endswith("(own.py:7)")
    assert not (tmp_path / "runs").exists()


MAY_LEARN = {
    "a goal that is never reached by chance": (
        "def reward_terms(self, measured, action): return {'goal': (measured.position > 1000).to(action.dtype)}"
    ),
    "a goal that Python decides": (
        "def reward_terms(self, measured, action): "
        "return {'goal': action.new_full((len(action), 1), float(measured.position.max().item() > 1000))}"
    ),
    "staying alive": (
        "def reward_terms(self, measured, action): return {'alive': torch.ones_like(action)}\n"
        "    def fallen(self, measured): return measured.position.abs() > 1000"
    ),
    "a goal written into zeros": (
        "def reward_terms(self, measured, action):\n"
        "        goal = torch.zeros_like(action)\n"
        "        goal[measured.position > 1000] = 1.0\n"
        "        return {'goal': goal}"
    ),
    "an observation that begins alike everywhere": (
        "start = trot.Start()\n"
        "    def observation(self, measured, action): return {'moved': (measured.position.abs() > 0.01).to(action)}"
    ),
}


@pytest.mark.parametrize("name", MAY_LEARN)
def test_what_may_learn_is_not_refused(name: str, tmp_path: Path) -> None:
    require_trainable(make_env(write_task(tmp_path, MAY_LEARN[name]), 4))


@pytest.mark.parametrize("name", TASKS)
def test_the_environment_stays_as_it_is(name: str) -> None:
    env, other = (make_env(name, 4, seed=1) for _ in range(2))
    env.reset()
    other.reset()
    require_trainable(env)
    action = torch.zeros(4, env.num_actions)
    assert env.step(action)[1].equal(other.step(action)[1])
    assert env.generator.get_state().equal(other.generator.get_state())


def test_worlds_that_all_blow_up_at_once_are_refused(tmp_path: Path) -> None:
    """Pushed with more than single precision holds, for days."""
    spec = write_task(tmp_path, "control_dt = 1e6\n    def control(self, action): return 1e30 * (2 + action)")
    with pytest.raises(ValueError, match="every world blows up in the first step"):
        require_trainable(make_env(spec, 4))


def test_the_line_is_that_of_the_class_that_has_the_method(tmp_path: Path) -> None:
    """Also below a decorator, and for a method that is inherited."""
    body = "@torch.no_grad()\n    def fallen(self, measured): return measured.position\n\nclass Heir(Mine): ..."
    spec = write_task(tmp_path, body).replace(":Mine", ":Heir")
    message = f"Heir.fallen() must be torch.bool on cpu, not torch.float32 on cpu ({tmp_path}/own.py:7)"
    with pytest.raises(ValueError, match=re.escape(message)):
        make_env(spec, 4)
