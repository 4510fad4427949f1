"""`trot check` and `trot demo`, as a user meets them."""

from pathlib import Path

import pytest

from trot.cli import main
from trot.demo import run_demo
from trot.sim import check

ROBOTS = Path(__file__).parent / "robots"
ANT = Path(__file__).parents[1] / "trot" / "envs" / "assets" / "ant.xml"


def test_a_right_gradient_passes_and_every_input_is_listed(capsys):
    assert main(["check", str(ROBOTS / "every_joint.xml"), "--worlds", "4"]) == 0
    printed = capsys.readouterr().out
    for name in ("joint_q", "joint_qd", "control", "body_mass", "contact_stiffness", "contact_damping", "friction"):
        assert f"\n{name} " in printed
    assert "gradients are right" in printed


@pytest.mark.parametrize("worst", ["hip_1", "ankle_3"])
def test_a_wrong_gradient_fails_and_the_worst_dof_is_named(monkeypatch, capsys, worst):
    """One coordinate of one gradient is a thousandth off in every world: the smallest error anybody would notice."""
    exact = check.tangent_gradient

    def spoilt(model, joint_q, gradient):
        result = exact(model, joint_q, gradient)
        result[:, model.dof_name.index(worst)] *= 1.001
        return result

    monkeypatch.setattr(check, "tangent_gradient", spoilt)
    assert main(["check", str(ANT), "--worlds", "4"]) == 1
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("joint_q "))
    assert worst in row
    assert "FAILS" in row


def test_a_robot_that_explodes_is_told_apart(capsys):
    """One substep of 1/60 s is too long for contact this stiff: no table, but where it broke."""
    assert main(["check", str(ANT), "--substeps", "1", "--worlds", "2"]) == 2
    assert "raise substeps" in capsys.readouterr().err


def test_the_demo_climbs(capsys):
    run_demo(worlds=16, iterations=10)
    *_, last = capsys.readouterr().out.splitlines()
    _, start, _, _, reached, *_ = last.split()
    assert float(reached) > float(start) + 0.1
