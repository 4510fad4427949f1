"""A policy on the CPU from observations to actions in one kernel each way, for the steps of one window.

Normalisation, network, mirror, noise and tanh: a dozen of PyTorch's operations otherwise, each of which waits for the
one before. What it computes is what the policy does, to rounding; `kernels/shared_policy.h` has it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trot.envs.mirror import Mirror
from trot.learn.frozen_network import Surroundings
from trot.learn.networks import Policy
from trot.learn.shared_network import SharedNetwork


@functools.cache
def _places(mirrored: tuple[int, ...]) -> Tensor:
    return torch.tensor(mirrored, dtype=torch.int32)


class SharedPolicy:
    """A policy whose weights stand still, and the normalisation before it."""

    def __init__(self, network: SharedNetwork, around: Surroundings, mirror: Mirror | None) -> None:
        self.network, self.members = network, network.members or 1
        self.deviation = around.deviation
        self._passes = 1 if mirror is None else 2
        self._around = {
            "shift": around.shift,
            "scale": around.scale,
            "mirrored_observation": None if mirror is None else _places(mirror.observation),
            "mirrored_action": None if mirror is None else _places(mirror.action),
        }

    @classmethod
    def of(cls, policy: Policy, network: SharedNetwork, shift: Tensor, scale: Tensor) -> SharedPolicy | None:
        """None where the kernels do not know what a policy does, or where observations are not normalised."""
        around = Surroundings.of(policy, shift, scale, knows_mirrors=True)
        return None if around is None else cls(network, around, policy.mirror)

    def __call__(self, observations: Tensor, noise: Tensor) -> Tensor:
        """The tanh of a sample, (rows, observations) to (rows, actions); behind an axis of members where there are."""
        rows = observations.reshape(self.members, -1, observations.shape[-1])
        around = noise.reshape(self.members, -1, noise.shape[-1])
        actions: Tensor = _Acting.apply(self, rows, around)  # type: ignore[no-untyped-call]
        return actions.view_as(noise)

    def act(self, observations: Tensor, noise: Tensor) -> Tensor:
        """(members, rows, width) to (members, rows, actions)."""
        actions = torch.empty_like(noise)
        tensors = {"observations": observations, "noise": noise, "actions": actions}
        self._run("run_policy", tensors, {"deviation": self.deviation})
        return actions

    def adjoint(self, observations: Tensor, actions: Tensor, actions_bar: Tensor) -> Tensor:
        """The derivative by the observations."""
        found = torch.empty_like(observations)
        tensors = {
            "observations": observations,
            "actions": actions,
            "actions_bar": actions_bar,
            "observations_bar": found,
        }
        self._run("run_policy_adjoint", tensors, {})
        return found

    def _run(self, program: str, tensors: dict[str, Tensor], constants: dict[str, Tensor]) -> None:
        rows = tensors["observations"].shape[1]
        flat = {name: one.flatten(0, 1) for name, one in tensors.items()}
        self.network.run(program, rows, {**self._around, **constants, **flat}, self._passes)


class _Acting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, policy: SharedPolicy, observations: Tensor, noise: Tensor) -> Tensor:
        observations = observations.contiguous()
        actions = policy.act(observations, noise.contiguous())
        ctx.policy = policy
        # The weights too, so that PyTorch notices when they have changed.
        ctx.save_for_backward(observations, actions, *policy.network.parameters)
        return actions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, actions_bar: Tensor) -> tuple[None, Tensor, None]:
        observations, actions, *_ = ctx.saved_tensors
        return None, ctx.policy.adjoint(observations, actions, actions_bar.contiguous()), None
