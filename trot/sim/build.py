"""From C++ headers and a Model to compiled kernels, through Warp: clang on the CPU, NVRTC on CUDA, cached on disk."""

import contextlib
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import warp as wp

from trot.sim.arguments import ArgumentGroup, Packer
from trot.sim.cpp_struct import Layout
from trot.sim.kernel_cache import cannot_write, temporary_cache
from trot.sim.native import call_type, define_kernels, module_options
from trot.sim.programs import BACKWARD, FORWARD, REPORT_SIZES, WORK, Program
from trot.unpromised import set_argument, warp_structure

HEADERS = Path(__file__).parent / "kernels"

build_lock = threading.RLock()
"""Warp defines and compiles one thing at a time."""

MOST_REGISTERS = 128
"""Of a lane of CUDA in single precision. With the 140 to 160 that the compiler would take a multiprocessor has room for
12 worlds at once, with these for 16; the few numbers that then lie in memory cost 64 worlds nothing."""

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
    store_motion: bool = False
    """Keep where the bodies are and how they move for the backward pass instead of computing it again."""
    sums_in_lanes: bool = True
    """On CUDA lanes add up over the tree together, where every dof has one; without, each for itself."""
    profile: bool = False
    """Count cycles per stage."""
    model_in_shared: bool = True
    """On CUDA every world has the constants of the robot beside it in shared memory. Without, more worlds find room."""


@dataclass(frozen=True)
class Sizes:
    """What the host needs to know to allocate for a kernel."""

    worlds_per_block: int
    record: int
    """Real numbers kept per substep and block for the backward pass."""
    workspace: int
    """Bytes of scratch per CPU thread, or per world of a robot too large for shared memory."""
    fits_shared: int
    """Whether model and workspace lie in CUDA's shared memory, so that no scratch is needed."""
    stages: int
    model: int
    """Bytes of the robot's constants."""


@dataclass(frozen=True)
class Kernel:
    """A compiled program, and the way from tensors to what it is called with."""

    compiled: wp.Kernel
    call: Any
    """Warp's struct of its arguments."""
    packer: Packer


@dataclass(frozen=True)
class Kernels:
    """The programs of a model, compiled for one device."""

    programs: dict[Program, Kernel]
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


def source(layout: Layout, variant: Variant, programs: tuple[Program, ...] = (FORWARD, BACKWARD)) -> str:
    """The complete C++ source for one model and variant, inside namespace trot."""
    switches = (
        f"using Scalar = {C_NAMES[variant.dtype]};\n"
        f"constexpr bool per_world_parameters = {str(variant.per_world_parameters).lower()};\n"
        f"constexpr bool store_factor = {str(variant.store_factor).lower()};\n"
        f"constexpr bool store_motion = {str(variant.store_motion).lower()};\n"
        f"constexpr bool sums_in_lanes = {str(variant.sums_in_lanes).lower()};\n"
        f"constexpr bool model_in_shared = {str(variant.model_in_shared).lower()};\n"
    )
    seen: set[str] = set()
    spatial = read_headers("spatial.h", seen)
    # The step's own groups always: its headers name them.
    groups: dict[ArgumentGroup, None] = {}
    for program in (FORWARD, BACKWARD, REPORT_SIZES, *programs):
        groups |= dict.fromkeys(program.groups)
    called_with = "".join(group.declaration() for group in groups)
    rest = "".join(read_headers(program.header, seen) for program in (REPORT_SIZES, *programs))
    profile = "#define PROFILE\n" if variant.profile else ""
    declarations = layout.declarations() + called_with
    return f"{profile}namespace trot {{\n{switches}{spatial}{declarations}{rest}}}  // namespace trot\n"


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
    """Initialise Warp once, with a folder for compiled kernels that can be written."""
    with quiet_warp():
        try:
            _init_warp()
        except OSError as error:
            # A library that cannot be loaded is no file's error.
            if error.filename is None:
                raise
            wp.config.kernel_cache_dir = str(temporary_cache(error))
            _init_warp()
    assert wp.config.kernel_cache_dir is not None, "Warp notes there where its cache is"
    cache = Path(wp.config.kernel_cache_dir)
    reason = cannot_write(cache)
    if reason is not None:
        # Named after Warp's version, as Warp itself names the folder inside the one it is given.
        wp.config.kernel_cache_dir = str(temporary_cache(reason) / cache.name)


def _init_warp() -> None:
    """Where there is no GPU, Warp says so on stderr whatever its log level: hold that back."""
    if torch.cuda.is_available():
        wp.init()  # type: ignore[no-untyped-call]
        return
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


_Defined = dict[str, tuple[wp.Kernel, Any]]
_defined: dict[str, _Defined] = {}
"""Kernels and the structs they are called with, by module name and then by name: Warp must see a source only once."""


def define_programs(
    text: str,
    programs: Mapping[str, tuple[tuple[ArgumentGroup, ...], str]],
    dtype: torch.dtype,
    device: torch.device,
    most_registers: int | None = None,
) -> dict[str, Kernel]:
    """Kernels over one source: by name, the groups of arguments that each is called with and the C++ of a thread."""
    options = module_options(dtype, device)
    module = module_name(text + str(options) + str(programs) + str(most_registers))
    if module not in _defined:
        calls = {name: call_type(groups, SCALARS[dtype]) for name, (groups, _) in programs.items()}
        kernels = define_kernels(
            text, module, options, {name: (calls[name], body) for name, (_, body) in programs.items()}, most_registers
        )
        _defined[module] = {name: (kernels[name], calls[name]) for name in programs}
    return {
        name: Kernel(compiled, call, Packer(_given(programs[name][0]), warp_structure(call), dtype, device))
        for name, (compiled, call) in _defined[module].items()
    }


def _given(groups: tuple[ArgumentGroup, ...]) -> tuple[ArgumentGroup, ...]:
    """Those that a caller packs."""
    return tuple(group for group in groups if group is not WORK)


def compile_kernels(
    layout: Layout, variant: Variant, device: torch.device, lanes: int, programs: tuple[Program, ...]
) -> Kernels:
    """The kernels of a model for one device: compiled the first time, from Warp's cache after that."""
    text = source(layout, variant, programs)
    start_warp()
    with quiet_warp():
        bodies = {program.function: (program.groups, program.body()) for program in (*programs, REPORT_SIZES)}
        most_registers = MOST_REGISTERS if device.type == "cuda" and variant.dtype == torch.float32 else None
        kernels = define_programs(text, bodies, variant.dtype, device, most_registers)
        sizes = report_sizes(kernels[REPORT_SIZES.function], device, lanes)
    return Kernels({program: kernels[program.function] for program in programs}, sizes)


def report_sizes(kernel: Kernel, device: torch.device, lanes: int) -> Sizes:
    """Ask the compiled program REPORT_SIZES."""
    warp_device = wp.device_from_torch(device)
    # Not zeros: PyTorch would write them on its own stream, perhaps after the kernel.
    reported = torch.empty(len(fields(Sizes)), dtype=torch.int32, device=device)
    packed = kernel.packer.pack({"report": len(reported)}, {"sizes": reported})
    command = record_launch(kernel, 1, lanes if device.type == "cuda" else None, warp_device)
    set_argument(command, packed)
    command.launch()
    wp.synchronize_device(warp_device)
    return Sizes(*reported.tolist())


def record_launch(kernel: Kernel, dim: int, block_dim: int | None, device: wp.Device) -> wp.Launch:
    """A launch that is kept; unpromised.set_argument gives it what it is called with."""
    launch: wp.Launch = wp.launch(
        kernel.compiled, dim=dim, inputs=[kernel.call()], device=device, block_dim=block_dim, record_cmd=True
    )
    return launch
