"""The border to Warp's compiler: C++ text becomes Warp kernels.

Kept apart because Warp's decorators and annotations mean nothing to a type checker.
"""

from typing import Any

import torch
import warp as wp

from trot.sim.arguments import ArgumentGroup
from trot.sim.kernel_cache import ensure_whole
from trot.unpromised import before_loading, declare_source, warp_module


def module_options(dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """For Warp's compiler. None leaves the level of optimisation to Warp.

    Double precision is for checks, which wait for kernels to be built more than for them to run.
    """
    checks = dtype == torch.float64 and device.type == "cpu"
    return {"enable_backward": False, "fast_math": False, "optimization_level": 1 if checks else None}


def call_type(groups: tuple[ArgumentGroup, ...], scalar: Any) -> Any:
    """Warp's struct of all arguments, in order: a kernel gets it by value, so a graph keeps it as it was."""
    plain = {"int": wp.int32, "Scalar": scalar}
    arguments = [argument for group in groups for argument in group.arguments]
    members = {argument.name: plain.get(argument.kind, wp.uint64) for argument in arguments}
    assert len(members) == len(arguments), "two arguments of one kernel have the same name"
    return wp.struct(type("Call", (), {"__annotations__": members, "__module__": __name__}))


def define_kernels(
    text: str,
    module_name: str,
    options: dict[str, Any],
    bodies: dict[str, tuple[Any, str]],
    most_registers: int | None,
) -> dict[str, wp.Kernel]:
    """Kernels by name, each with the struct that it is called with and the C++ that its threads run.

    That C++ sees `text` at namespace scope, the struct as `call`, and its own number as `thread`. On CUDA a thread has
    `most_registers` at most; None leaves that to the compiler.
    """
    declare = declare_source(text, module_name)
    module = warp_module(module_name, options)
    before_loading(module, ensure_whole)
    return {name: _define_kernel(module, declare, most_registers, name, *given) for name, given in bodies.items()}


def _define_kernel(module: Any, declare: Any, most_registers: int | None, name: str, call: Any, body: str) -> wp.Kernel:
    def run_thread(call: call, thread: int): ...

    run_thread.__name__ = run_thread.__qualname__ = f"{name}_thread"
    run_native = wp.func_native(body)(run_thread)

    def kernel(call: call):
        thread = wp.tid()
        declare()
        run_native(call, thread)

    kernel.__name__ = kernel.__qualname__ = name
    return wp.kernel(module=module, grid_stride=False, cuda_max_registers=most_registers)(kernel)
