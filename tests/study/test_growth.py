"""How gradients grow backward in time: powers of a matrix known by hand, a pendulum upright, episodes that end."""

import csv
import math

import docking
import numpy as np
import pytest
import torch
from made_run import make_run

import trot.study
from trot import Start, Task
from trot.cli import main
from trot.runs.folder import RunFolder
from trot.study.adjoint_growth import Growth, growth
from trot.study.growth_study import summary

GRAVITY, LENGTH, POLE_DT, POLE_SUBSTEPS = 9.81, 0.5, 0.01, 4

PENDULUM = f"""
<mujoco>
  <option gravity="0 0 {-GRAVITY}"/>
  <worldbody>
    <body name="pole">
      <joint name="hinge" type="hinge" axis="0 1 0"/>
      <inertial pos="0 0 {LENGTH}" mass="1.3" diaginertia="1e-9 1e-9 1e-9"/>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="hinge" gear="1" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


class Upright(Task):
    """Paid by the angle of a point mass on a massless pole, which stands on its hinge."""

    robot = PENDULUM
    control_dt = POLE_DT
    substeps = POLE_SUBSTEPS
    episode_length = 300

    def measure(self, state):
        return state

    def observation(self, measured, previous_action):
        return {"angle": measured.joint_q, "rate": measured.joint_qd}

    def reward_terms(self, measured, action):
        return {"angle": measured.joint_q}


class Slipping(Upright):
    """As Upright, but worlds whose angle is above zero have fallen."""

    start = Start(joint_noise=0.5, velocity_noise=0.5)

    def fallen(self, measured):
        return measured.joint_q > 0.6


def sled_step(substeps=1):
    """(offset, speed) before a step to (offset, speed) after it, without force."""
    dt = docking.DT / substeps
    keep = 1 - dt * docking.DAMPING / docking.MASS
    return np.linalg.matrix_power(np.array([[1, dt * keep], [0, keep]]), substeps)


@pytest.mark.parametrize("substeps", [1, 3])
def test_adjoints_of_a_linear_task_are_powers_of_its_matrix(substeps):
    steps = docking.STEPS
    found = growth(
        docking.Docking(), substeps, steps, num_worlds=5, acting="nothing", device="cpu", seed=3, dtype=torch.float64
    )
    env = docking_start(5, seed=3)
    for world, start in enumerate(np.hstack([env.state.joint_q.numpy(), env.state.joint_qd.numpy()])):
        matrix = sled_step(substeps)
        end = np.linalg.matrix_power(matrix, steps) @ start
        by_end = -2 * np.array([docking.OFFSET_COST, docking.SPEED_COST]) * end
        expected = [np.linalg.norm(np.linalg.matrix_power(matrix.T, back) @ by_end) for back in range(steps + 1)]
        np.testing.assert_allclose(found.norms[:, world], expected, rtol=1e-9, atol=0)
    assert found.substeps == substeps and found.reach == steps and found.blown_up == 0


def docking_start(num_worlds, seed):
    from trot import make_env

    env = make_env(docking.Docking(), num_worlds, seed=seed, dtype=torch.float64)
    env.reset()
    return env


def test_the_adjoint_of_the_return_adds_up_what_every_step_pays():
    steps = 6
    found = growth(docking.Docking(), None, steps, 2, "nothing", objective="return", device="cpu", dtype=torch.float64)
    env, matrix = docking_start(2, seed=0), sled_step()
    start = np.hstack([env.state.joint_q.numpy(), env.state.joint_qd.numpy()])[1]
    states = [np.linalg.matrix_power(matrix, step) @ start for step in range(steps + 1)]
    cost = np.array([docking.OFFSET_COST, docking.SPEED_COST])
    bars = [-2 * cost * states[-1]]
    for state in states[-2:0:-1]:
        bars.append(-2 * cost * state + matrix.T @ bars[-1])
    # Nothing is paid for the state that the window begins from.
    bars.append(matrix.T @ bars[-1])
    np.testing.assert_allclose(found.norms[:, 1], np.linalg.norm(bars, axis=1), rtol=1e-9)


def test_a_pendulum_upright_grows_at_the_rate_that_it_falls_with():
    found = growth(Upright(), steps=250, num_worlds=2, acting="nothing", device="cpu", dtype=torch.float64)
    rate = math.sqrt(GRAVITY / LENGTH)
    assert found.per_second == pytest.approx(rate, rel=0.03)
    # Once the falling mode is alone, to what the size of a substep leaves.
    late = np.log(found.quantile(0.5)[[150, 250]])
    assert (late[1] - late[0]) / (100 * POLE_DT) == pytest.approx(rate, rel=1e-3)
    crossing = found.first_above(1e3)
    # The angle at the end by angle and rate before: cosh(r t) and sinh(r t) / r.
    norm = np.hypot(np.cosh(rate * crossing * POLE_DT), np.sinh(rate * crossing * POLE_DT) / rate)
    assert norm == pytest.approx(1e3, rel=0.06)
    assert found.first_above(1e6) is None


@pytest.mark.gpu
def test_adjoints_on_cuda_are_those_of_the_cpu():
    given = {"steps": 40, "num_worlds": 3, "acting": "nothing", "dtype": torch.float64}
    here, there = (growth(Upright(), device=device, **given) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.norms, here.norms, rtol=1e-9)


def test_only_the_episode_that_the_window_ends_in_counts_unless_falls_are_ignored():
    given = {"steps": 60, "num_worlds": 16, "acting": "nothing", "device": "cpu", "dtype": torch.float64}
    ended, ignored = (growth(Slipping(), falls=falls, **given) for falls in ("end", "ignore"))
    assert not np.isnan(ignored.norms).any()
    back = (~np.isnan(ended.norms)).sum(axis=0) - 1
    assert (back < 60).any() and (back == 60).any()
    # An upright pole's adjoint at least doubles in 60 steps: no world has one that a reset cut to zero.
    whole = back == 60
    np.testing.assert_array_equal(ended.norms[:, whole], ignored.norms[:, whole])
    for world in np.flatnonzero(~whole):
        assert (ended.norms[: back[world] + 1, world] > 0.9).all()
        assert np.isnan(ended.norms[back[world] + 1 :, world]).all()
    assert ended.reach == sorted(back)[-8]


def test_statistics_worked_by_hand():
    norms = np.array([[1.0, 2, 3, 4], [2, 8, 6, np.nan], [40, 5000, np.nan, np.nan], [1, np.nan, np.nan, np.nan]])
    case = Growth("made", 4, 0.5, norms, blown_up=0)
    assert case.reach == 2
    # Of an even number of worlds the upper one in the middle.
    np.testing.assert_array_equal(case.quantile(0.5), [3, 6, 5000])
    np.testing.assert_array_equal(case.quantile(1), [4, 8, 5000])
    np.testing.assert_array_equal(case.quantile(0.25), [2, 6, 40])
    # Of three points at equal distances the one in the middle does not matter.
    assert case.per_second == pytest.approx((math.log(5000) - math.log(3)) / 1.0)
    assert case.first_above(5) == 1 and case.first_above(5000) is None


def test_a_gradient_beyond_all_numbers_counts_as_infinite(monkeypatch):
    monkeypatch.setattr(Upright, "reward_terms", lambda self, measured, action: {"steep": 1e39 * measured.joint_q})
    found = growth(Upright(), steps=4, num_worlds=2, acting="nothing", device="cpu")
    assert np.isinf(found.norms).all() and math.isnan(found.per_second) and found.first_above(1e6) == 0


def test_worlds_that_blow_up_are_told_and_leave_no_curve():
    class Explodes(Upright):
        def control(self, action):
            return action * math.nan

    found = growth(Explodes(), steps=4, num_worlds=3, device="cpu")
    assert found.blown_up == 3 and found.reach == -1 and math.isnan(found.per_second)
    assert "3/3" in summary([found])


def test_a_policy_closes_the_loop(tmp_path):
    run, agent = make_run(tmp_path, "cartpole")
    given = {"steps": 12, "num_worlds": 3, "device": "cpu", "seed": 5, "dtype": torch.float64}
    with_policy, alone = growth(run.path, acting="mean", **given), growth(run.path, acting="nothing", **given)
    from trot import make_env
    from trot.sim.state import State

    def last_reward(state):
        env = make_env("cartpole", 3, seed=5, dtype=torch.float64)
        env.reset()
        observation = env.place(state)
        for _ in range(12):
            observation, reward, *_ = env.step(agent(observation))
        return reward

    agent.policy.double()
    env = make_env("cartpole", 3, seed=5, dtype=torch.float64)
    env.reset()
    start = torch.cat([env.state.joint_q, env.state.joint_qd], dim=1)
    bars = []
    for column in range(4):
        shift = torch.zeros(4, dtype=torch.float64).index_fill(0, torch.tensor(column), 1e-6)
        there, here = (last_reward(State(*(start + sign * shift).split(2, dim=1))) for sign in (1, -1))
        bars.append(((there - here) / 2e-6).detach().numpy())
    np.testing.assert_allclose(with_policy.norms[-1], np.linalg.norm(bars, axis=0), rtol=1e-6)
    assert not np.allclose(with_policy.norms[-1], alone.norms[-1], rtol=1e-2)


def test_the_command_writes_numbers_and_a_figure(tmp_path, capsys):
    options = ["--substeps", "2", "4", "--steps", "8", "--num-worlds", "3", "--device", "cpu"]
    assert main(["study", "growth", "cartpole", "hopper", *options, "--studies", str(tmp_path)]) == 0
    folder = tmp_path / "growth-cartpole-hopper"
    names = {path.name for path in folder.iterdir()}
    assert {"norms.npz", "curves.csv", "growth.csv", "growth.png", "growth.svg", "command.txt"} <= names
    norms = np.load(folder / "norms.npz")
    assert {name: norms[name].shape for name in norms} == dict.fromkeys(
        ("cartpole-2", "cartpole-4", "hopper-2", "hopper-4"), (9, 3)
    )
    np.testing.assert_array_equal(norms["hopper-2"], trot.study.growth("hopper", 2, 8, 3, device="cpu").norms)
    with (folder / "curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["subject"], row["substeps"]) == ("cartpole", "4")]
    np.testing.assert_array_equal([float(row["median"]) for row in rows], np.median(norms["cartpole-4"], axis=1))
    text = (folder / "growth.svg").read_text()
    assert "hopper" in text and "Steps backward" in text
    assert "cartpole" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["antt"], "'antt' is neither a task nor a run folder"),
        (["cartpole", "--acting", "policy"], "'cartpole' is a task and has no policy"),
        (["cartpole", "--steps", "241"], "steps must be 1 to 240, an episode of cartpole, not 241"),
        (["cartpole", "cartpole"], "two of the subjects are called 'cartpole'"),
        (["cartpole", "--steps", "0"], "steps must be 1 to 240"),
        (["cartpole", "--substeps", "0"], "substeps must be"),
        (["cartpole", "--num-worlds", "900000000"], "Use fewer worlds"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, capsys):
    assert main(["study", "growth", *arguments, "--device", "cpu", "--studies", str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trot study: ") and said in error


def test_a_window_that_the_memory_does_not_hold_is_refused_before_it_begins(monkeypatch, capsys, tmp_path):
    # joint_q, joint_qd and accelerations, two numbers each, of 8 worlds and 200 steps: 77 kB per 2 substeps.
    monkeypatch.setattr("trot.envs.device.memory_bytes", lambda device: 100_000.0)
    options = ["--substeps", "2", "4", "--num-worlds", "8", "--steps", "200", "--device", "cpu"]
    assert main(["study", "growth", "cartpole", *options, "--studies", str(tmp_path)]) == 2
    # One line: the case that would fit was not begun.
    (error,) = capsys.readouterr().err.splitlines()
    assert "for the backward pass through 200 steps of 4 substeps; cpu has" in error
    assert error.endswith("Use fewer worlds or steps")


def test_a_run_without_checkpoints_is_refused_with_what_to_do(tmp_path, capsys):
    run = RunFolder.create(tmp_path, "bare", {"task": "cartpole", "algo": "shac", "seed": 0})
    assert main(["study", "growth", str(run.path), "--device", "cpu", "--studies", str(tmp_path / "studies")]) == 2
    assert f"has no checkpoints yet: trot resume {run.path}" in capsys.readouterr().err
