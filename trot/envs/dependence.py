"""Whether numbers depend on others at all, by whatever way PyTorch takes: also where no gradient flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from trot.unpromised import watching_operations

SHAPE_ALONE = ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full")
"""Operations whose result knows nothing of the numbers they are given."""

FILLED_UNSEEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""What is put in there may come from anywhere, a kernel of ours included."""

LEAVES_PYTORCH = "_local_scalar_dense"
"""x.item(): what Python makes of it cannot be seen."""


def surely_independent(function: Callable[[], Iterable[Tensor]], sources: Iterable[Tensor]) -> bool:
    """Whether nothing that the function returns can depend on the sources."""
    traced = _Traced(sources)
    with watching_operations(traced.saw):
        results = list(function())
    return not any(map(traced.includes, results))


class _Traced:
    """All that was made of the sources."""

    def __init__(self, sources: Iterable[Tensor]) -> None:
        self._made: list[Tensor] = []
        self._storages: set[int] = set()
        self._all = False
        self._add(sources)

    def includes(self, tensor: Tensor) -> bool:
        return self._all or _storage(tensor) in self._storages

    def saw(self, operation: str, given: list[Tensor], returned: list[Tensor]) -> None:
        reached = operation not in SHAPE_ALONE and any(map(self.includes, given))
        self._all |= reached and operation == LEAVES_PYTORCH
        if reached or operation in FILLED_UNSEEN:
            self._add(returned)

    def _add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            # Kept, or another tensor could get the same memory.
            self._made.append(tensor)
            self._storages.add(_storage(tensor))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
