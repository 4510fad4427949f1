"""The order of packed parameters: one table that C++, random physics and fault reports read."""

from __future__ import annotations

from pathlib import Path

import torch

import trot
from trot.sim.layout import kernel_layout
from trot.sim.parameters import Parameters, columns

ASSETS = Path(trot.__path__[0]) / "envs" / "assets"


def test_columns_of_a_hopper() -> None:
    """4 bodies with a shape each: 4 mass factors, then four figures per shape."""
    hopper = trot.load_model(ASSETS / "hopper.xml")
    assert columns(hopper) == {
        "body_mass": slice(0, 4),
        "contact_stiffness": slice(4, 8),
        "contact_damping": slice(8, 12),
        "friction_stiffness": slice(12, 16),
        "friction": slice(16, 20),
    }
    declared = kernel_layout(hopper, lanes=1).declarations()
    for name, column in (("body_mass", 0), ("contact_damping", 8), ("friction", 16)):
        assert f"constexpr int {name}_column = {column};" in declared
    assert "constexpr int num_parameters = 20;" in declared


def test_each_parameter_is_packed_where_the_table_says() -> None:
    hopper = trot.load_model(ASSETS / "hopper.xml")
    given = {name: torch.rand(3, 4) + 0.5 for name in columns(hopper)}
    row = Parameters(**given).pack(hopper, 3, torch.zeros(()))
    for name, where in columns(hopper).items():
        own_mass = torch.tensor(hopper.body_mass, dtype=torch.float32)
        expected = given[name] / own_mass if name == "body_mass" else given[name]
        torch.testing.assert_close(row[:, where], expected, rtol=1e-6, atol=0)


def test_random_physics_draw_masses_and_friction_alone() -> None:
    env = trot.make_env("ant", num_worlds=16, randomize=trot.Randomize(friction=(0.5, 1.5), mass=(0.8, 1.2)))
    env.reset()
    model, drawn = env.task.model, env.worlds.parameter
    own = Parameters().pack(model, 1, torch.zeros(())).expand_as(drawn)
    for name, where in columns(model).items():
        factor = drawn[:, where] / own[:, where]
        if name == "friction":
            assert 0.5 <= factor.min() < factor.max() <= 1.5
            torch.testing.assert_close(factor, factor[:, :1].expand_as(factor))  # one per world
        elif name == "body_mass":
            assert 0.8 <= factor.min() < factor.max() <= 1.2
        else:
            assert factor.eq(1).all(), name
