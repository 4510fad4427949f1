"""From one list of arguments: the C++ struct, the packed structure, and the gate that every address passes."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
import torch

import trot
from trot.sim.arguments import Argument, ArgumentGroup, Packer, address
from trot.sim.build import Variant
from trot.sim.launch import launcher
from trot.sim.programs import FORWARD

CPU = torch.device("cpu")
ASSETS = Path(trot.__path__[0]) / "envs" / "assets"

PUSH = ArgumentGroup(
    "Push",
    (
        Argument("force", "const Scalar*", "N", ("rows", "axes")),
        Argument("weight", "const Scalar*", "null: all alike", ("rows",), optional=True),
        Argument("rows", "int", "of both"),
        Argument("duration", "Scalar", "s"),
    ),
)


class Pushed(ctypes.Structure):
    _fields_ = (
        ("force", ctypes.c_uint64),
        ("weight", ctypes.c_uint64),
        ("rows", ctypes.c_int32),
        ("duration", ctypes.c_float),
    )


def packed(tensors: dict) -> Pushed:
    return Packer((PUSH,), Pushed, torch.float32, CPU).pack({"rows": 4, "axes": 3, "duration": 0.25}, tensors)


def test_struct_in_cpp() -> None:
    assert PUSH.declaration() == (
        "struct Push {\n"
        "    const Scalar* force;  // N\n"
        "    const Scalar* weight;  // null: all alike\n"
        "    int rows;  // of both\n"
        "    Scalar duration;  // s\n"
        "};\n"
    )
    assert "    push.rows = (decltype(push.rows))call.rows;\n" in PUSH.unpacking()


def test_packed_in_the_same_order() -> None:
    force, weight = torch.zeros(4, 3), torch.zeros(4)
    found = packed({"force": force, "weight": weight})
    assert (found.force, found.weight, found.rows, found.duration) == (force.data_ptr(), weight.data_ptr(), 4, 0.25)
    assert packed({"force": force, "weight": None}).weight == 0


@pytest.mark.parametrize("names", [("force",), ("force", "weight", "colour")])
def test_missing_and_unknown_tensors_are_told(names: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match=r"the kernel takes the tensors \['force', 'weight'\], not"):
        packed(dict.fromkeys(names, torch.zeros(4, 3)))


def test_a_tensor_that_must_be_there_is_told() -> None:
    with pytest.raises(TypeError, match="the kernel does not run without force"):
        packed({"force": None, "weight": torch.zeros(4)})


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.zeros(4, 2), r"force is \(4, 2\) torch.float32 on cpu; the kernel reads \(4, 3\)"),
        (torch.zeros(3, 3), r"\(3, 3\)"),
        (torch.zeros(12), r"\(12,\)"),
        (torch.zeros(4, 3, dtype=torch.float64), "torch.float64 on cpu; the kernel reads .* torch.float32"),
        (torch.zeros(4, 3, device="meta"), "on meta; the kernel reads .* on cpu"),
        (torch.zeros(3, 4).T, "its rows not one after the other"),
    ],
    ids=["width", "rows", "dimensions", "precision", "device", "transposed"],
)
def test_the_gate_refuses_what_a_kernel_would_misread(tensor: torch.Tensor, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        address("force", tensor, (4, 3), torch.float32, CPU)


def test_no_address_goes_round_the_gate() -> None:
    """Whoever calls data_ptr() elsewhere hands a kernel memory that nobody has looked at; or compares addresses."""
    takers = {path.name for path in Path(trot.__path__[0]).rglob("*.py") if "data_ptr(" in path.read_text("utf-8")}
    assert takers == {"arguments.py", "dependence.py"}


def test_a_step_with_a_wrong_control_is_refused_by_the_gate_too() -> None:
    """Environments look at nothing themselves: what a task's control() returns goes straight there."""
    env = trot.make_env("cartpole", num_worlds=3)
    env.reset()
    env.task.control = lambda action: action.double()
    with pytest.raises(ValueError, match=r"control is \(3, 1\) torch.float64 on cpu; the kernel reads \(3, 1\)"):
        env.step(torch.zeros(3, 1))


def test_launches_are_kept_and_get_other_arguments() -> None:
    model = trot.load_model(ASSETS / "hopper.xml")
    run = launcher(model, Variant(torch.float32), CPU)

    def moved(worlds: int) -> torch.Tensor:
        state = model.default_state(worlds)
        state.joint_qd[:] = torch.linspace(-1, 1, worlds)[:, None]
        return trot.step(model, state, torch.full((worlds, 3), 0.1), 1 / 60, 4).joint_q

    threads = trot.get_num_threads()
    try:
        trot.set_num_threads(1)
        first = moved(50)
        kernel = run.kernels.programs[FORWARD].compiled
        (kept,) = (launch for (of, *_), (launch, _) in run._recorded._commands.items() if of is kernel)
        moved(3)
        again = moved(50)
        trot.set_num_threads(3)
        shared = moved(50)
    finally:
        trot.set_num_threads(threads)
    assert first.equal(again) and first.equal(shared)
    launches = [launch for (of, *_), (launch, _) in run._recorded._commands.items() if of is kernel]
    assert kept in launches and len(launches) <= 3, "one for each thread that shares the worlds"


def test_a_robot_loaded_twice_is_compiled_once() -> None:
    """Two models with the same source share its kernels: C++ has no room for a second definition."""
    runs = [launcher(trot.load_model(ASSETS / "cartpole.xml"), Variant(torch.float32), CPU) for _ in range(2)]
    assert runs[0] is not runs[1]
    assert runs[0].kernels.programs[FORWARD].compiled is runs[1].kernels.programs[FORWARD].compiled


def test_the_gate_is_where_the_kernels_are_named() -> None:
    """Every pointer in the list has a shape, or is filled in by the Launcher."""
    for group in FORWARD.groups[1:]:
        for argument in group.arguments:
            assert bool(argument.shape) == argument.is_tensor
            assert re.fullmatch(r"(const )?(Scalar|Real)\*|int|Scalar", argument.kind)
