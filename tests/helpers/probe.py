"""Runs pieces of the kernels alone, on the CPU: C++ lines around the stages' functions, numbers in and numbers out."""

from __future__ import annotations

import functools
import hashlib

import numpy as np
import torch
import warp as wp

from trot.sim.build import Variant, source
from trot.sim.layout import kernel_layout
from trot.sim.model import Model
from trot.sim.native import MODULE_OPTIONS, declare_source

LANES = 1


def run_stages(
    model: Model,
    code: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, int],
    dtype: torch.dtype = torch.float64,
    per_world_parameters: bool = False,
) -> dict[str, np.ndarray]:
    """Run `code` for every world and return what it wrote.

    inputs: name -> (num_worlds, width) or (num_worlds,); outputs: name -> width. In the code, `model`, `world`,
    `adjoint` and `lane` are what the kernel headers call so; `in_NAME(k)` reads a number as a Real and
    `out_NAME(k, value)` writes one. Inputs called joint_q, joint_qd, joint_qdd and control are loaded into `world`
    beforehand. Outputs start as NaN, so what the code forgets to write shows.
    """
    arrays = {name: np.asarray(value, np.float64).reshape(len(value), -1) for name, value in inputs.items()}
    num_worlds = len(next(iter(arrays.values())))
    widths = tuple((name, value.shape[1]) for name, value in arrays.items())
    layout = kernel_layout(model, LANES)
    variant = Variant(dtype, per_world_parameters=per_world_parameters)
    text = source(layout, variant)
    kernel = _kernel(text, _body(code, widths, tuple(outputs.items())))
    packed_in = torch.tensor(np.concatenate(list(arrays.values()), axis=1), dtype=dtype)
    packed_out = torch.full((num_worlds, max(sum(outputs.values()), 1)), float("nan"), dtype=dtype)
    constants = torch.from_numpy(layout.pack(np.float32 if dtype == torch.float32 else np.float64))
    scratch = torch.zeros(64 << 20, dtype=torch.uint8)
    wp.launch(
        kernel,
        dim=-(-num_worlds // 16),
        inputs=[t.data_ptr() for t in (constants, scratch, packed_in, packed_out)] + [num_worlds],
        device="cpu",
    )
    starts = np.cumsum([0, *outputs.values()])
    result = packed_out.double().numpy()
    return {name: result[:, a:b] for name, a, b in zip(outputs, starts[:-1], starts[1:], strict=True)}


def _body(code: str, inputs: tuple[tuple[str, int], ...], outputs: tuple[tuple[str, int], ...]) -> str:
    lines = [
        "    using namespace trot;",
        "    const Model& model = *(const Model*)constants;",
        "    BackwardWorkspace& space = *(BackwardWorkspace*)scratch;",
        "    World& world = space.world; Adjoint& adjoint = space.adjoint;",
        "    const int lane = 0;",
    ]
    width = sum(size for _, size in inputs)
    offset = 0
    for name, size in inputs:
        lines.append(
            f"    auto in_{name} = [&](int k) {{ return trot::load((const Scalar*)input, num_worlds, {width}, block, "
            f"{offset} + k); }};"
        )
        if name in ("joint_q", "joint_qd", "joint_qdd", "control"):
            lines.append(f"    for (int k = 0; k < {size}; ++k) world.{name}[k] = in_{name}(k);")
        offset += size
    width, offset = sum(size for _, size in outputs), 0
    for name, size in outputs:
        lines.append(
            f"    auto out_{name} = [&](int k, Real value) {{ trot::store((Scalar*)output, num_worlds, {width}, block, "
            f"{offset} + k, value); }};"
        )
        offset += size
    return "\n".join(lines) + "\n" + code + "\n"


@functools.cache
def _kernel(text: str, body: str) -> wp.Kernel:
    name = "probe_" + hashlib.sha256((text + body).encode()).hexdigest()[:16]
    declare = declare_source(text, name)
    module = wp.get_module(name)
    module.options.update(MODULE_OPTIONS)

    @wp.func_native(body)
    def run_block(
        constants: wp.uint64, scratch: wp.uint64, input: wp.uint64, output: wp.uint64, num_worlds: int, block: int
    ): ...

    @wp.kernel(module=module)
    def probe(constants: wp.uint64, scratch: wp.uint64, input: wp.uint64, output: wp.uint64, num_worlds: int):
        block = wp.tid()
        declare()
        run_block(constants, scratch, input, output, num_worlds, block)

    return probe
