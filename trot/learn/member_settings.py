"""Settings that members of one batch have each of their own: as tensors, which captured graphs read where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from trot.learn.learner import LearnerSettings

Numbers = dict[str, float | Tensor]
"""By name: one for all, or (members,)."""


def require_own(
    settings: Sequence[LearnerSettings], common: LearnerSettings, own: Sequence[str], members: int | None
) -> None:
    """Raise where members' settings differ from the common ones in others than these, or are not one for each."""
    if len(settings) != members:
        raise ValueError(f"there are settings for {len(settings)} members; the learner has {members or 'no members'}")
    differ = {
        field.name
        for field in fields(common)
        if any(getattr(one, field.name) != getattr(common, field.name) for one in settings)
    }
    refused = sorted(differ - set(own))
    if refused:
        raise ValueError(f"members of one batch cannot differ in {', '.join(refused)}; they can in {', '.join(own)}")


def put_numbers(into: Numbers, members: Sequence[Mapping[str, float]], like: Mapping[str, Tensor]) -> None:
    """Put every member's numbers into the tensors of `into`, which are made where it has none yet.

    They get the device and the precision of those that `like` has under the same name.
    """
    for name, example in like.items():
        values = torch.tensor([numbers[name] for numbers in members], dtype=example.dtype, device=example.device)
        present = into[name]
        if isinstance(present, Tensor):
            present.copy_(values)
        else:
            into[name] = values
