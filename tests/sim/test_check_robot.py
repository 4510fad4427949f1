"""`trot check`, as a user meets it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from random_robots import random_robot

from trot.cli import main
from trot.sim import check_robot
from trot.sim.check_robot import CheckSettings, check_gradients
from trot.sim.load import load_model

ROBOTS = Path(__file__).parents[1] / "robots"
ANT = Path(__file__).parents[2] / "trot" / "envs" / "assets" / "ant.xml"


def test_a_right_gradient_passes_and_every_input_is_listed(capsys):
    assert main(["check", str(ROBOTS / "every_joint.xml"), "--worlds", "4"]) == 0
    printed = capsys.readouterr().out
    for name in ("joint_q", "joint_qd", "control", "body_mass", "contact_stiffness", "contact_damping", "friction"):
        assert f"\n{name} " in printed
    assert "gradients are right" in printed


@pytest.mark.parametrize("worst", ["hip_1", "ankle_3"])
def test_a_wrong_gradient_fails_and_the_worst_dof_is_named(monkeypatch, capsys, worst):
    """One coordinate of one gradient is a thousandth off in every world: the smallest error anybody would notice."""
    exact = check_robot.tangent_gradient

    def spoilt(model, joint_q, gradient):
        result = exact(model, joint_q, gradient)
        result[:, model.dof_name.index(worst)] *= 1.001
        return result

    monkeypatch.setattr(check_robot, "tangent_gradient", spoilt)
    assert main(["check", str(ANT), "--worlds", "4"]) == 1
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("joint_q "))
    assert worst in row
    assert "FAILS" in row


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_fails_and_is_named(monkeypatch, capsys, bad):
    exact = check_robot.tangent_gradient

    def spoilt(model, joint_q, gradient):
        result = exact(model, joint_q, gradient)
        result[2, model.dof_name.index("hip_1")] = bad
        return result

    monkeypatch.setattr(check_robot, "tangent_gradient", spoilt)
    assert main(["check", str(ANT), "--worlds", "4"]) == 1
    printed = capsys.readouterr().out
    assert f"FAILS by joint_q at hip_1, world 2: the gradient is {bad}" in printed
    assert "gradients are WRONG" in printed


def test_a_gradient_that_is_a_factor_off_fails_in_every_world(monkeypatch):
    exact = check_robot.gradients
    model = load_model(ANT)
    settings = CheckSettings(ANT, worlds=4)
    right = {row.name: row for row in check_gradients(model, settings)}

    def spoilt(loss, leaves):
        return {name: gradient * (2 if name == "body_mass" else 1) for name, gradient in exact(loss, leaves).items()}

    monkeypatch.setattr(check_robot, "gradients", spoilt)
    for row in check_gradients(model, settings):
        if row.name == "body_mass":
            assert row.wrong > 0.9 * 4 * model.num_bodies
            assert row.error == pytest.approx(1, abs=1e-6)
        else:
            assert row == right[row.name]


PENDULUM = """
<mujoco>
  <worldbody>
    <body>
      <joint name="swing" axis="0 1 0"/>
      <geom type="sphere" pos="0.5 0 0" size="0.1"/>
      <body pos="1 0 0">
        <joint name="elbow" axis="0 1 0"/>
        <geom type="sphere" pos="0.5 0 0" size="0.1"/>
      </body>
    </body>
  </worldbody>
  {actuator}
</mujoco>"""


def pendulum(tmp_path, actuator: str = "") -> str:
    path = tmp_path / "pendulum.xml"
    path.write_text(PENDULUM.format(actuator=actuator))
    return str(path)


def test_a_robot_without_actuators_or_ground(tmp_path, capsys):
    assert main(["check", pendulum(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\ncontrol " not in printed
    assert "\nfriction " not in printed


@pytest.mark.parametrize("ctrlrange", ["2 5", "-5 -2", "-0.1 0.1"])
def test_controls_are_drawn_inside_their_range(tmp_path, capsys, ctrlrange):
    """At the border of a range the derivative has two sides, and outside it there is none to check."""
    actuator = f'<actuator><motor joint="elbow" ctrlrange="{ctrlrange}"/></actuator>'
    assert main(["check", pendulum(tmp_path, actuator)]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("control "))
    assert float(row.split()[1]) > 0


def test_nothing_checked_is_not_a_pass(tmp_path, capsys):
    """12 seconds of an undamped double pendulum amplify a difference until no two agree."""
    arguments = ["--steps", "12", "--control-dt", "1", "--substeps", "1000", "--worlds", "2", "--seconds", "3"]
    assert main(["check", pendulum(tmp_path), *arguments]) == 1
    assert "NOT CHECKED" in capsys.readouterr().out


FREE_FALL = """
<mujoco>
  <option gravity="0 0 {gravity}"/>
  <worldbody>
    {ground}
    <body name="trunk" pos="0 0 {height}">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="{mass}" contype="0" friction="0.8" user="{stiffness} 1e3 {sliding}"/>
      {arm}
    </body>
  </worldbody>
</mujoco>"""
GROUND = '<geom type="plane" size="0 0 1" conaffinity="0"/>'
FINGER = """
<body pos="0.2 0 0">
  <joint name="finger" axis="0 1 0" damping="1e-7"/>
  <geom type="sphere" size="0.01" pos="0.05 0 0" mass="1e-5" contype="0" conaffinity="0"/>
</body>"""


def test_a_mass_that_does_not_matter_is_right(tmp_path):
    """What falls freely and spins like a ball moves the same with any mass: gradient and differences are rounding."""
    path = tmp_path / "ball.xml"
    path.write_text(FREE_FALL.format(gravity=-9.81, ground="", height=1, mass=3, stiffness=1e4, sliding=1e3, arm=""))
    row = next(row for row in check_gradients(load_model(path), CheckSettings(path)) if row.name == "body_mass")
    assert row.largest < 1e-12
    assert (row.wrong, row.checked, row.skipped) == (0, 8, 0)


def test_a_mass_that_does_not_matter_is_wrong_where_the_gradient_says_otherwise(tmp_path, monkeypatch):
    path = tmp_path / "ball.xml"
    path.write_text(FREE_FALL.format(gravity=-9.81, ground="", height=1, mass=3, stiffness=1e4, sliding=1e3, arm=""))
    exact = check_robot.gradients

    def spoilt(loss, leaves):
        return {name: gradient + (1e-4 if name == "body_mass" else 0) for name, gradient in exact(loss, leaves).items()}

    monkeypatch.setattr(check_robot, "gradients", spoilt)
    row = next(row for row in check_gradients(load_model(path), CheckSettings(path)) if row.name == "body_mass")
    assert row.wrong == 8


@pytest.mark.parametrize(
    "robot",
    [
        {"mass": 3, "stiffness": 1e7, "sliding": 1e4, "arm": ""},
        {"mass": 3, "stiffness": 1e4, "sliding": 1e3, "arm": FINGER},
        {"mass": 1e-3, "stiffness": 10, "sliding": 0.1, "arm": ""},
        {"mass": 1e6, "stiffness": 1e9, "sliding": 1e7, "arm": ""},
    ],
    ids=["stiff contact", "light link", "light robot", "heavy robot"],
)
def test_extreme_robots_are_never_called_wrong(tmp_path, robot):
    path = tmp_path / "robot.xml"
    path.write_text(FREE_FALL.format(gravity=-9.81, ground=GROUND, height=0.15, **robot))
    for seed in range(3):
        rows = check_gradients(load_model(path), CheckSettings(path, substeps=64, seed=seed))
        assert [row for row in rows if row.wrong] == []
        state = [row for row in rows if row.name in ("joint_q", "joint_qd")]
        assert all(row.checked > 4 * row.skipped for row in state), state


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 12))])
def test_random_robots_with_masses_far_apart_are_never_called_wrong(seed):
    """Body masses over six orders of magnitude: some of these chatter on the ground, and none has a wrong gradient."""
    rng = np.random.default_rng(seed)
    text = re.sub(
        r'mass="([^"]+)"', lambda m: f'mass="{float(m[1]) * 10 ** rng.uniform(-5, 1):.6g}"', random_robot(rng, 3)
    )
    rows = check_gradients(load_model(text), CheckSettings(Path("random"), substeps=128))
    assert [row for row in rows if row.wrong] == []


def test_a_motor_too_weak_to_tell_is_not_checked(tmp_path, capsys):
    actuator = '<actuator><motor joint="elbow" gear="1e-6" ctrlrange="-1 1"/></actuator>'
    assert main(["check", pendulum(tmp_path, actuator)]) == 1
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if line.startswith("control "))
    assert row.endswith("NOT CHECKED")
    assert "NOT CHECKED by control: rounding" in printed
    assert "WRONG" not in printed and "right" not in printed


def test_a_strong_motor_is_moved_by_shares_of_its_range(tmp_path):
    """Forces of 1e6: a step of 1e-5 would drown in rounding."""
    actuator = '<actuator><motor joint="elbow" gear="1e-6" ctrlrange="-1e6 1e6"/></actuator>'
    assert main(["check", pendulum(tmp_path, actuator)]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--worlds", "0"],
        ["--worlds", "-3"],
        ["--steps", "0"],
        ["--substeps", "0"],
        ["--control-dt", "-1"],
        ["--control-dt", "0"],
        ["--control-dt", "nan"],
        ["--seconds", "nan"],
        ["--seconds", "-1"],
        ["--tolerance", "nan"],
        ["--tolerance", "inf"],
        ["--tolerance", "0"],
        ["--seed", "99999999999999999999"],
    ],
    ids=" ".join,
)
def test_impossible_settings_are_one_line(wrong, capsys):
    assert main(["check", str(ANT), *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_robot_that_explodes_is_told_apart(capsys):
    """One substep of 1/60 s is too long for contact this stiff: no table, but where it broke."""
    assert main(["check", str(ANT), "--substeps", "1", "--worlds", "2"]) == 2
    assert "raise substeps" in capsys.readouterr().err


def test_a_robot_that_explodes_in_the_last_step_is_told_apart(capsys):
    """The motion before it is empty, so that the step to be differentiated is the first to blow up."""
    many = ["--substeps", "1", "--worlds", "2", "--seconds", "0", "--steps", "300"]
    assert main(["check", str(ANT), *many]) == 2
    assert "raise substeps" in capsys.readouterr().err
