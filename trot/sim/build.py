"""From C++ headers and a Model to compiled kernels, through Warp: clang on the CPU, NVRTC on CUDA, cached on disk."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp

from trot.sim.layout import Layout

HEADERS = Path(__file__).parent / "kernels"

# Warp's greeting and its word about a missing CUDA driver are noise to somebody who trains on a laptop.
wp.config.log_level = max(wp.config.log_level, wp.LOG_ERROR)

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
    lanes: int
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


def source(layout: Layout, variant: Variant, header: str = "entry.h") -> str:
    """The complete C++ source for one model and variant, inside namespace trot."""
    switches = (
        f"using Scalar = {C_NAMES[variant.dtype]};\n"
        f"constexpr bool per_world_parameters = {str(variant.per_world_parameters).lower()};\n"
        f"constexpr bool store_factor = {str(variant.store_factor).lower()};\n"
    )
    seen: set[str] = set()
    spatial = read_headers("spatial.h", seen)
    rest = read_headers(header, seen)
    profile = "#define PROFILE\n" if variant.profile else ""
    return f"{profile}namespace trot {{\n{switches}{spatial}{layout.declarations()}{rest}}}  // namespace trot\n"


def declare_source(text: str, key: str) -> Any:
    """A Warp function that does nothing when called but puts `text` at namespace scope, in front of later functions.

    Warp writes a native snippet between the braces of a function. Headers with types and templates cannot stand there,
    so the snippet closes that function and opens an empty one for the brace that Warp adds.
    """

    def declare(): ...

    declare.__name__ = declare.__qualname__ = f"declare_{key}"
    return wp.func_native(f"}}\n{text}\nstatic CUDA_CALLABLE void end_of_{key}() {{\n")(declare)


_TENSORS = """
    trot::Tensors t;
    t.joint_q = (const trot::Scalar*)joint_q;
    t.joint_qd = (const trot::Scalar*)joint_qd;
    t.control = (const trot::Scalar*)control;
    t.parameter = (const trot::Scalar*)parameter;
    t.next_q = (trot::Scalar*)next_q;
    t.next_qd = (trot::Scalar*)next_qd;
    t.trajectory = (trot::Real*)trajectory;
    t.num_worlds = num_worlds;
    t.parameter_worlds = parameter_worlds;
    t.substeps = substeps;
    t.dt = dt;
"""

_FORWARD = f"""{_TENSORS}
    trot::run_forward((const trot::Model*)model, (char*)scratch, t, block, num_blocks, lane, (long long*)cycles);
"""

_BACKWARD = f"""{_TENSORS}
    trot::Cotangents c;
    c.next_q_bar = (const trot::Scalar*)next_q_bar;
    c.next_qd_bar = (const trot::Scalar*)next_qd_bar;
    c.joint_q_bar = (trot::Scalar*)joint_q_bar;
    c.joint_qd_bar = (trot::Scalar*)joint_qd_bar;
    c.control_bar = (trot::Scalar*)control_bar;
    c.parameter_bar = (trot::Scalar*)parameter_bar;
    c.num_worlds = bar_worlds;
    c.trajectory_blocks = trajectory_blocks;
    c.tangent = tangent;
    trot::run_backward((const trot::Model*)model, (char*)scratch, t, c, block, lane, (long long*)cycles);
"""

_SIZES = "    trot::report_sizes((int*)sizes);\n"

MODULE_OPTIONS = {"enable_backward": False, "fast_math": False}


def _module_name(text: str) -> str:
    return f"trot_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def compile_kernels(layout: Layout, variant: Variant, device: torch.device) -> Kernels:
    """The kernels of a model for one device: compiled the first time, from Warp's cache after that."""
    text = source(layout, variant)
    name = _module_name(text + str(MODULE_OPTIONS))
    lanes = 32 if device.type == "cuda" else 1
    forward, backward, sizes = _define(text, name, SCALARS[variant.dtype], lanes)
    wp.init()
    warp_device = wp.device_from_torch(device)
    block_dim = lanes if device.type == "cuda" else None
    reported = torch.zeros(6, dtype=torch.int32, device=device)
    wp.launch(sizes, dim=1, inputs=[reported.data_ptr()], device=warp_device, block_dim=block_dim)
    wp.synchronize_device(warp_device)
    return Kernels(forward, backward, Sizes(*reported.tolist()))


@functools.cache
def _define(text: str, name: str, scalar: Any, lanes: int) -> tuple[wp.Kernel, wp.Kernel, wp.Kernel]:
    """Three Warp kernels in a module of their own. The first call in each makes Warp place the headers."""
    declare = declare_source(text, name)
    module = wp.get_module(name)
    module.options.update(MODULE_OPTIONS)

    @wp.func_native(_FORWARD)
    def forward_block(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, dt: scalar, num_blocks: int, cycles: wp.uint64, block: int, lane: int,
    ): ...  # fmt: skip

    @wp.func_native(_BACKWARD)
    def backward_block(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, dt: scalar, next_q_bar: wp.uint64, next_qd_bar: wp.uint64,
        joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, control_bar: wp.uint64, parameter_bar: wp.uint64,
        bar_worlds: int, trajectory_blocks: int, tangent: int, cycles: wp.uint64, block: int, lane: int,
    ): ...  # fmt: skip

    @wp.func_native(_SIZES)
    def write_sizes(sizes: wp.uint64): ...

    @wp.kernel(module=module, grid_stride=False)
    def forward(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, dt: scalar, num_blocks: int, cycles: wp.uint64, first_block: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        forward_block(
            model, scratch, joint_q, joint_qd, control, parameter, next_q, next_qd, trajectory, num_worlds,
            parameter_worlds, substeps, dt, num_blocks, cycles, first_block + thread / lanes, thread % lanes,
        )  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def backward(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, dt: scalar, next_q_bar: wp.uint64, next_qd_bar: wp.uint64,
        joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, control_bar: wp.uint64, parameter_bar: wp.uint64,
        bar_worlds: int, trajectory_blocks: int, tangent: int, cycles: wp.uint64, first_block: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        backward_block(
            model, scratch, joint_q, joint_qd, control, parameter, next_q, next_qd, trajectory, num_worlds,
            parameter_worlds, substeps, dt, next_q_bar, next_qd_bar, joint_q_bar, joint_qd_bar, control_bar,
            parameter_bar, bar_worlds, trajectory_blocks, tangent, cycles, first_block + thread / lanes, thread % lanes,
        )  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def sizes(out: wp.uint64):
        declare()
        write_sizes(out)

    return forward, backward, sizes
