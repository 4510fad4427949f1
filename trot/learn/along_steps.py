"""Kernels that go along the steps of a window, where PyTorch would take several operations for each step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.native_rows import RowKernels, RowProgram

_ALL = ("members", "steps", "worlds")
_WINDOW = ArgumentGroup("Window", (Argument("steps", "int", "of the window"), Argument("worlds", "int", "of a member")))
_REWARD = Argument("reward", "const Scalar*", "of each step", _ALL)
_DONE = Argument("done", "const bool*", "whether an episode ended there", _ALL)
_COLLECTED = ArgumentGroup(
    "Collected",
    (
        _REWARD,
        _DONE,
        Argument("so_far", "const Scalar*", "before the window", ("members", "worlds")),
        Argument("collected", "Scalar*", "up to each step", _ALL),
        Argument("carried", "Scalar*", "behind the window", ("members", "worlds")),
    ),
)
_AVERAGED = ArgumentGroup(
    "Averaged",
    (
        _REWARD,
        _DONE,
        Argument("next_value", "const Scalar*", "after each step", _ALL),
        Argument("targets", "Scalar*", "of each step", _ALL),
        Argument("gammas", "const Scalar*", "null: one for all", ("members",), optional=True),
        Argument("lambdas", "const Scalar*", "null: one for all", ("members",), optional=True),
        Argument("gamma", "Scalar", "of all members"),
        Argument("lam", "Scalar", "of all members"),
    ),
)
_kernels = RowKernels(
    Path(__file__).parent / "kernels" / "along_steps.h",
    {
        "collect": RowProgram((_WINDOW, _COLLECTED), "trot::collect(window, collected, row)"),
        "average_returns": RowProgram((_WINDOW, _AVERAGED), "trot::average_returns(window, averaged, row)"),
    },
    # A world's steps follow each other, and there is nothing to share.
    most_lanes=1,
)


@torch.no_grad()
def collect(reward: Tensor, done: Tensor, so_far: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of rewards that begin anew behind each end of an episode, and those behind the window.

    (steps, worlds), and so_far (worlds,); all with an axis of members in front where there are some.
    """
    collected = torch.empty_like(reward, memory_format=torch.contiguous_format)
    so_far = so_far.contiguous()
    carried = torch.empty_like(so_far)
    tensors = {
        "reward": _three(reward),
        "done": _three(done),
        "so_far": so_far.view(-1, so_far.shape[-1]),
        "collected": _three(collected),
        "carried": carried.view(-1, carried.shape[-1]),
    }
    _launch("collect", reward, {}, tensors)
    return collected, carried


@torch.no_grad()
def average_returns(
    reward: Tensor, next_value: Tensor, done: Tensor, gamma: float | Tensor, lam: float | Tensor
) -> Tensor:
    """returns.td_lambda(), which says what it is."""
    targets = torch.empty_like(reward, memory_format=torch.contiguous_format)
    tensors = {
        "reward": _three(reward),
        "done": _three(done),
        "next_value": _three(next_value),
        "targets": _three(targets),
        "gammas": gamma if isinstance(gamma, Tensor) else None,
        "lambdas": lam if isinstance(lam, Tensor) else None,
    }
    numbers = {name: 0.0 if isinstance(one, Tensor) else one for name, one in (("gamma", gamma), ("lam", lam))}
    _launch("average_returns", reward, numbers, tensors)
    return targets


def _three(window: Tensor) -> Tensor:
    """With an axis of members."""
    return window.detach().contiguous().view(-1, *window.shape[-2:])


def _launch(which: str, like: Tensor, numbers: Mapping[str, float], tensors: Mapping[str, Tensor | None]) -> None:
    *front, steps, worlds = like.shape
    members = front[0] if front else 1
    _kernels.launch(
        which, like, members * worlds, {"members": members, "steps": steps, "worlds": worlds, **numbers}, tensors
    )  # fmt: skip
