"""The drop test: falls and landings worked by hand."""

from __future__ import annotations

import math

import pytest
from numpy.testing import assert_allclose

from trot.sim.drop_test import drop_test
from trot.sim.errors import NonFiniteError
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.settled_start import CLEARANCE

DT = 1 / 60

BALL = """
<mujoco>
  <worldbody>
    {ground}
    <body name="ball" pos="0 0 {height}">
      <freejoint name="root"/>
      <geom name="ball" size="0.1" mass="2" user="{stiffness} 0 0"/>
    </body>
  </worldbody>
</mujoco>"""


def ball(height: float, ground: bool = True, stiffness: float = 2e4) -> Model:
    plane = '<geom type="plane" size="0 0 1"/>' if ground else ""
    return load_model(BALL.format(height=height, ground=plane, stiffness=stiffness))


ARM = """
<mujoco>
  <worldbody>
    <body>
      <joint name="shoulder" axis="0 1 0" {joint}/>
      <geom size="0.1" pos="0.5 0 0" mass="1"/>
    </body>
  </worldbody>
  <actuator>{actuator}</actuator>
</mujoco>"""


def test_what_falls_freely_falls_for_two_seconds() -> None:
    drop = drop_test(ball(0, ground=False), DT, 4)
    assert_allclose(drop.largest_speed, 2 * 9.81, rtol=1e-12)
    assert (drop.largest_dof, drop.last_dof, drop.start.lifted, drop.depth) == ("root.z", "root.z", 0, 0)
    assert drop.passes and "still moves at the end (root.z)" in drop.sentence()


def test_a_robot_in_the_ground_is_lifted_out_first() -> None:
    """And sinks in by the root of k d^2 / 2 = m g (c + d) from that clearance."""
    drop = drop_test(ball(-0.3), DT, 64)
    assert_allclose(drop.start.lifted, 0.4 + CLEARANCE, rtol=1e-9)
    sink = 2 * 9.81 / 2e4
    assert_allclose(drop.depth, sink + math.sqrt(sink**2 + 2 * sink * CLEARANCE), rtol=0.02)
    assert drop.deepest_shape == "ball" and drop.passes


def test_energy_that_comes_from_nowhere_fails() -> None:
    """A substep of 2.5 / omega: what lands leaves faster."""
    drop = drop_test(ball(0.2, stiffness=2e6), DT, math.ceil(DT * math.sqrt(2e6 / 2) / 2.5))
    assert not drop.passes and "ENERGY GROWS" in drop.sentence()
    assert "raise substeps" in (drop.advice() or "")


def test_what_blows_up_raises() -> None:
    with pytest.raises(NonFiniteError, match="'shoulder'"):
        drop_test(load_model(ARM.format(joint='damping="1e6"', actuator="")), DT, 1)


def test_servos_hold_the_pose() -> None:
    """The weight of 1 kg at 0.5 m bends the servo by m g l / kp / gear^2, and its own damping brings it to rest."""
    servo = '<position joint="shoulder" gear="2" kp="1e3" kv="50"/>'
    drop = drop_test(load_model(ARM.format(joint='ref="30"', actuator=servo)), DT, 16)
    assert drop.held and drop.passes
    assert drop.last_speed < 1e-3 and "comes to rest" in drop.sentence()
    assert drop.largest_speed < 0.5 * 9.81 / (4 * 50) * 1.1


def test_a_limp_arm_swings_to_the_speed_of_its_fall() -> None:
    """From level it has m g l = I w^2 / 2 below its pivot; the ball's own inertia is 2/5 m r^2."""
    drop = drop_test(load_model(ARM.format(joint="", actuator="")), DT, 64)
    inertia = 0.5**2 + 0.4 * 0.1**2
    assert_allclose(drop.largest_speed, math.sqrt(2 * 9.81 * 0.5 / inertia), rtol=0.01)
    assert not drop.held and drop.energy_growth is not None and drop.energy_growth < 0.01


def test_a_motor_that_cannot_rest_is_not_judged_by_energy() -> None:
    motor = '<motor joint="shoulder" ctrlrange="50 60"/>'
    drop = drop_test(load_model(ARM.format(joint='damping="1"', actuator=motor)), DT, 16)
    assert drop.energy_growth is None and "energy not judged" in drop.sentence()


def test_a_joint_beyond_its_limit_begins_at_it() -> None:
    """A limit 30 degrees away, of 1e3 N m/rad, would throw the arm at some 30 rad/s; from it, the arm only falls."""
    model = load_model(ARM.format(joint='range="30 60" user="1e3"', actuator=""))
    drop = drop_test(model, DT, 64)
    assert drop.start.turned == ("shoulder",)
    assert_allclose(drop.start.joint_q, [math.radians(30)])
    assert drop.largest_speed < math.sqrt(2 * 9.81 * 0.5 / 0.25)
    assert drop.passes and "joint 'shoulder' moved to the nearest limit" in drop.sentence()


def test_springs_pressed_at_the_start_may_give_back_what_they_have() -> None:
    """A coupling that is half a radian off holds k / 2 0.5^2, far more than the weight gives."""
    text = ARM.format(joint="", actuator="").replace(
        "<actuator>", '<equality><joint joint1="shoulder" polycoef="0.5" solref="-1e4 -1"/></equality><actuator>'
    )
    drop = drop_test(load_model(text), DT, 64)
    assert drop.largest_speed > 30
    assert drop.passes
