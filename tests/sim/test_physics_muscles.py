"""Muscles between two carts, against closed forms of mechanics (see convergence.py)."""

from __future__ import annotations

import numpy as np
from convergence import ROUNDING, acceleration, assert_converges, final
from numpy.testing import assert_allclose

from trot.sim.load import load_model

# Two carts on parallel rails along x, 0.3 m apart in y and 0.4 m in z.
CARTS = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body name="low">
      <joint type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>
      <site name="low_back" pos="-0.7 0.5 0.1"/>
      <site name="low" pos="0.1 0 0"/>
    </body>
    <body name="high" pos="0 0.3 0.4">
      <joint type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="3" diaginertia="1 1 1"/>
      <site name="high"/>
      <site name="high_back" pos="0.4 -0.2 0.6"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="muscle">
      <site site="low_back"/>
      <site site="low"/>
      <site site="high"/>
      <site site="high_back"/>
    </spatial>
  </tendon>
  <actuator>
    <motor tendon="muscle" gear="-50" ctrlrange="{range}"/>
  </actuator>
</mujoco>"""


def test_muscle_pulls_along_its_line():
    """Each end feels peak * activation along the line to the other; of it the rail leaves the part along x.

    The parts of the tendon within one body do nothing, and nothing pushes: activation counts from 0 to 1.
    """
    model = load_model(CARTS.format(range="-1 1"))
    for low, high in ((0.0, 2.0), (0.3, -1.2), (-4.0, 0.5)):
        span = np.array([high - (low + 0.1), 0.3, 0.4])
        along = span[0] / np.linalg.norm(span)
        for activation, tension in ((0.3, 15.0), (1.0, 50.0), (2.0, 50.0), (0.0, 0.0), (-0.4, 0.0)):
            expected = tension * along * np.array([1 / 2, -1 / 3])
            assert_allclose(acceleration(model, [low, high], [0, 0], [activation]), expected, atol=50 * ROUNDING)


def test_muscle_conserves_momentum_and_does_work():
    """The carts keep 2 v1 + 3 v2, to rounding, and gain peak * activation * (how much shorter the muscle is)."""
    model, activation, duration = load_model(CARTS.format(range="0 1")), 0.6, 0.3
    q, qd = np.array([0.0, 1.5]), np.array([0.4, -0.2])

    def length(q):
        return np.linalg.norm([q[1] - q[0] - 0.1, 0.3, 0.4])

    def gain(count):
        state = final(model, q, qd, duration, count, [activation])
        assert_allclose([2, 3] @ state[2:], [2, 3] @ qd, rtol=ROUNDING)
        gained = [1, 1.5] @ (state[2:] ** 2 - qd**2)
        return gained - 50 * activation * (length(q) - length(state[:2]))

    assert_converges(gain, 0, 50 * activation * 6.0, duration)  # the tension times the speed of closing
