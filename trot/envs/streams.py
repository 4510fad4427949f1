"""Random numbers from one generator, or from several that share the rows of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Streams = torch.Generator | Sequence[torch.Generator]
"""Of several, each draws as many rows as the others, and what it would draw alone for these."""


def uniform(shape: tuple[int, ...], streams: Streams, like: Tensor) -> Tensor:
    """Between 0 and 1, with the dtype and device of `like`; the first generator's rows come first."""
    return _drawn(torch.rand, shape, streams, like)


def normal(shape: tuple[int, ...], streams: Streams, like: Tensor) -> Tensor:
    """The same from the standard normal distribution."""
    return _drawn(torch.randn, shape, streams, like)


def _drawn(draw: Callable[..., Tensor], shape: tuple[int, ...], streams: Streams, like: Tensor) -> Tensor:
    generators = [streams] if isinstance(streams, torch.Generator) else streams
    rows = shape[0] // len(generators)
    drawn = [
        draw((rows, *shape[1:]), generator=generator, dtype=like.dtype, device=like.device) for generator in generators
    ]
    return drawn[0] if len(drawn) == 1 else torch.cat(drawn)
