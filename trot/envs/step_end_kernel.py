"""The end of a step as one kernel each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trot.envs.worlds import Starts, Worlds
from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.native_rows import RowKernels, RowProgram

DRAWN = ("joint_q", "joint_qd", "observation", "parameter", "strength", "memory", "disturbance")
"""Fields of Worlds that a fresh start has numbers for."""
CHOSEN = (*DRAWN, "previous_action", "activation", "past_actions")
"""Those that begin anew with an episode, beside the clock: the others with zeros."""
SEEN = ("joint_q", "joint_qd", "observation")
"""Those that are looked at as the step left them, by rewards and by what values the last observation."""
RECORDED = ("joint_q", "joint_qd", "action", "parameter", "strength", "activation", "memory")
"""What is remembered of a fault, side by side."""

_WIDTHS = ArgumentGroup(
    "Widths", tuple(Argument(f"{name}_width", "int", "numbers in a row") for name in (*CHOSEN, "action", "last_fault"))
)


def _rows(name: str, width: str, written: bool = False, optional: bool = True) -> Argument:
    kind, meaning = ("Scalar*", "written") if written else ("const Scalar*", "read")
    return Argument(name, kind, meaning, ("rows", f"{width}_width"), optional)


def _flags(*names: str, kind: str, optional: bool = False) -> list[Argument]:
    return [Argument(name, kind, "a column", ("rows", "one"), optional) for name in names]


_ENDED = ArgumentGroup(
    "Ended",
    (
        *(_rows(f"ended_{name}", name) for name in CHOSEN),
        *(_rows(f"fresh_{name}", name) for name in DRAWN),
        *(_rows(f"begun_{name}", name, written=True) for name in CHOSEN),
        *(_rows(f"from_{name}", name) for name in RECORDED),
        _rows("last_fault", "last_fault", optional=False),
        _rows("next_last_fault", "last_fault", written=True, optional=False),
        *_flags("sound", kind="const bool*"),
        *_flags("fallen", kind="const bool*", optional=True),
        *_flags("terminated", "truncated", "done", kind="bool*"),
        *_flags("clock", "faults", kind="const long long*"),
        *_flags("next_clock", "next_faults", kind="long long*"),
        Argument("episode_length", "int", "steps"),
    ),
)
_BARS = ArgumentGroup(
    "Bars",
    (
        *(_rows(f"begun_{name}_bar", name) for name in CHOSEN),
        *(_rows(f"seen_{name}_bar", name) for name in SEEN),
        *(_rows(f"ended_{name}_bar", name, written=True) for name in CHOSEN),
        *_flags("done", kind="const bool*"),
    ),
)


def _header_macros() -> str:
    """What the header does for each of the fields."""
    fresh = {name: f"e.fresh_{name}" if name in DRAWN else "nullptr" for name in CHOSEN}
    seen = {name: f"b.seen_{name}_bar" if name in SEEN else "nullptr" for name in CHOSEN}
    lines = {
        "REMEMBER_PARTS": [
            f"remember(e.from_{name}, w.{name}_width, record, at, row, lane, lanes);" for name in RECORDED
        ],
        "CHOOSE_FIELDS": [
            f"choose(done, {fresh[name]}, e.ended_{name}, e.begun_{name}, row, w.{name}_width, lane, lanes);"
            for name in CHOSEN
        ],
        "CHOOSE_FIELDS_ADJOINT": [
            f"choose_adjoint(done, b.begun_{name}_bar, {seen[name]}, b.ended_{name}_bar, row, w.{name}_width, "
            "lane, lanes);"
            for name in CHOSEN
        ],
    }
    return "".join(f"#define {name} {' '.join(calls)}\n" for name, calls in lines.items())


_kernels = RowKernels(
    Path(__file__).parent / "step_end.h",
    {
        "end_step": RowProgram((_WIDTHS, _ENDED), "trot::end_step(widths, ended, row, lane, lanes)"),
        "end_step_adjoint": RowProgram((_WIDTHS, _BARS), "trot::end_step_adjoint(widths, bars, row, lane, lanes)"),
    },
    before=_header_macros(),
)


def end_in_one_kernel(
    ended: Worlds,
    record: Mapping[str, Tensor],
    sound: Tensor,
    fallen: Tensor | None,
    fresh: Starts,
    chosen: Sequence[str],
    episode_length: int,
) -> tuple[Worlds, Tensor, Tensor, tuple[Tensor, ...]]:
    """What the next step begins from, and where the episode was terminated and truncated, (num_worlds, 1) both.

    And what the step left of SEEN: who takes it from here has its gradient added up by the kernel.

    `chosen` are those of CHOSEN that the worlds have numbers of; `fresh` is a start for each world.
    """
    starts = fresh.tensors()
    counted = {
        "sound": sound,
        "fallen": None if fallen is None else fallen.contiguous(),
        "clock": ended.clock,
        "faults": ended.faults,
        "last_fault": ended.last_fault,
        **{f"fresh_{name}": _if_any(starts[name]) for name in DRAWN},
        **{f"from_{name}": _if_any(record[name].detach()) for name in RECORDED},
    }
    widths = {f"{name}_width": getattr(ended, name).shape[1] for name in (*CHOSEN, "last_fault")}
    numbers = {**widths, "action_width": record["action"].shape[1], "one": 1, "episode_length": episode_length}
    found = _EndStep.apply(  # type: ignore[no-untyped-call]
        tuple(chosen), numbers, counted, *(getattr(ended, name) for name in chosen)
    )
    terminated, truncated, clock, faults, last_fault, *rest = found
    seen, begun = rest[: len(SEEN)], rest[len(SEEN) :]
    worlds = replace(
        ended, clock=clock, faults=faults, last_fault=last_fault, **dict(zip(chosen, begun, strict=True))
    )  # fmt: skip
    return worlds, terminated, truncated, tuple(seen)


def _if_any(rows: Tensor) -> Tensor | None:
    return rows.contiguous() if rows.shape[1] else None


class _EndStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chosen: tuple[str, ...], numbers: dict[str, int], counted: dict[str, Tensor | None], *ended: Tensor
    ) -> tuple[Tensor, ...]:
        sound = counted["sound"]
        assert sound is not None
        begun = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in ended]
        flags = {name: torch.empty_like(sound) for name in ("terminated", "truncated", "done")}
        following = {
            f"next_{name}": torch.empty_like(now)
            for name in ("clock", "faults", "last_fault")
            if (now := counted[name]) is not None
        }
        tensors = {
            **dict.fromkeys(f"{which}_{name}" for which in ("ended", "begun") for name in CHOSEN),
            **{f"ended_{name}": one.contiguous() for name, one in zip(chosen, ended, strict=True)},
            **{f"begun_{name}": one for name, one in zip(chosen, begun, strict=True)},
            **counted,
            **flags,
            **following,
        }
        _kernels.launch("end_step", ended[0], len(sound), numbers, tensors)
        ctx.chosen, ctx.numbers = chosen, numbers
        ctx.save_for_backward(flags["done"])
        ctx.set_materialize_grads(False)
        counts = (flags["terminated"], flags["truncated"], *following.values())
        ctx.mark_non_differentiable(*counts)
        # Aliases, that PyTorch takes for results.
        seen = [ended[chosen.index(name)].detach() for name in SEEN]
        return (*counts, *seen, *begun)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *bars: Tensor | None) -> tuple[Tensor | None, ...]:
        (done,) = ctx.saved_tensors
        seen, begun = bars[5 : 5 + len(SEEN)], bars[5 + len(SEEN) :]
        needed = [name for name, one in zip(ctx.chosen, ctx.needs_input_grad[3:], strict=True) if one]
        given = {
            f"{which}_{name}_bar": bar.contiguous()
            for which, names, of_which in (("seen", SEEN, seen), ("begun", ctx.chosen, begun))
            for name, bar in zip(names, of_which, strict=True)
            if bar is not None and name in needed
        }
        found = {
            name: torch.empty_like(bar)
            for name in needed
            if (bar := given.get(f"begun_{name}_bar", given.get(f"seen_{name}_bar"))) is not None
        }
        if found:
            tensors = {
                **dict.fromkeys(f"{which}_{name}_bar" for which in ("ended", "begun") for name in CHOSEN),
                **dict.fromkeys(f"seen_{name}_bar" for name in SEEN),
                **given,
                **{f"ended_{name}_bar": bar for name, bar in found.items()},
                "done": done,
            }
            _kernels.launch("end_step_adjoint", next(iter(found.values())), len(done), ctx.numbers, tensors)
        return None, None, None, *(found.get(name) for name in ctx.chosen)
