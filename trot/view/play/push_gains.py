"""The gradient of the return by the robot's velocities, as arrows on its bodies.

One backward pass over the next window of steps gives g, the return's gradient by joint_qd. A push of p newton-seconds
on a body's centre of mass changes joint_qd by M^-1 J^T p, so the return changes by (J M^-1 g) p: an arrow per body,
along which a push would help most.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from trot.envs.env import Env
from trot.learn.play import Act
from trot.sim.model import Floats
from trot.sim.state import State
from trot.view.play.inertia import Inertia

WINDOW = 32
"""Steps, as many as SHAC learns by."""


def push_gains(env: Env, act: Act, inertia: Inertia, steps: int = WINDOW) -> Floats:
    """(bodies that move, 3) what the return of the next steps gains per newton-second on each, in world axes.

    The environment itself stays where it is.
    """
    ahead, worlds = copy.deepcopy(env), env.worlds.detach()
    joint_qd = worlds.joint_qd.clone().requires_grad_()
    with torch.enable_grad():
        observation = ahead.place(State(worlds.joint_q, joint_qd), worlds.previous_action)
        total = joint_qd.new_zeros(())
        for _ in range(steps):
            observation, reward, terminated, truncated, _ = ahead.step(act(observation).clamp(-1, 1))
            total = total + reward.sum()
            if bool(terminated | truncated):
                break
        (gradient,) = torch.autograd.grad(total, joint_qd, allow_unused=True)
    if gradient is None:
        gradient = torch.zeros_like(joint_qd)
    inertia.at(worlds.joint_q[0].double().numpy())
    answer = inertia.divided(gradient.double().numpy())[0]
    return np.array([inertia.jacobian(body, inertia.centre(body)) @ answer for body in inertia.bodies.tolist()])
