"""A task's methods called once, in two worlds, before the first step: what is wrong with them is named here."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from trot.envs.situation import Situation, as_columns, widths_of
from trot.envs.source_line import task_error
from trot.envs.task import Task, task_control
from trot.sim.state import State

WORLDS = 2


@dataclass(frozen=True)
class Layout:
    """What a task returns, found by asking it."""

    observation: dict[str, slice]
    """Which columns of the observation each part takes."""
    memory: dict[str, int]
    """How many columns each part of the memory has, in their order."""
    nominal_memory: Tensor
    """(1, columns)"""


@torch.no_grad()
def dry_run(task: Task[Any], nominal: State, zero: Tensor) -> Layout:
    """Raises ValueError where the task returns something of the wrong shape, dtype or device."""
    expect = _Expect(task, zero)
    if not isinstance(task.num_actions, Integral) or task.num_actions < 0:
        raise task_error(task, "num_actions", f"must be a whole number of at least 0, not {task.num_actions!r}")
    memory = _drawn_memory(task, expect)
    activation = None if nominal.activation is None else nominal.activation.repeat(WORLDS, 1)
    joint_q, joint_qd = nominal.joint_q.repeat(WORLDS, 1), nominal.joint_qd.repeat(WORLDS, 1)
    state = Situation(joint_q, joint_qd, memory, activation=activation)
    action = zero.new_zeros(WORLDS, task.num_actions)
    measured = task.measure(state)
    observation = expect.parts(task.observation(measured, action), "observation", None)
    expect.parts(task.reward_terms(measured, action), "reward_terms", 1)
    control = task_control(task, action, state)
    expect.tensor(control, "control()", task.model.num_controls, (zero.dtype,))
    fallen = task.fallen(measured)
    if fallen is not None:
        expect.tensor(fallen, "fallen()", 1, (torch.bool,))
    looks_fallen = task.looks_fallen(as_columns(observation))
    if looks_fallen is not None:
        expect.tensor(looks_fallen, "looks_fallen()", 1, (torch.bool,))
    _check_next_memory(task.next_memory(measured, action), widths_of(memory), expect)
    rows = torch.cat([zero.new_zeros(WORLDS, 0), *memory.values()], dim=1)
    return Layout(_columns(observation), widths_of(memory), rows[:1].clone())


def _drawn_memory(task: Task[Any], expect: _Expect) -> dict[str, Tensor]:
    """The nominal memory, as columns; what is drawn by chance must be alike."""
    chance = torch.Generator(expect.zero.device).manual_seed(0)
    drawn = []
    for generator in (None, chance):
        parts = task.draw_memory(WORLDS, generator, expect.zero)
        expect.named(parts, "draw_memory")
        for name, part in parts.items():
            expect.tensor(part, f"draw_memory()['{name}']", None, (expect.zero.dtype,))
        drawn.append(as_columns(parts))
    nominal, random = (widths_of(parts) for parts in drawn)
    if list(nominal.items()) != list(random.items()):
        raise task_error(
            task,
            "draw_memory()",
            f"gives {nominal} without a generator and {random} with one, names and widths; the two must agree",
        )
    return drawn[0]


def _check_next_memory(parts: Any, widths: dict[str, int], expect: _Expect) -> None:
    expect.named(parts, "next_memory")
    for name, part in parts.items():
        if name not in widths:
            raise expect.wrong(f"next_memory()['{name}']", "is not in what draw_memory() gives; draw it there")
        expect.tensor(part, f"next_memory()['{name}']", widths[name], (expect.zero.dtype,))


def _columns(parts: dict[str, Tensor]) -> dict[str, slice]:
    layout, begin = {}, 0
    for name, width in widths_of(as_columns(parts)).items():
        layout[name] = slice(begin, begin + width)
        begin += width
    return layout


@dataclass(frozen=True)
class _Expect:
    """What the methods of a task may return."""

    task: Task[Any]
    zero: Tensor

    def wrong(self, what: str, problem: str) -> ValueError:
        return task_error(self.task, what, problem)

    def parts(self, parts: Any, method: str, width: int | None) -> dict[str, Tensor]:
        """Named parts that are joined into one tensor; at least one."""
        self.named(parts, method)
        if not parts:
            raise self.wrong(f"{method}()", "is empty")
        # Yes or no and whole numbers become floating point where they are joined with it.
        whole = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
        for name, part in parts.items():
            self.tensor(part, f"{method}()['{name}']", width, (self.zero.dtype, *whole))
        if not any(part.is_floating_point() for part in parts.values()):
            raise self.wrong(f"{method}()", f"has only yes or no and whole numbers; make one {self.zero.dtype}")
        checked: dict[str, Tensor] = parts
        return checked

    def named(self, parts: Any, method: str) -> None:
        if not isinstance(parts, dict):
            raise self.wrong(f"{method}()", f"must be a dictionary of tensors, not {type(parts).__name__}")

    def tensor(self, tensor: Any, what: str, width: int | None, dtypes: tuple[torch.dtype, ...]) -> None:
        wanted = f"(num_worlds, {'width' if width is None else width})"
        if not isinstance(tensor, Tensor):
            raise self.wrong(what, f"must be a tensor {wanted}, not {type(tensor).__name__}")
        found = (*tensor.shape, 1) if tensor.dim() == 1 else tuple(tensor.shape)
        if len(found) != 2 or found[0] != WORLDS or width not in (None, found[1]):
            shown = ", ".join("num_worlds" if size == WORLDS else str(size) for size in tensor.shape)
            raise self.wrong(what, f"must be {wanted}, not ({shown})")
        if tensor.dtype not in dtypes or tensor.device != self.zero.device:
            raise self.wrong(what, f"must be {dtypes[0]} on {self.zero.device}, not {tensor.dtype} on {tensor.device}")
