"""From C++ headers and a Model to compiled kernels, through Warp: clang on the CPU, NVRTC on CUDA, cached on disk."""

import contextlib
import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp

from trot.sim.cpp_struct import Layout
from trot.sim.native import MODULE_OPTIONS, define_kernels

HEADERS = Path(__file__).parent / "kernels"

SCALARS: dict[torch.dtype, Any] = {torch.float32: wp.float32, torch.float64: wp.float64}
C_NAMES = {torch.float32: "float", torch.float64: "double"}


@dataclass(frozen=True)
class Variant:
    """What a kernel is compiled for, besides the model's layout."""

    dtype: torch.dtype
    per_world_parameters: bool = False
    """Masses and contact constants come in per world and get gradients."""
    store_factor: bool = False
    """Keep the factorised mass matrix for the backward pass instead of building it again."""
    profile: bool = False
    """Count cycles per stage."""


@dataclass(frozen=True)
class Sizes:
    """What the host needs to know to allocate for a kernel."""

    worlds_per_block: int
    record: int
    """Real numbers kept per substep and block for the backward pass."""
    workspace: int
    """Bytes of scratch per CPU thread, or per world of a robot too large for shared memory."""
    shared: int
    """Bytes of CUDA's shared memory that model and workspace may take together."""
    stages: int


@dataclass(frozen=True)
class Kernels:
    """The two kernels of a control step."""

    forward: wp.Kernel
    backward: wp.Kernel
    sizes: Sizes


def read_headers(name: str, seen: set[str] | None = None) -> str:
    """A header with the headers it includes written out in place, each once.

    The whole source then stands in the kernel itself, so Warp's cache notices when a header changes.
    """
    seen = set() if seen is None else seen
    if name in seen:
        return ""
    seen.add(name)
    text = (HEADERS / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return re.sub(r'#include "([\w.]+)"\n', lambda match: read_headers(match.group(1), seen), text)


def source(layout: Layout, variant: Variant) -> str:
    """The complete C++ source for one model and variant, inside namespace trot."""
    switches = (
        f"using Scalar = {C_NAMES[variant.dtype]};\n"
        f"constexpr bool per_world_parameters = {str(variant.per_world_parameters).lower()};\n"
        f"constexpr bool store_factor = {str(variant.store_factor).lower()};\n"
    )
    seen: set[str] = set()
    spatial = read_headers("spatial.h", seen)
    rest = read_headers("entry.h", seen)
    profile = "#define PROFILE\n" if variant.profile else ""
    return f"{profile}namespace trot {{\n{switches}{spatial}{layout.declarations()}{rest}}}  // namespace trot\n"


@contextlib.contextmanager
def quiet_warp() -> Iterator[None]:
    """Without Warp's greeting and build messages, which are noise in a training run."""
    level = wp.config.log_level
    wp.config.log_level = max(level, wp.LOG_ERROR)
    try:
        yield
    finally:
        wp.config.log_level = level


@functools.cache
def start_warp() -> None:
    """Initialise Warp once. Where there is no GPU, it says so on stderr whatever its log level: hold that back."""
    with quiet_warp():
        if torch.cuda.is_available():
            wp.init()  # type: ignore[no-untyped-call]
        else:
            _init_without_stderr()


def _init_without_stderr() -> None:
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        wp.init()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def module_name(text: str) -> str:
    """A name that no other source has."""
    return f"trot_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def compile_kernels(layout: Layout, variant: Variant, device: torch.device, lanes: int) -> Kernels:
    """The kernels of a model for one device: compiled the first time, from Warp's cache after that."""
    text = source(layout, variant)
    name = module_name(text + str(MODULE_OPTIONS))
    start_warp()
    with quiet_warp():
        forward, backward, sizes = define_kernels(text, name, SCALARS[variant.dtype], lanes)
        warp_device = wp.device_from_torch(device)
        # Not zeros: PyTorch would write them on its own stream, perhaps after the kernel.
        reported = torch.empty(5, dtype=torch.int32, device=device)
        block_dim = lanes if device.type == "cuda" else None
        wp.launch(sizes, dim=1, inputs=[reported.data_ptr()], device=warp_device, block_dim=block_dim)
        wp.synchronize_device(warp_device)
    return Kernels(forward, backward, Sizes(*reported.tolist()))
