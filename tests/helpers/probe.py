"""Runs pieces of the kernels alone: C++ lines around the stages' functions, numbers in and numbers out.

On the CPU one lane runs a block of worlds; on CUDA 32 lanes share a world, each with its own `lane`, as in the real
kernels.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import warp as wp

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.build import Kernel, Variant, define_programs, record_launch, report_sizes, source, start_warp
from trot.sim.launch import CUDA_LANES, warp_stream
from trot.sim.layout import kernel_layout
from trot.sim.model import Model
from trot.sim.programs import REPORT_SIZES
from trot.unpromised import set_argument

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LOADED = ("joint_q", "joint_qd", "joint_qdd", "control")

PROBE = ArgumentGroup(
    "Probe",
    (
        Argument("constants", "const Model*", "the robot's", ("model_bytes",)),
        Argument("scratch", "char*", "one workspace, on CUDA one per world", ("scratch_bytes",)),
        Argument("input", "const Scalar*", "side by side", ("num_worlds", "in_width")),
        Argument("output", "Scalar*", "side by side", ("num_worlds", "out_width")),
        Argument("num_worlds", "int", "rows of both"),
    ),
)


def run_stages(
    model: Model,
    code: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, int],
    place: str,
    dtype: torch.dtype = torch.float64,
    per_world_parameters: bool = False,
) -> dict[str, np.ndarray]:
    """Run `code` for every world and return what it wrote.

    inputs: name -> (num_worlds, width) or (num_worlds,); outputs: name -> width. In the code, `model`, `world`,
    `adjoint` and `lane` are what the kernel headers call so; `in_NAME(k)` reads a number as a Real and
    `out_NAME(k, value)` writes one. Inputs called joint_q, joint_qd, joint_qdd and control are loaded into `world`
    beforehand. Outputs start as NaN, so what the code forgets to write shows.

    Every lane runs the code. What the lanes share, `world` and `adjoint`, is written by one of them, in FOR_LANES or
    where `lane == 0`, with a barrier() before another reads it. Several may write an output if they write the same.
    """
    device = torch.zeros(0, device=place).device
    arrays = {name: np.asarray(value, np.float64).reshape(len(value), -1) for name, value in inputs.items()}
    num_worlds = len(next(iter(arrays.values())))
    widths = tuple((name, value.shape[1]) for name, value in arrays.items())
    layout = kernel_layout(model, CUDA_LANES if device.type == "cuda" else 1)
    text = source(layout, Variant(dtype, per_world_parameters=per_world_parameters)) + _after_source()
    kernel, sizes = _kernel(text, _body(code, widths, tuple(outputs.items())), dtype, device)

    blocks = -(-num_worlds // sizes.worlds_per_block)
    workspaces = blocks if device.type == "cuda" else 1
    tensors = {
        "constants": torch.from_numpy(layout.pack(np.float32 if dtype == torch.float32 else np.float64)).to(device),
        "scratch": torch.zeros(workspaces * sizes.workspace, dtype=torch.uint8, device=device),
        "input": torch.tensor(np.concatenate(list(arrays.values()), axis=1), dtype=dtype, device=device),
        "output": torch.full((num_worlds, max(sum(outputs.values()), 1)), float("nan"), dtype=dtype, device=device),
    }
    _launch(kernel, tensors, num_worlds, blocks, device)
    starts = np.cumsum([0, *outputs.values()])
    result = tensors["output"].double().cpu().numpy()
    return {name: result[:, a:b] for name, a, b in zip(outputs, starts[:-1], starts[1:], strict=True)}


def _launch(
    kernel: Kernel, tensors: dict[str, torch.Tensor], num_worlds: int, blocks: int, device: torch.device
) -> None:
    sizes = {
        "model_bytes": len(tensors["constants"]),
        "scratch_bytes": len(tensors["scratch"]),
        "num_worlds": num_worlds,
        "in_width": tensors["input"].shape[1],
        "out_width": tensors["output"].shape[1],
    }
    cuda = device.type == "cuda"
    lanes = CUDA_LANES if cuda else 1
    command = record_launch(kernel, blocks * lanes, lanes if cuda else None, wp.device_from_torch(device))
    set_argument(command, kernel.packer.pack(sizes, tensors))
    command.launch(stream=warp_stream(device) if cuda else None)


def _after_source() -> str:
    return f"namespace trot {{\n{PROBE.declaration()}}}  // namespace trot\n"


def _body(code: str, inputs: tuple[tuple[str, int], ...], outputs: tuple[tuple[str, int], ...]) -> str:
    lines = [
        PROBE.unpacking(),
        "    using namespace trot;",
        "    const int block = thread / LANES, lane = thread % LANES, num_worlds = probe.num_worlds;",
        "    const Model& model = *probe.constants;",
        "    const long long place = LANES > 1 ? block : 0;",
        "    BackwardWorkspace& space = *((BackwardWorkspace*)probe.scratch + place);",
        "    World& world = space.world; Adjoint& adjoint = space.adjoint;",
    ]
    width = sum(size for _, size in inputs)
    offset = 0
    for name, size in inputs:
        lines.append(
            f"    auto in_{name} = [&](int k) {{ return trot::load(probe.input, num_worlds, {width}, block, "
            f"{offset} + k); }};"
        )
        if name in LOADED:
            lines.append(f"    FOR_LANES(k, {size}) world.{name}[k] = in_{name}(k);")
        offset += size
    width, offset = sum(size for _, size in outputs), 0
    for name, size in outputs:
        lines.append(
            f"    auto out_{name} = [&](int k, Real value) {{ trot::store(probe.output, num_worlds, {width}, block, "
            f"{offset} + k, value); }};"
        )
        offset += size
    return "\n".join([*lines, "    barrier();", code]) + "\n"


@functools.cache
def _kernel(text: str, body: str, dtype: torch.dtype, device: torch.device):
    start_warp()
    programs = {"probe": ((PROBE,), body), REPORT_SIZES.function: (REPORT_SIZES.groups, REPORT_SIZES.body())}
    kernels = define_programs(text, programs, dtype, device)
    lanes = CUDA_LANES if device.type == "cuda" else 1
    return kernels["probe"], report_sizes(kernels[REPORT_SIZES.function], device, lanes)
