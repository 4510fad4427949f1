"""Turns, quaternions, sine and cosine alone: numpy's for values, central differences for adjoints."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from adjoints import NUM_WORLDS, VECTORS, check_adjoint
from manifold import central_difference, quat_exp, quat_product
from numpy.testing import assert_allclose
from probe import PLACES, run_stages

from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)

TURN = """
    Vec3 before_bar, turn_bar;
    turn_adjoint(vec_from(in_turn, 0), vec_from(in_after_bar, 0), before_bar, turn_bar);
    write(out_before_bar, 0, before_bar);
    write(out_turn_bar, 0, turn_bar);
"""


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.1, 0.99, 1.01, 2.5])
def test_adjoint_of_a_turn(every_joint: Model, rng: np.random.Generator, place: str, angle: float) -> None:
    """Oracle: differences of the product q exp(before) exp(turn) of quaternions, seen as a small rotation after it."""
    axis, after_bar = rng.normal(size=(2, NUM_WORLDS, 3))
    turn = angle * axis / np.linalg.norm(axis, axis=1, keepdims=True)

    def small_rotation(before: np.ndarray, turn_after: np.ndarray) -> np.ndarray:
        copies = len(turn_after) // NUM_WORLDS
        back = quat_exp(-np.tile(turn, (copies, 1)))
        after = quat_product(back, quat_product(quat_exp(before), quat_exp(turn_after)))
        return (2 * after[:, 1:] * np.tile(after_bar, (copies, 1))).sum(axis=1)

    def tiled(x: np.ndarray) -> np.ndarray:
        return np.tile(turn, (len(x) // NUM_WORLDS, 1))

    inputs = {"turn": turn, "after_bar": after_bar}
    found = run_stages(every_joint, VECTORS + TURN, inputs, {"before_bar": 3, "turn_bar": 3}, place)
    by_before = central_difference(lambda x: small_rotation(x, tiled(x)), np.zeros((NUM_WORLDS, 3)), 1e-4).value
    by_turn = central_difference(lambda x: small_rotation(np.zeros_like(x), x), turn, 1e-4).value
    assert_allclose(found["before_bar"], by_before, atol=1e-10)
    assert_allclose(found["turn_bar"], by_turn, atol=1e-10)


@pytest.mark.parametrize(
    ("dtype", "largest", "accuracy"),
    [
        # A few units in the last place of pi, since the angle is brought there first and its half is doubled back.
        (torch.float64, 1.0, 4e-16),
        (torch.float64, 30.0, 2e-15),
        (torch.float32, 1.0, 2e-7),
        (torch.float32, 1e4, 6e-7),
        # Many turns: a float64 loses as much as the angle's own last place, a float32 a little after 1600 turns.
        (torch.float64, 1e4, 1e-12),
        (torch.float32, 1e5, 2e-6),
    ],
    ids=str,
)
def test_sine_and_cosine(every_joint: Model, place: str, dtype: torch.dtype, largest: float, accuracy: float) -> None:
    """Oracle: numpy at the very angle that the kernel gets."""
    angle = torch.linspace(-largest, largest, 2001, dtype=dtype).double().numpy()[:, None]
    code = "Real s, c; sine_cosine(in_angle(0), s, c); out_sine(0, s); out_cosine(0, c);"
    found = run_stages(every_joint, code, {"angle": angle}, {"sine": 1, "cosine": 1}, place, dtype)
    assert_allclose(found["sine"], np.sin(angle), atol=accuracy, rtol=0)
    assert_allclose(found["cosine"], np.cos(angle), atol=accuracy, rtol=0)


def test_gradient_of_a_quaternion_in_four_numbers_and_in_three(
    every_joint: Model, rng: np.random.Generator, place: str
) -> None:
    """f(q) = w . q / |q|: through the tangent and back comes the gradient by q's four numbers, |q| not 1."""
    code = """
        Real quat[4];
        for (int k = 0; k < 4; ++k) quat[k] = in_quat(k);
        const Quat q = load_quat(quat), unit = normalised(q);
        Quat w;
        w.w = in_w(0);
        w.v = vec_from(in_w, 1);
        const Vec3 tangent = to_tangent(unit, w);
        const Quat back = from_tangent(unit, tangent, norm(q));
        out_value(0, w.w * unit.w + dot(w.v, unit.v));
        write(out_tangent, 0, tangent);
        write(out_quat_bar, 0, back);
        write(out_again, 0, to_tangent(unit, from_tangent(unit, tangent, one())));
    """
    inputs = {"quat": rng.normal(size=(NUM_WORLDS, 4)), "w": rng.normal(size=(NUM_WORLDS, 4))}
    found = check_adjoint(every_joint, code, inputs, {"quat": 1e-5}, {"tangent": 3, "again": 3}, place=place)
    assert_allclose((found["quat_bar"] * inputs["quat"]).sum(axis=1), 0, atol=1e-12)
    assert_allclose(found["again"], found["tangent"], atol=1e-14)
    unit = inputs["quat"] / np.linalg.norm(inputs["quat"], axis=1, keepdims=True)
    by_turn = central_difference(
        lambda q: (q * np.tile(inputs["w"], (len(q) // NUM_WORLDS, 1))).sum(axis=1),
        unit,
        1e-4,
        move=lambda q, turn: quat_product(q, quat_exp(turn)),
        directions=np.broadcast_to(np.eye(3)[:, None], (3, NUM_WORLDS, 3)),
    )
    assert_allclose(found["tangent"], by_turn.value, atol=1e-10)
