"""The end of a step: clocks, falls and faults are counted, and episodes that are done begin anew.

On CUDA it is one kernel each way, on the CPU PyTorch's operations, of which most steps there need few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trot.envs.start_store import StartStore
from trot.envs.step_end_kernel import CHOSEN, RECORDED, end_in_one_kernel
from trot.envs.worlds import Columns, Worlds


@dataclass(frozen=True, eq=False)
class Ending:
    """What a step has made of the worlds."""

    ended: Worlds
    """Behind the step, but for clock, faults and last_fault, which are those before it."""
    record: Mapping[str, Tensor]
    """What the step began from, RECORDED: what is remembered of a fault."""
    sound: Tensor
    all_sound: bool
    fallen: Tensor | None
    """As the task tells it."""


@dataclass(frozen=True, eq=False)
class Ended:
    """How it ended."""

    worlds: Worlds
    """What the next step begins from."""
    terminated: Tensor
    """(num_worlds, 1)"""
    truncated: Tensor
    """(num_worlds, 1)"""
    joint_q: Tensor
    """As the step left it, and so are the following: whoever takes them from here has gradients added up in one go."""
    joint_qd: Tensor
    observation: Tensor


class StepEnd:
    """For the worlds of one environment."""

    def __init__(self, columns: Mapping[str, Columns], episode_length: int, zero: Tensor) -> None:
        self.in_one_kernel = zero.is_cuda
        self._zero, self._length = zero, episode_length
        # As tensors, because PyTorch takes three times as long to add or compare a plain number, and would bring it to
        # the GPU each time.
        self._no_step, self._one_step, self._episode_length = (
            torch.tensor(value, device=zero.device) for value in (0, 1, episode_length)
        )
        self._chosen = tuple(name for name in CHOSEN if columns[name].width)

    def __call__(self, ending: Ending, store: StartStore) -> Ended:
        if self.in_one_kernel and store.one_each:
            fallen = None if ending.fallen is None else ending.fallen.reshape(-1, 1)
            worlds, terminated, truncated, seen = end_in_one_kernel(
                ending.ended, ending.record, ending.sound, fallen, store.fresh(ending.sound), self._chosen, self._length
            )
            return Ended(worlds, terminated, truncated, *seen)
        worlds, fault = ending.ended, ~ending.sound
        terminated = fault if ending.fallen is None else fault | ending.fallen.reshape(-1, 1)
        clock = worlds.clock + self._one_step
        truncated = clock >= self._episode_length
        counted = {"clock": clock}
        if not ending.all_sound:
            counted |= {"faults": worlds.faults + fault, "last_fault": _remembered(ending)}
        worlds = replace(worlds, **counted)
        done = terminated | truncated
        begun = self.begin(done, worlds, store) if store.some_begin(done) else worlds
        return Ended(begun, terminated, truncated, worlds.joint_q, worlds.joint_qd, worlds.observation)

    def begin(self, done: Tensor, ended: Worlds, store: StartStore) -> Worlds:
        """Fresh starts where an episode is done; elsewhere nothing changes, gradients included."""
        start = store.fresh(done)
        begun = {
            name: torch.where(done, getattr(start, name, self._zero), getattr(ended, name)) for name in self._chosen
        }
        return replace(ended, clock=torch.where(done, self._no_step, ended.clock), **begun)

    def under_way(self, worlds: Worlds) -> Tensor:
        """(num_worlds, 1) where an episode has begun."""
        return worlds.clock > self._no_step


@torch.no_grad()
def _remembered(ending: Ending) -> Tensor:
    began = torch.cat([ending.record[name] for name in RECORDED], dim=1)
    return torch.where(ending.sound, ending.ended.last_fault, began)
