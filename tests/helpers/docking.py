"""A toy task whose optimum is known: a sled on a rail is to stand still in the middle.

It is linear and its cost quadratic, so that Riccati's recursion gives the best return from every start, by NumPy alone.
"""

import numpy as np
import torch

from trot import Start, Task

MASS, DAMPING, FORCE, DT, STEPS = 2.0, 0.5, 6.0, 0.1, 24
OFFSET_COST, SPEED_COST, EFFORT_COST = 1.0, 0.1, 0.5

SLED = f"""
<mujoco>
  <worldbody>
    <body name="sled">
      <joint name="rail" type="slide" axis="1 0 0" damping="{DAMPING}"/>
      <geom type="sphere" size="0.1" mass="{MASS}" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="{FORCE}" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


class Docking(Task):
    """Stand still in the middle of the rail."""

    robot = SLED
    start = Start(joint_noise=0.5, velocity_noise=0.5)
    control_dt = DT
    substeps = 1
    episode_length = STEPS

    def measure(self, state):
        return state

    def observation(self, measured, previous_action):
        return {"offset": measured.joint_q, "speed": measured.joint_qd}

    def reward_terms(self, measured, action):
        return {
            "offset": -OFFSET_COST * measured.joint_q.square(),
            "speed": -SPEED_COST * measured.joint_qd.square(),
            "effort": -EFFORT_COST * action.square(),
        }


def best_policy():
    """Gains K[t] of the best action -K[t] @ (offset, speed), and P: the best return is -start @ P @ start."""
    # v' = v + DT (FORCE u - DAMPING v) / MASS, x' = x + DT v'
    speed = np.array([0.0, 1 - DT * DAMPING / MASS])
    a = np.array([[1.0, 0.0] + DT * speed, speed])
    b = DT * FORCE / MASS * np.array([[DT], [1.0]])
    cost = np.diag([OFFSET_COST, SPEED_COST])
    p, gains = np.zeros((2, 2)), []
    for _ in range(STEPS):
        # What comes after a step is paid for by the state that it leads to.
        after = cost + p
        gain = np.linalg.solve(EFFORT_COST * np.eye(1) + b.T @ after @ b, b.T @ after @ a)
        p = a.T @ after @ (a - b @ gain)
        gains.append(gain)
    return gains[::-1], p


def best_return(start):
    """(worlds,) from starts (worlds, 2)."""
    _, p = best_policy()
    return -np.einsum("wi,ij,wj->w", start, p, start)


def best_actions(observation, step):
    gains, _ = best_policy()
    return -observation @ torch.tensor(gains[step].T, dtype=observation.dtype)
