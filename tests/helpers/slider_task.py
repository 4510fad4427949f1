"""A task whose numbers are worked out by hand: a cart of 2 kg on a level rail, a motor of 1 N, a step of 0.1 s."""

from __future__ import annotations

from trot.envs.start import Start
from trot.envs.task import Task

CART = """
<mujoco>
  <worldbody>
    <body name="cart" pos="0 0 1">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom type="box" size="0.1 0.1 0.1" mass="2"/>
    </body>
  </worldbody>
  <actuator><motor joint="rail" ctrlrange="-1 1"/></actuator>
</mujoco>"""

BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="ball" pos="0 0 {height}">
      <freejoint/>
      <geom type="box" size="0.1 0.1 0.1" mass="3"/>
    </body>
  </worldbody>
</mujoco>"""


class Rail(Task):
    """Paid for where the cart is, and for how it moves."""

    robot = CART
    control_dt, substeps, episode_length = 0.1, 1, 5
    start = Start()

    def measure(self, state):
        return state

    def observation(self, measured, previous_action):
        return {"q": measured.joint_q, "qd": measured.joint_qd}

    def reward_terms(self, measured, action):
        return {"place": measured.joint_q[:, :1], "motion": 10 * measured.joint_qd[:, :1]}


class HighBox(Rail):
    """A free box of 3 kg, high above the ground."""

    robot = BALL.format(height=100)


class LowBox(Rail):
    """The same, on the ground."""

    robot = BALL.format(height=0.1)
    substeps, episode_length = 16, 100
