"""What step() refuses, and how it says so; how a world that breaks is told from those that do not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from trot.sim.diagnose import NonFiniteError, check_finite
from trot.sim.linearize import linearize
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.threads import set_num_threads

ROOT = Path(__file__).parents[2]
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def hopper() -> Model:
    """6 coordinates, 6 dofs, 3 controls, 4 bodies with a shape each."""
    return load_model(ROOT / "trot" / "envs" / "assets" / "hopper.xml")


@pytest.fixture
def no_kernel(monkeypatch) -> None:
    """Fails a test that gets as far as the kernels."""

    def refuse(*_):
        raise AssertionError("a kernel was prepared in spite of the wrong input")

    monkeypatch.setattr("trot.sim.step.launcher_for", refuse)


def valid(model: Model, num_worlds: int = 3) -> dict:
    """Arguments that step() takes."""
    state = model.default_state(num_worlds)
    return {
        "joint_q": state.joint_q,
        "joint_qd": state.joint_qd,
        "control": torch.zeros(num_worlds, model.num_controls),
        "control_dt": 1 / 60,
        "substeps": 4,
        "parameters": None,
    }


def run(model: Model, function=step, **arguments):
    state = State(arguments.pop("joint_q"), arguments.pop("joint_qd"))
    return function(model, state, **arguments)


def control_with(value: float) -> torch.Tensor:
    control = torch.zeros(3, 3)
    control[2, 1] = value
    return control


WRONG = {
    "joint_q of another robot": ({"joint_q": torch.zeros(3, 22)}, ValueError, r"joint_q must be \(3, 6\).*\(3, 22\)"),
    "joint_qd too narrow": ({"joint_qd": torch.zeros(3, 5)}, ValueError, r"joint_qd must be \(3, 6\).*\(3, 5\)"),
    "joint_qd of fewer worlds": ({"joint_qd": torch.zeros(2, 6)}, ValueError, r"joint_qd must be \(3, 6\).*\(2, 6\)"),
    "control of more worlds": ({"control": torch.zeros(4, 3)}, ValueError, r"control must be \(3, 3\).*\(4, 3\)"),
    "control too wide": ({"control": torch.zeros(3, 8)}, ValueError, r"control must be \(3, 3\).*\(3, 8\)"),
    "control of one world": ({"control": torch.zeros(3)}, ValueError, r"control must be \(3, 3\).*\(3,\)"),
    "no worlds": (
        {"joint_q": torch.zeros(0, 6), "joint_qd": torch.zeros(0, 6), "control": torch.zeros(0, 3)},
        ValueError,
        "at least one world",
    ),
    "integer joint_q": ({"joint_q": torch.zeros(3, 6, dtype=torch.int64)}, TypeError, "joint_q.*float32.*int64"),
    "half joint_q": ({"joint_q": torch.zeros(3, 6, dtype=torch.float16)}, TypeError, "joint_q.*float32.*float16"),
    "integer joint_qd": ({"joint_qd": torch.zeros(3, 6, dtype=torch.int32)}, TypeError, "joint_qd is torch.int32"),
    "double joint_qd": ({"joint_qd": torch.zeros(3, 6, dtype=torch.float64)}, TypeError, "joint_qd.*float64.*float32"),
    "integer control": ({"control": torch.zeros(3, 3, dtype=torch.int64)}, TypeError, "control is torch.int64"),
    "double control": ({"control": torch.zeros(3, 3, dtype=torch.float64)}, TypeError, "control.*float64.*float32"),
    "control of lists": ({"control": [[0.0] * 3] * 3}, TypeError, "control must be a tensor, not list"),
    "no control": ({"control": None}, TypeError, "control must be a tensor, not NoneType"),
    "joint_q elsewhere": ({"joint_q": torch.zeros(3, 6, device="meta")}, ValueError, "joint_q is on meta"),
    "joint_qd elsewhere": ({"joint_qd": torch.zeros(3, 6, device="meta")}, ValueError, "joint_qd is on meta.*on cpu"),
    "control elsewhere": ({"control": torch.zeros(3, 3, device="meta")}, ValueError, "control is on meta.*on cpu"),
    "control nan": ({"control": control_with(NAN)}, ValueError, r"control\[2, 1\] is nan"),
    "control inf": ({"control": control_with(-INF)}, ValueError, r"control\[2, 1\] is -inf"),
    "substeps 0": ({"substeps": 0}, ValueError, "substeps must be .* at least 1, not 0"),
    "substeps -3": ({"substeps": -3}, ValueError, "substeps must be .* at least 1, not -3"),
    "substeps 1.5": ({"substeps": 1.5}, ValueError, "substeps must be an int .* not 1.5"),
    "substeps 2.0": ({"substeps": 2.0}, ValueError, "substeps must be an int .* not 2.0"),
    "substeps nan": ({"substeps": NAN}, ValueError, "substeps must be an int .* not nan"),
    "substeps 2^32 + 1": ({"substeps": 2**32 + 1}, ValueError, "substeps must be .* 32 bits .* not 4294967297"),
    "substeps True": ({"substeps": True}, ValueError, "substeps must be an int .* not True"),
    "dt 1e300": ({"control_dt": 1e300}, ValueError, "control_dt / substeps is 2.5e\\+299 seconds"),
    "dt 1e-300": ({"control_dt": 1e-300}, ValueError, "control_dt / substeps is 2.5e-301 seconds"),
    "dt 0": ({"control_dt": 0.0}, ValueError, "control_dt must be .* not 0"),
    "dt negative": ({"control_dt": -0.01}, ValueError, "control_dt must be .* not -0.01"),
    "dt nan": ({"control_dt": NAN}, ValueError, "control_dt must be .* not nan"),
    "dt inf": ({"control_dt": INF}, ValueError, "control_dt must be .* not inf"),
    "dt of a tensor": (
        {"control_dt": torch.tensor(0.01, requires_grad=True)},
        ValueError,
        r"control_dt must be a positive float.*tensor",
    ),
    "dt none": ({"control_dt": None}, ValueError, "control_dt must be .* not None"),
    "parameters of a dict": (
        {"parameters": {"friction": torch.ones(4)}},
        TypeError,
        r"parameters must be a trot\.Parameters, not dict",
    ),
    "mass per shape": (
        {"parameters": Parameters(body_mass=torch.ones(5))},
        ValueError,
        r"parameters\.body_mass must be \(4,\) or \(3, 4\).*body.*\(5,\)",
    ),
    "mass 0": (
        {"parameters": Parameters(body_mass=torch.tensor([1.0, 0.0, 1.0, 1.0]))},
        ValueError,
        r"parameters\.body_mass holds 0\.0; .*above 0",
    ),
    "mass nan": (
        {"parameters": Parameters(body_mass=torch.tensor([1.0, NAN, 1.0, 1.0]))},
        ValueError,
        r"parameters\.body_mass holds nan",
    ),
    "friction negative": (
        {"parameters": Parameters(friction=torch.full((3, 4), -0.5))},
        ValueError,
        r"parameters\.friction holds -0\.5; .*0 or more",
    ),
    "friction of a list": (
        {"parameters": Parameters(friction=[0.5] * 4)},
        TypeError,
        r"parameters\.friction must be a tensor, not list",
    ),
    "friction of other worlds": (
        {"parameters": Parameters(friction=torch.ones(2, 4))},
        ValueError,
        r"parameters\.friction must be \(4,\) or \(3, 4\).*shape.*\(2, 4\)",
    ),
    "double stiffness": (
        {"parameters": Parameters(contact_stiffness=torch.ones(4, dtype=torch.float64))},
        ValueError,
        r"parameters\.contact_stiffness is torch\.float64",
    ),
    "integer damping": (
        {"parameters": Parameters(contact_damping=torch.ones(4, dtype=torch.int64))},
        ValueError,
        r"parameters\.contact_damping is torch\.int64",
    ),
    "friction stiffness elsewhere": (
        {"parameters": Parameters(friction_stiffness=torch.ones(4, device="meta"))},
        ValueError,
        r"parameters\.friction_stiffness.*meta",
    ),
}


@pytest.mark.parametrize("function", [step, linearize, check_finite], ids=lambda function: function.__name__)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_named_before_any_kernel_runs(hopper, no_kernel, case, function):
    wrong, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        run(hopper, function, **{**valid(hopper), **wrong})


def test_valid_arguments_pass(hopper):
    """The arguments that the cases above spoil."""
    assert run(hopper, **valid(hopper)).finite.all()


@pytest.mark.parametrize("value", [torch.zeros(6), torch.zeros(1, 2, 6), [[0.0] * 6], None])
@pytest.mark.parametrize("name", ["joint_q", "joint_qd"])
def test_state_wants_two_dimensions(name, value):
    tensors = {"joint_q": torch.zeros(1, 6), "joint_qd": torch.zeros(1, 6), name: value}
    with pytest.raises(ValueError, match=rf"State\.{name} must be a tensor \(num_worlds"):
        State(**tensors)


def test_state_is_read_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        State(torch.zeros(1, 6), torch.zeros(1, 6)).joint_q = torch.zeros(1, 6)


def test_number_of_worlds_and_threads_are_positive(hopper):
    with pytest.raises(ValueError, match=r"num_worlds must be .* at least 1, not 0"):
        hopper.default_state(0)
    with pytest.raises(ValueError, match=r"threads must be .* at least 1, not 0"):
        set_num_threads(0)
    with pytest.raises(ValueError, match=r"num_worlds must be a whole number .* not 2\.5"):
        hopper.default_state(2.5)
    with pytest.raises(ValueError, match=r"threads must be a whole number .* not 2\.5"):
        set_num_threads(2.5)


def test_strides_do_not_matter(hopper):
    """Views of other tensors, here every other world of twice as many and transposed controls."""
    arguments = valid(hopper, 6)
    arguments["joint_qd"] = torch.linspace(-1, 1, 36).reshape(6, 6)
    arguments["control"] = torch.linspace(-1, 1, 18).reshape(3, 6).T
    views = {name: value[::2] if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    copies = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in views.items()}
    assert not views["control"].is_contiguous()
    assert torch.equal(run(hopper, **views).joint_qd, run(hopper, **copies).joint_qd)


def test_inputs_are_not_written_to(hopper):
    arguments = valid(hopper)
    arguments["joint_qd"] = torch.ones(3, 6)
    before = {name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    run(hopper, **arguments)
    for name, value in before.items():
        assert torch.equal(arguments[name], value)


# Worlds that break.


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_finite_flags_exactly_the_broken_worlds(bad):
    joint_q, joint_qd = torch.zeros(5, 3), torch.zeros(5, 2)
    joint_q[1, 2] = bad
    joint_qd[4, 0] = bad
    assert State(joint_q, joint_qd).finite.tolist() == [True, False, True, True, False]


def test_a_step_that_blows_up_is_flagged(hopper):
    """1e30 rad/s squared is beyond float32, and so is what a damper does with it over a step of a million seconds."""
    arguments = valid(hopper)
    arguments["joint_qd"][1, 3] = 1e30
    assert run(hopper, **arguments).finite.tolist() == [True, False, True]
    assert not run(hopper, **{**valid(hopper), "control_dt": 1e6, "substeps": 16}).finite.any()


TWO_SLIDES = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body>
      <joint name="calm" type="slide"/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    </body>
    <body>
      <joint name="wild" type="slide" damping="1e10"/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    </body>
  </worldbody>
</mujoco>"""


PUSHED_SLIDE = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body>
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="rail" gear="1e38"/></actuator>
</mujoco>"""


def two_slides(speeds: list[float]) -> tuple[Model, State, torch.Tensor]:
    """One world per speed of the slide with a damper that no step survives.

    With substeps of 1 s, v <- v (1 - 1e10): speed and distance gain ten digits each time. Once the bodies are 1e20 m
    apart, the square of that, in the moment of inertia, is beyond the 3.4e38 of float32.
    """
    model = load_model(TWO_SLIDES)
    state = model.default_state(len(speeds))
    state.joint_qd[:, 1] = torch.tensor(speeds)
    return model, state, torch.zeros(len(speeds), 0)


def test_check_finite_names_world_substep_and_dof():
    """World 3 starts at 1 m/s: 1e10 and 1e20 m after substeps 0 and 1, so substep 2 overflows. World 1 takes longer."""
    model, state, control = two_slides([0.0, 1e-20, 0.0, 1.0])
    with pytest.raises(NonFiniteError, match=r"world 3 .* substep 2, .* dof 'wild' .*2 worlds") as caught:
        check_finite(model, state, control, 8.0, 8)
    assert (caught.value.world, caught.value.substep, caught.value.dof) == (3, 2, "wild")
    assert step(model, state, control, 8.0, 8).finite.tolist() == [True, False, True, False]


def test_check_finite_passes_a_step_that_stays_finite():
    """Two substeps bring a speed of 1 m/s to 1e20, and no further."""
    model, state, control = two_slides([0.0, 1e-20, 0.0, 1.0])
    check_finite(model, state, control, 2.0, 2)
    assert step(model, state, control, 2.0, 2).finite.all()


@pytest.mark.parametrize("tensor", ["joint_q", "joint_qd"])
def test_check_finite_tells_a_state_that_was_bad_before(tensor):
    model, state, control = two_slides([0.0] * 20)
    getattr(state, tensor)[17, 0] = NAN
    with pytest.raises(NonFiniteError, match=r"world 17 .* before the step, .* 'calm'") as caught:
        check_finite(model, state, control, 8.0, 8)
    assert (caught.value.world, caught.value.substep, caught.value.dof) == (17, None, "calm")


def test_check_finite_names_the_dof_of_a_quaternion():
    model = load_model(ROOT / "tests" / "robots" / "every_joint.xml")
    state = model.default_state(2)
    neck = int(model.joint_q_start[model.joint_name.index("neck")])
    state.joint_q[1, neck + 2] = INF
    with pytest.raises(NonFiniteError, match=r"world 1 .* 'neck\.rx'"):
        check_finite(model, state, torch.zeros(2, model.num_controls), 1 / 60, 4)


def test_check_finite_knows_parameters(hopper):
    """What only one world's parameters break: bodies so heavy that their squares leave float32."""
    mass = torch.tensor(hopper.body_mass, dtype=torch.float32).repeat(3, 1)
    mass[1] = 1e38
    arguments = {**valid(hopper), "parameters": Parameters(body_mass=mass)}
    with pytest.raises(NonFiniteError) as caught:
        run(hopper, check_finite, **arguments)
    assert (caught.value.world, caught.value.substep) == (1, 0)


def test_check_finite_names_the_substep_whose_integration_overflows():
    """A finite force on 3e38 m/s: the velocity leaves float32 in substep 0, every acceleration before it is finite."""
    model = load_model(PUSHED_SLIDE)
    state = State(torch.zeros(1, 1), torch.full((1, 1), 3e38))
    with pytest.raises(NonFiniteError) as caught:
        check_finite(model, state, torch.ones(1, 1), 2.0, 2)
    assert (caught.value.world, caught.value.substep, caught.value.dof) == (0, 0, "rail")


def test_a_model_that_is_a_path_is_named(hopper):
    with pytest.raises(TypeError, match=r"model must be a trot\.Model.*load_model.* not str"):
        step("hopper.xml", hopper.default_state(3), torch.zeros(3, 3), 1 / 60)


@pytest.mark.parametrize("entry, dof", [(1, "root.y"), (2, "root.z"), (3, "root.rx"), (6, "root.rx")])
def test_check_finite_tells_the_coordinates_of_a_free_joint_apart(entry, dof):
    ant = load_model(ROOT / "trot" / "envs" / "assets" / "ant.xml")
    state = ant.default_state(2)
    state.joint_q[1, entry] = NAN
    with pytest.raises(NonFiniteError) as caught:
        check_finite(ant, state, torch.zeros(2, 8), 1 / 60, 4)
    assert (caught.value.world, caught.value.substep, caught.value.dof) == (1, None, dof)


def test_parameters_of_a_robot_without_shapes():
    """CartPole touches nothing: twice its masses and twice the force give the same motion, but for the armature."""
    cartpole = load_model(ROOT / "trot" / "envs" / "assets" / "cartpole.xml")
    state = State(torch.tensor([[0.3, 2.0]]), torch.tensor([[0.5, -1.0]]))
    control = torch.full((1, 1), 0.4)
    same = step(cartpole, state, control, 1 / 60, 4, Parameters())
    assert torch.equal(same.joint_qd, step(cartpole, state, control, 1 / 60, 4).joint_qd)
    mass = torch.tensor(cartpole.body_mass, dtype=torch.float32)
    heavier = step(cartpole, state, control, 1 / 60, 4, Parameters(body_mass=2 * mass))
    assert abs(heavier.joint_qd[0, 0]) < abs(same.joint_qd[0, 0])


def test_second_derivatives_are_refused(hopper):
    """A loss linear in the velocities would otherwise give a gradient without a graph: a penalty on it does nothing."""
    arguments = valid(hopper)
    control = arguments.pop("control").requires_grad_()
    following = run(hopper, control=control, **arguments)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(following.joint_qd.sum(), control, create_graph=True)


def test_a_state_that_is_none_is_named(hopper):
    with pytest.raises(TypeError, match=r"state must be a trot\.State, not tuple"):
        step(hopper, (torch.zeros(3, 6), torch.zeros(3, 6)), torch.zeros(3, 3), 1 / 60)


def test_a_nan_control_shows_in_the_state(hopper, monkeypatch):
    """Where the control cannot be looked at beforehand, as in a graph capture, clamping must not swallow it."""
    monkeypatch.setattr("trot.sim.step._check_control_finite", lambda control: None)
    arguments = {**valid(hopper), "control": control_with(NAN)}
    assert run(hopper, **arguments).finite.tolist() == [True, True, False]
