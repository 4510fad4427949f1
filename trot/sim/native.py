"""The border to Warp's compiler: C++ text becomes Warp kernels.

Kept apart because Warp's decorators and annotations mean nothing to a type checker.
"""

import functools
from typing import Any

import warp as wp

MODULE_OPTIONS = {"enable_backward": False, "fast_math": False}


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
    t.substep_dt = substep_dt;
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


@functools.cache
def define_kernels(text: str, name: str, scalar: Any, lanes: int) -> tuple[wp.Kernel, wp.Kernel, wp.Kernel]:
    """Three Warp kernels in a module of their own. The first call in each makes Warp place the headers."""
    declare = declare_source(text, name)
    module = wp.get_module(name)
    module.options.update(MODULE_OPTIONS)

    @wp.func_native(_FORWARD)
    def forward_block(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, substep_dt: scalar, num_blocks: int, cycles: wp.uint64, block: int,
        lane: int,
    ): ...  # fmt: skip

    @wp.func_native(_BACKWARD)
    def backward_block(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, substep_dt: scalar, next_q_bar: wp.uint64, next_qd_bar: wp.uint64,
        joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, control_bar: wp.uint64, parameter_bar: wp.uint64,
        bar_worlds: int, trajectory_blocks: int, tangent: int, cycles: wp.uint64, block: int, lane: int,
    ): ...  # fmt: skip

    @wp.func_native(_SIZES)
    def write_sizes(sizes: wp.uint64): ...

    @wp.kernel(module=module, grid_stride=False)
    def forward(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, substep_dt: scalar, num_blocks: int, cycles: wp.uint64, first_block: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        forward_block(
            model, scratch, joint_q, joint_qd, control, parameter, next_q, next_qd, trajectory, num_worlds,
            parameter_worlds, substeps, substep_dt, num_blocks, cycles, first_block + thread / lanes, thread % lanes,
        )  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def backward(
        model: wp.uint64, scratch: wp.uint64, joint_q: wp.uint64, joint_qd: wp.uint64, control: wp.uint64,
        parameter: wp.uint64, next_q: wp.uint64, next_qd: wp.uint64, trajectory: wp.uint64, num_worlds: int,
        parameter_worlds: int, substeps: int, substep_dt: scalar, next_q_bar: wp.uint64, next_qd_bar: wp.uint64,
        joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, control_bar: wp.uint64, parameter_bar: wp.uint64,
        bar_worlds: int, trajectory_blocks: int, tangent: int, cycles: wp.uint64, first_block: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        backward_block(
            model, scratch, joint_q, joint_qd, control, parameter, next_q, next_qd, trajectory, num_worlds,
            parameter_worlds, substeps, substep_dt, next_q_bar, next_qd_bar, joint_q_bar, joint_qd_bar, control_bar,
            parameter_bar, bar_worlds, trajectory_blocks, tangent, cycles, first_block + thread / lanes, thread % lanes,
        )  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def sizes(out: wp.uint64):
        declare()
        write_sizes(out)

    return forward, backward, sizes
