"""What docs/your_own.md and docs/environments.md say: the examples, the code blocks, and what mistakes are told."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import trot
from trot.cli import main
from trot.envs.check_task import TaskCheckSettings, check_task_gradients, count_ends, draw_windows
from trot.envs.registry import TASKS, make_task
from trot.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
WALKER = "examples/walker/my_task.py:Walker"
QUADRUPED = "examples/quadruped/quadruped_task.py:Quadruped"
FIRM_ANT = "examples/firm_ant/firm_ant_task.py:FirmAnt"
EXAMPLES = pytest.mark.parametrize("name", [WALKER, QUADRUPED])

NEEDS_CUDA = "<!-- needs CUDA -->\n"
BLOCK = re.compile(rf"({NEEDS_CUDA})?```python\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def clone(tmp_path, monkeypatch):
    """Stand where a reader of the docs does, without leaving files in the repository."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)


def run_blocks(doc: str, cuda: bool) -> None:
    """Run the Python blocks of a doc one after the other, as one program."""
    blocks = [code for marker, code in BLOCK.findall((ROOT / "docs" / doc).read_text()) if bool(marker) == cuda]
    assert blocks
    names: dict[str, object] = {"__name__": doc}
    for code in blocks:
        exec(compile(code, doc, "exec"), names)


@EXAMPLES
def test_random_actions(name):
    env = trot.make_env(name, num_worlds=16)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    falls = 0
    for step in range(200):
        action = 2 * torch.rand(16, env.num_actions, generator=generator) - 1
        # Full effort shakes a robot harder than anything in between.
        observation, reward, terminated, _, info = env.step(action.sign() if step % 2 else action)
        assert observation.isfinite().all() and reward.isfinite().all()
        falls += int(terminated.sum())
    assert int(info["faults"].sum()) == 0
    assert falls > 0


@EXAMPLES
def test_gradients_against_central_differences(name):
    """Eight rewards along random directions of actions and start state; inside, worlds fall and time runs out."""
    settings = TaskCheckSettings(name)
    env = trot.make_env(name, settings.worlds, dtype=torch.float64)
    windows = draw_windows(env, settings)
    assert min(count_ends(env, windows)) > 0
    for row in check_task_gradients(env, windows, settings):
        assert row.error <= 1e-6, row
        assert row.checked > 8 * row.skipped, row


@EXAMPLES
def test_starts_on_its_soles(name):
    """Close enough to the ground that nothing is thrown up, and nothing falls far."""
    env = trot.make_env(name, num_worlds=1, dtype=torch.float64, stochastic_start=False)
    first, _ = env.reset()
    height = env.observation_layout["height"]
    then, *_ = env.step(torch.zeros(1, env.num_actions, dtype=torch.float64))
    assert (then - first)[0, height].abs() < 0.005


def test_walker_stands_in_its_plane():
    model = make_task(WALKER).model
    assert model.joint_name[:3] == ("root_TX", "root_TY", "root_RZ")
    np.testing.assert_allclose(model.joint_axis[:3], [(1, 0, 0), (0, 0, 1), (0, -1, 0)], atol=1e-9)
    assert model.body_mass.sum() == pytest.approx(26)


def test_walker_actions_are_shares_of_the_effort():
    task = make_task(WALKER)
    control = task.control(torch.tensor([[1.0, -1.0, 0.5, 0.0, 0.0, -0.5]]))
    assert control.tolist() == [[0, 0, 0, 150, -150, 40, 0, 0, -40]]


def test_quadruped_is_symmetric():
    """The nominal pose puts the centre of mass over the middle of the feet."""
    model = make_task(QUADRUPED).model
    assert model.body_mass.sum() == pytest.approx(50)
    env = trot.make_env(QUADRUPED, num_worlds=1, dtype=torch.float64, stochastic_start=False)
    env.reset()
    for _ in range(10):
        env.step(torch.zeros(1, env.num_actions, dtype=torch.float64))
    place = env.state.joint_q[0]
    torch.testing.assert_close(place[:2], torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(place[4:7], torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-9)


def test_quadruped_on_its_side_has_fallen():
    task = make_task(QUADRUPED)
    quarter = 0.5**0.5
    joint_q = torch.tensor(task.start.pose(task.model)).repeat(3, 1)
    joint_q[1, 3:7] = torch.tensor([quarter, quarter, 0, 0])
    joint_q[2, 2] = 0.25
    fallen = task.fallen(task.measure(trot.State(joint_q, torch.zeros(3, task.model.num_dofs))))
    assert fallen.flatten().tolist() == [False, True, True]


def test_firm_ant_is_the_ant_but_for_its_springs():
    """No other number of the robot differs."""
    firm, ant = make_task(FIRM_ANT).model, make_task("ant").model
    changed = {"shape_stiffness": 1e5, "shape_damping": 1e5, "joint_limit_stiffness": 1e4, "joint_limit_damping": 1e4}
    for name, value in vars(ant).items():
        if isinstance(value, np.ndarray):
            expected = np.full_like(value, changed[name]) if name in changed else value
            hinges = slice(1, None) if name.startswith("joint_limit") else slice(None)
            np.testing.assert_array_equal(getattr(firm, name)[hinges], expected[hinges], err_msg=name)


def test_firm_ant_trains(tmp_path):
    few = ["--device", "cpu", "--runs", str(tmp_path), "--iterations", "2", "--worlds", "4", "--horizon", "4"]
    assert main(["train", FIRM_ANT, "--name", "firm", *few]) == 0
    run = RunFolder.open(tmp_path / "firm")
    assert len(run.read_metrics()) == 2
    assert run.settings["randomize"]["push_interval"] == 2.0


def test_blocks_of_your_own(capsys):
    run_blocks("your_own.md", cuda=False)
    printed = capsys.readouterr().out
    assert "('left_hip', 0.3)" in printed
    carried = [float(number) for number in re.findall(r"at most (\S+)", printed)]
    np.testing.assert_allclose(carried, [1.0, 0.3, 1.1], rtol=0.5)
    totals = [float(number) for number in re.findall(r": (\d+) in 32 steps", printed)]
    np.testing.assert_allclose(totals, [31, 52, 62], rtol=0.1)


def test_blocks_of_environments():
    run_blocks("environments.md", cuda=False)


@pytest.mark.gpu
def test_cuda_block_of_environments(capsys):
    run_blocks("environments.md", cuda=True)
    assert "tensor(" in capsys.readouterr().out


def test_table_of_tasks():
    text = (ROOT / "docs" / "environments.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    written = {name: [int(number) for number in numbers] for name, *numbers in rows}
    assert written == {name: sizes(name) for name in TASKS}


def sizes(name: str) -> list[int]:
    """Width of the observation, actions, episode length and substeps, without compiling kernels."""
    task = make_task(name)
    state = task.start.draw(task.model, 1, None, torch.zeros(()))
    situation = trot.Situation(state.joint_q, state.joint_qd, task.draw_memory(1, None, torch.zeros(())))
    parts = task.observation(task.measure(situation), torch.zeros(1, task.num_actions))
    return [sum(part.shape[1] for part in parts.values()), task.num_actions, task.episode_length, task.substeps]


def test_mistakes_in_the_name():
    with pytest.raises(FileNotFoundError, match=r"no task file 'my_tsk\.py'"):
        trot.make_env("my_tsk.py:Walker", 1)
    with pytest.raises(ValueError, match=r"my_task\.py has no task 'Runner'; it has: Walker"):
        trot.make_env("examples/walker/my_task.py:Runner", 1)
    with pytest.raises(ValueError, match=r"no task 'walker'.*your own is path/to/file\.py:Class"):
        trot.make_env("walker", 1)


def test_a_task_without_its_methods_is_told_which_are_missing(tmp_path):
    (tmp_path / "half.py").write_text("import trot\nclass Half(trot.Task[None]):\n    robot = 'half.xml'\n")
    with pytest.raises(
        ValueError, match=r"Half in half\.py is not finished: it lacks measure, observation, reward_terms"
    ):
        trot.make_env("half.py:Half", 1)


def walker_with(tmp_path: Path, body: str) -> str:
    """A task in a file of its own: the Walker, with a part of it spoilt."""
    text = (ROOT / "examples" / "walker" / "my_task.py").read_text()
    spoilt = f"{text}\n\nclass Spoilt(Walker):\n    def {body}\n"
    (tmp_path / "examples" / "walker" / "spoilt.py").write_text(spoilt)
    return "examples/walker/spoilt.py:Spoilt"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "reward_terms(self, measured, action): return {'forward': measured.forward_speed * measured.height[:, 0]}",
            r"reward_terms\(\)\['forward'\] must be \(num_worlds, 1\), not \('?num_worlds'?, '?num_worlds'?\)",
        ),
        (
            "reward_terms(self, measured, action): return {'effort': action}",
            r"reward_terms\(\)\['effort'\] must be \(num_worlds, 1\), not \('?num_worlds'?, 6\)",
        ),
        (
            "observation(self, measured, previous_action): return {'joints': measured.joints[None]}",
            r"observation\(\)\['joints'\] must be \(num_worlds, width\), not \(1, '?num_worlds'?, 6\)",
        ),
        ("observation(self, measured, previous_action): return {}", r"observation\(\) is empty"),
        ("fallen(self, measured): return measured.joints < 0", r"fallen\(\) must be \(num_worlds, 1\)"),
        ("control(self, action): return action", r"control\(\) must be \(num_worlds, 9\), not \('?num_worlds'?, 6\)"),
    ],
)
def test_wrong_shapes_are_named(tmp_path, body, message):
    with pytest.raises(ValueError, match=rf"Spoilt\.{message}"):
        trot.make_env(walker_with(tmp_path, body), 4)


def test_a_start_of_another_robot_is_refused():
    class Short(type(make_task(WALKER))):
        start = trot.Start(joint_q=(0.0, 0.0))

    with pytest.raises(ValueError, match="the start pose has 2 numbers; this robot's joint_q has 9"):
        trot.make_env(Short, 1)
