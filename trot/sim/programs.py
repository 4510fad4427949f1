"""The kernels of a model: what each is called with, and the C++ function that does its work."""

from __future__ import annotations

from dataclasses import dataclass

from trot.sim.arguments import Argument, ArgumentGroup

WORK = ArgumentGroup(
    "Work",
    (
        Argument("model", "const Model*", "the robot's constants"),
        Argument("scratch", "char*", "workspaces, where they do not lie in shared memory"),
        Argument("cycles", "long long*", "per stage, in the benchmark's build"),
        Argument("first_block", "int", "of those that this launch works on"),
    ),
)
"""What every kernel of a model needs to work at all; the Launcher fills it in."""

TENSORS = ArgumentGroup(
    "Tensors",
    (
        Argument("joint_q", "const Scalar*", "before the step", ("num_worlds", "num_q")),
        Argument("joint_qd", "const Scalar*", "before the step", ("num_worlds", "num_dofs")),
        Argument("activation", "const Scalar*", "before the step", ("num_worlds", "num_acts"), optional=True),
        Argument("control", "const Scalar*", "held during the step", ("num_worlds", "num_controls")),
        Argument(
            "parameter", "const Scalar*", "null: the model's own", ("parameter_rows", "num_parameters"), optional=True
        ),
        Argument("next_q", "Scalar*", "after the step", ("num_worlds", "num_q")),
        Argument(
            "next_qd", "Scalar*", "after it; the backward pass needs none", ("num_worlds", "num_dofs"), optional=True
        ),
        Argument("next_activation", "Scalar*", "after it, likewise", ("num_worlds", "num_acts"), optional=True),
        Argument(
            "trajectory", "Real*", "what the backward pass needs; null when no gradient is wanted",
            ("substeps", "num_blocks", "record", "worlds_per_block"), optional=True,
        ),
        Argument("num_worlds", "int", "rows of these tensors"),
        Argument("parameter_rows", "int", "1: every world shares one row of parameters"),
        Argument("num_blocks", "int", "blocks of worlds, in the trajectory too"),
        Argument("substeps", "int", "equal parts of the step"),
        Argument("substep_dt", "Scalar", "s"),
    ),
)  # fmt: skip
"""One control step."""

COTANGENTS = ArgumentGroup(
    "Cotangents",
    (
        Argument("next_q_bar", "const Scalar*", "after the step", ("bar_rows", "q_bar_width")),
        Argument("next_qd_bar", "const Scalar*", "after the step", ("bar_rows", "num_dofs")),
        Argument("next_activation_bar", "const Scalar*", "after the step", ("bar_rows", "num_acts"), optional=True),
        Argument("joint_q_bar", "Scalar*", "before it", ("bar_rows", "q_bar_width")),
        Argument("joint_qd_bar", "Scalar*", "before it", ("bar_rows", "num_dofs")),
        Argument("activation_bar", "Scalar*", "before it", ("bar_rows", "num_acts"), optional=True),
        Argument("control_bar", "Scalar*", "of the whole step", ("bar_rows", "num_controls")),
        Argument("parameter_bar", "Scalar*", "null: none", ("bar_rows", "num_parameters"), optional=True),
        Argument("bar_rows", "int", "rows of these tensors"),
        Argument("tangent", "int", "whether those of joint_q are one number per dof, else one per coordinate"),
    ),
)
"""Derivatives after the step come in, those before it go out."""

CONTACTS = ArgumentGroup(
    "Contacts",
    (
        Argument("joint_q", "const Scalar*", "the state", ("num_worlds", "num_q")),
        Argument("joint_qd", "const Scalar*", "the state", ("num_worlds", "num_dofs")),
        Argument("point", "Scalar*", "where each contact point touches, m", ("num_worlds", "num_contacts", "axes")),
        Argument("force", "Scalar*", "of the ground on it, N", ("num_worlds", "num_contacts", "axes")),
        Argument("num_worlds", "int", "rows of these tensors"),
    ),
)
"""The ground's forces on every contact point, then the forces of every pair of shapes on its first body."""

REPORT = ArgumentGroup("Report", (Argument("sizes", "int*", "what the host must know", ("report",)),))
"""What only the compiler knows."""


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel: one C++ function that every thread runs, with the groups in order and the thread's number."""

    function: str
    header: str
    groups: tuple[ArgumentGroup, ...]

    def body(self) -> str:
        """C++ from Warp's struct `call` to the function."""
        unpacked = "".join(group.unpacking() for group in self.groups)
        given = ", ".join(group.name.lower() for group in self.groups)
        return f"{unpacked}    trot::{self.function}({given}, thread);\n"


FORWARD = Program("run_forward", "entry.h", (WORK, TENSORS))
BACKWARD = Program("run_backward", "entry.h", (WORK, TENSORS, COTANGENTS))
REPORT_SIZES = Program("report_sizes", "entry.h", (REPORT,))
REPORT_CONTACTS = Program("report_contacts", "contact_report.h", (WORK, CONTACTS))
