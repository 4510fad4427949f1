"""A C++ struct and the bytes that fill it, written from one list of fields, so that the two cannot drift apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Field:
    """One member of the C++ struct."""

    name: str
    values: NDArray[np.int32] | NDArray[np.float64]
    comment: str
    rare: bool = False
    """Whether most models have none of it: while it is empty, it takes no room."""

    def declaration(self) -> str:
        """The member as C++ writes it; triples and matrices of constants get their own types."""
        shape = self.values.shape
        if self.values.dtype == np.int32:
            kind, length = "int", self.values.size
        elif shape[1:] == (3, 3):
            kind, length = "Constant33", shape[0]
        elif shape[1:] == (3,):
            kind, length = "Constant3", shape[0]
        else:
            kind, length = "Scalar", self.values.size
        return f"    {kind} {self.name}[{max(length, 1)}];  // {self.comment}"

    def padded(self) -> NDArray[np.int32] | NDArray[np.float64]:
        """The values in order; C++ has no empty array, so an empty field still holds one zero element."""
        if self.values.size:
            return self.values.ravel()
        return np.zeros(int(np.prod(self.values.shape[1:])), self.values.dtype)


@dataclass(frozen=True)
class Layout:
    """Compile-time sizes and the fields of the C++ struct Model, integers first."""

    sizes: dict[str, int]
    dofs_by_depth: tuple[NDArray[np.int32], NDArray[np.int32]]
    """The one table that the compiler itself reads: dofs in order of depth, and where each depth starts."""
    fields: list[Field]

    def declarations(self) -> str:
        """C++ text: the sizes as constants, then the struct."""
        constants = "\n".join(f"constexpr int {name} = {value};" for name, value in self.sizes.items())
        present = self._present()
        lines = [field.declaration() for field in present]
        padding = f"    int padding[{self._padding()}];"
        lines.insert(next(i for i, field in enumerate(present) if field.values.dtype != np.int32), padding)
        # Code that is not compiled still names them.
        absent = [field.declaration() for field in self.fields if field.rare and not field.values.size]
        lines += ["    union {", "    Scalar nothing[1];", *absent, "    };"]
        dofs, starts = (", ".join(map(str, table)) for table in self.dofs_by_depth)
        by_depth = (
            "struct DofsByDepth { int dof[num_dofs]; int start[num_depths + 1]; };\n"
            f"constexpr DofsByDepth dofs_by_depth = {{{{{dofs}}}, {{{starts}}}}};"
        )
        return f"{constants}\n\n{by_depth}\n\nstruct Model {{\n" + "\n".join(lines) + "\n};\n"

    def pack(self, scalar: type[np.float32] | type[np.float64]) -> NDArray[np.uint8]:
        """The struct's bytes."""
        integers = [field.padded() for field in self._present() if field.values.dtype == np.int32]
        scalars = [field.padded() for field in self._present() if field.values.dtype != np.int32]
        scalars.append(np.zeros(1))
        head = np.concatenate([*integers, np.zeros(self._padding(), np.int32)]).astype(np.int32)
        return np.concatenate([head.view(np.uint8), np.concatenate(scalars).astype(scalar).view(np.uint8)])

    def _padding(self) -> int:
        """Integers that bring the scalars to an 8-byte boundary, one at least."""
        count = sum(field.padded().size for field in self._present() if field.values.dtype == np.int32)
        return 1 if count % 2 else 2

    def _present(self) -> list[Field]:
        return [field for field in self.fields if field.values.size or not field.rare]
