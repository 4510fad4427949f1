"""Derivatives that there are none of raise by name, through the simulator's step as through an environment's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

import trot

Step = Callable[[Tensor], Tensor]


def environment_step() -> Step:
    env = trot.make_env("cartpole", 3)
    env.reset()
    return lambda action: env.step(action)[1]


def simulator_step() -> Step:
    model = trot.make_env("cartpole", 3).task.model
    return lambda control: trot.step(model, model.default_state(3), control, 1 / 60, 4).joint_qd


def dual(step: Step, given: Tensor) -> object:
    with forward_ad.dual_level():
        return step(forward_ad.make_dual(given, torch.ones_like(given)))


def second(step: Step, given: Tensor) -> object:
    given.requires_grad_()
    return torch.autograd.grad(step(given).sum(), given, create_graph=True)


UNKNOWN: dict[str, tuple[Callable[[Step, Tensor], object], str]] = {
    "vmap": (lambda step, given: torch.func.vmap(step)(given.expand(2, 3, 1)), r"inside torch\.func"),
    "jvp": (lambda step, given: torch.func.jvp(step, (given,), (given,)), r"inside torch\.func"),
    "jacfwd": (lambda step, given: torch.func.jacfwd(step)(given), r"inside torch\.func"),
    "func.grad": (lambda step, given: torch.func.grad(lambda x: step(x).sum())(given), r"inside torch\.func"),
    "dual numbers": (dual, "no forward-mode derivatives"),
    "double backward": (second, "first derivatives only"),
}


@pytest.mark.parametrize("make", [environment_step, simulator_step])
@pytest.mark.parametrize("name", UNKNOWN)
def test_it_is_refused_by_name(name: str, make: Callable[[], Step]) -> None:
    call, message = UNKNOWN[name]
    with pytest.raises(NotImplementedError, match=rf"trot\.step .*{message}"):
        call(make(), torch.zeros(3, 1))
