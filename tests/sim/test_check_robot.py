"""`trot check`, as a user meets it."""

from pathlib import Path

import pytest

from trot.cli import main
from trot.sim import check_robot

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
    """500 steps of an undamped double pendulum amplify a difference until no two agree."""
    arguments = ["--steps", "500", "--worlds", "2", "--seconds", "3"]
    assert main(["check", pendulum(tmp_path), *arguments]) == 1
    assert "NOT CHECKED" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--worlds", "0"], ["--substeps", "0"], ["--control-dt", "-1"]])
def test_impossible_settings_are_one_line(wrong, capsys):
    assert main(["check", str(ANT), *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_robot_that_explodes_is_told_apart(capsys):
    """One substep of 1/60 s is too long for contact this stiff: no table, but where it broke."""
    assert main(["check", str(ANT), "--substeps", "1", "--worlds", "2"]) == 2
    assert "raise substeps" in capsys.readouterr().err
