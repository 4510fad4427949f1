"""A task whose robot gets servos when it is loaded: from a URDF to motions, gradients and films."""

from pathlib import Path
from typing import ClassVar

import pytest
import torch

import trot
from trot.view.motion.frames import record_env

LEGS = [f"{side}_{joint}" for side in ("left", "right") for joint in ("hip", "knee", "ankle")]


class Crouch(trot.Task):
    """The planar walker of the examples, with servos in its legs and none in its root."""

    robot = Path(__file__).parents[2] / "examples" / "walker" / "walker.urdf"
    ground = True
    substeps = 32
    robot_options: ClassVar = {"actuators": "position", "kp": dict.fromkeys(LEGS, 300.0), "kd": 10.0}
    start = trot.Start(joint_q=(0.0, -0.01, 0.0, *[0.3, -0.6, 0.3] * 2))

    def control(self, action):
        return action * 0.1 + action.new_tensor([0.3, -0.6, 0.3] * 2)

    def measure(self, state):
        return state

    def observation(self, measured, previous_action):
        return {"q": measured.joint_q}

    def reward_terms(self, measured, action):
        return {"height": measured.joint_q[:, 1:2]}


def test_servos_hold_the_legs():
    env = trot.make_env(Crouch, num_worlds=2, dtype=torch.float64)
    assert env.task.model.actuator_name == tuple(LEGS)
    env.reset()
    begin = env.state.joint_q[:, 3:].clone()
    action = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True)
    for _ in range(10):
        reward = env.step(action)[1]
    assert (env.state.joint_q[:, 3:] - begin).abs().max() < 0.15
    (gradient,) = torch.autograd.grad(reward.sum(), action)
    assert gradient.isfinite().all() and (gradient != 0).all()


def test_a_film_keeps_the_servos():
    env = trot.make_env(Crouch, num_worlds=1)
    robot = record_env(env, lambda observation: torch.zeros(1, 6), 2).robot
    model = trot.load_model(robot)
    assert model.num_servos == 6 and model.servo_upper.max() < 1e3


def test_the_strength_of_servos_is_not_random():
    with pytest.raises(ValueError, match="'left_hip' is no force: it is a servo"):
        trot.make_env(Crouch, num_worlds=2, randomize=trot.Randomize(motor_strength=(0.5, 1.5))).reset()
