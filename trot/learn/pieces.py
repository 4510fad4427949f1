"""Large tensors in pieces, for operations on lists of tensors.

On a GPU such an operation gives each tensor to few blocks, one for every 65536 numbers: nearly all of it stays idle.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

PIECE = 24_576
"""Numbers that a block takes in some microseconds, and few enough pieces for one launch in most networks."""


def in_pieces(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Views that hold the same numbers, none of them large; on the CPU the tensors themselves."""
    pieces: list[Tensor] = []
    for tensor in tensors:
        whole = tensor.detach()
        pieces += torch.split(whole.view(-1), PIECE) if whole.is_cuda else [whole]
    return pieces
