"""The gradient check itself, on plain functions whose derivatives are known in closed form."""

import math
from functools import partial

import pytest
import torch

from trot.sim.differences import Direction, best_slopes, difference
from trot.sim.gradient_check import STEPS, check_input, gradients, report, require_sensible

WORLDS, COORDINATES = 5, 6
TOLERANCE = 1e-6


def points():
    return 0.3 + torch.rand(WORLDS, COORDINATES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def smooth(x):
    """(worlds, 2) terms; the derivative of their sum is smooth_slope()."""
    return torch.stack([x.sin().sum(dim=1), (x**3).sum(dim=1)], dim=1)


def smooth_slope(x):
    return x.cos() + 3 * x**2


def along_coordinates(function, x):
    def moved(k, distance):
        offset = torch.zeros_like(x)
        offset[:, k] = distance
        return function(x + offset)

    return [Direction(f"x{k}", 1.0, partial(moved, k)) for k in range(x.shape[1])]


def check(function, x, gradient, tolerance=TOLERANCE):
    return check_input("x", function(x), along_coordinates(function, x), gradient.T, tolerance)


def test_a_right_gradient_passes_everywhere():
    x = points()
    row = check(smooth, x, smooth_slope(x))
    assert (row.wrong, row.checked, row.skipped) == (0, WORLDS * COORDINATES, 0)
    assert row.error < 1e-8
    assert row.largest == float(smooth_slope(x).max())


@pytest.mark.parametrize(
    "spoil",
    [lambda g: 1.001 * g, lambda g: -g, lambda g: 2 * g, lambda g: 0 * g],
    ids=["1e-3", "sign", "factor", "cut"],
)
def test_a_gradient_that_is_wrong_in_one_coordinate_fails_there(spoil):
    x = points()
    gradient = smooth_slope(x)
    gradient[:, 2] = spoil(gradient[:, 2])
    row = check(smooth, x, gradient)
    assert (row.wrong, row.skipped) == (WORLDS, 0)
    assert row.worst.startswith("x2, ")
    steepest = smooth_slope(x).amax(dim=1)
    assert row.error == pytest.approx(
        float(((gradient - smooth_slope(x)).abs().amax(dim=1) / steepest).max()), rel=1e-3
    )


def test_the_tolerance_is_the_border_between_right_and_wrong():
    x = points()
    steepest = smooth_slope(x).amax(dim=1, keepdim=True)
    assert check(smooth, x, smooth_slope(x) + 3e-6 * steepest).wrong == WORLDS * COORDINATES
    assert check(smooth, x, smooth_slope(x) + 3e-6 * steepest, tolerance=1e-5).wrong == 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_fails_wherever_it_is(bad, capsys):
    x = points()
    gradient = smooth_slope(x)
    gradient[3, 4] = bad
    row = check(smooth, x, gradient)
    assert (row.wrong, row.worst, row.error) == (1, "x4, world 3", math.inf)
    assert not report([row], TOLERANCE)
    printed = capsys.readouterr().out
    assert f"FAILS by x at x4, world 3: the gradient is {bad}" in printed
    assert "gradients are WRONG" in printed


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("function", [torch.abs, lambda x: x * torch.nan], ids=["kink", "blown up"])
def test_it_fails_even_where_differences_tell_nothing(function, bad):
    x = points()
    x[0, 0] = 0
    gradient = torch.ones_like(x)
    assert check(function, x, gradient).wrong == 0
    gradient[0, 0] = bad
    assert check(function, x, gradient).wrong == 1


def test_a_level_loss_is_right_if_the_gradient_is_level_as_well():
    """The loss moves by less than its own rounding: differences are noise, and so is a gradient of 2.6e-17."""
    x = points()

    def level(x):
        return smooth(torch.ones_like(x)) + (x - x.detach().clone()) @ torch.zeros(COORDINATES, 2, dtype=x.dtype)

    def shaken(x):
        # (a + x) - x rounds to something near a: no slope, yet the last bits differ from x to x.
        return smooth((1 + x) - x)

    for function in (level, shaken):
        row = check(function, x, torch.full_like(x, 2.6e-17))
        assert (row.wrong, row.skipped) == (0, 0)
        assert check(function, x, torch.full_like(x, 1e-6)).wrong == WORLDS * COORDINATES


def test_a_loss_that_is_level_to_a_short_step_only_is_not_called_so():
    """1e4 + 1e-6 x: lost in rounding at a step of 1e-5, and plain at 1e-2, though not to the tolerance."""
    x = points()

    def nearly_level(x):
        return 1e4 + 1e-6 * x.sum(dim=1, keepdim=True)

    for gradient in (1e-6, 2e-6):
        row = check(nearly_level, x, torch.full_like(x, gradient))
        assert (row.wrong, row.checked, row.noisy) == (0, 0, WORLDS * COORDINATES)
    assert check(nearly_level, x, torch.full_like(x, 2e-6), tolerance=0.1).wrong == WORLDS * COORDINATES
    assert check(nearly_level, x, torch.full_like(x, 1e-6), tolerance=0.1).checked == WORLDS * COORDINATES


def noisy(size, seed=0):
    """smooth() with independent errors of this size, a new one each time it is asked."""
    generator = torch.Generator().manual_seed(seed)

    def function(x):
        return smooth(x) + size * torch.randn(len(x), 2, generator=generator, dtype=x.dtype) / math.sqrt(2)

    return function


@pytest.mark.parametrize("size", [1e-15, 1e-13, 1e-11, 1e-8, 1e-5])
@pytest.mark.parametrize("steps", [STEPS[:1], STEPS])
def test_the_uncertainty_covers_the_true_error(size, steps):
    """600 slopes per case, none misses by more than it owns up to; yet the claim is not empty."""
    for seed in range(20):
        x, function = points(), noisy(size, seed)
        here = function(x)
        differences = [[difference(d, here, step) for step in steps] for d in along_coordinates(function, x)]
        slopes = best_slopes(differences, here)
        error = (slopes.slope - smooth_slope(x).T).abs()
        assert (error <= slopes.uncertainty).all()
        if size < 1e-10:
            best_possible = 2 * size / max(steps) + max(steps) ** 4
            assert slopes.uncertainty.median() < 100 * best_possible + 100 * 1e-15 / max(steps)


@pytest.mark.parametrize("size", [3e-11, 1e-10])
def test_a_longer_step_sees_through_noise(size):
    """At the first step alone, a right gradient would look wrong."""
    x, function = points(), noisy(size)
    steepest = smooth_slope(x).amax(dim=1)
    first = torch.stack([difference(d, function(x), STEPS[0]).slope for d in along_coordinates(function, x)])
    assert ((first - smooth_slope(x).T).abs() / steepest).max() > TOLERANCE
    row = check(function, x, smooth_slope(x))
    assert (row.wrong, row.kinks) == (0, 0)
    assert row.checked > 0.9 * WORLDS * COORDINATES
    assert check(function, x, 1.001 * smooth_slope(x)).wrong > 0.9 * WORLDS * COORDINATES


def test_too_much_noise_is_neither_right_nor_wrong(capsys):
    x, function = points(), noisy(1e-10)
    for gradient in (smooth_slope(x), (1 + 1e-8) * smooth_slope(x)):
        row = check(function, x, gradient, tolerance=1e-9)
        assert (row.wrong, row.checked) == (0, 0)
        assert row.noisy > 0.8 * WORLDS * COORDINATES
        assert not report([row], TOLERANCE)
        printed = capsys.readouterr().out
        assert "NOT CHECKED" in printed and "rounding" in printed and "right" not in printed


def test_a_loss_that_short_steps_do_not_move_is_not_called_flat(capsys):
    """Rounded to a thousandth it stays where it is for all but the longest step, and a gradient of 1 is right."""
    x = 1e-3 * torch.arange(1, WORLDS * COORDINATES + 1, dtype=torch.float64).view(WORLDS, COORDINATES)
    row = check(lambda x: (1e3 * x).round() / 1e3, x, torch.ones_like(x))
    assert (row.wrong, row.checked) == (0, 0)
    assert not report([row], TOLERANCE) and "NOT CHECKED" in capsys.readouterr().out


def kinked(at, jump=1.0):
    """The first coordinate's slope jumps at this place."""

    def function(x):
        return torch.cat([smooth(x), jump * (x[:, :1] - at).relu()], dim=1)

    return function


@pytest.mark.parametrize("distance", [3e-8, -2e-7, 4e-7])
def test_a_kink_within_every_step_is_left_out(distance):
    x = points()
    gradient = smooth_slope(x)
    gradient[:, 0] += distance < 0
    row = check(kinked(x[:, :1] + distance), x, gradient)
    assert (row.wrong, row.kinks, row.noisy) == (0, WORLDS, 0)
    assert row.checked == WORLDS * (COORDINATES - 1)


@pytest.mark.parametrize("distance", [2e-6, -8e-6, 5e-5, -1e-3])
def test_a_shorter_step_passes_by_a_kink(distance):
    x = points()
    gradient = smooth_slope(x)
    gradient[:, 0] += distance < 0
    row = check(kinked(x[:, :1] + distance), x, gradient)
    assert (row.wrong, row.skipped) == (0, 0)
    gradient[:, 0] *= 1.001
    assert check(kinked(x[:, :1] + distance), x, gradient).wrong == WORLDS


@pytest.mark.parametrize("side", [0.0, 0.5, 1.0])
def test_exactly_at_a_kink_any_slope_between_the_two_sides_is_let_be(side):
    """Central differences agree with each other there at every step: only the bend tells."""
    x = points()
    gradient = smooth_slope(x)
    gradient[:, 0] += side
    row = check(kinked(x[:, :1]), x, gradient)
    assert (row.wrong, row.kinks) == (0, WORLDS)


def test_a_jump_of_the_loss_is_no_measure_for_other_errors():
    """Its difference quotient is 1e5 and more; relative to that, every other error would be small."""
    x = points()

    def jumping(x):
        return torch.cat([smooth(x), (x[:, :1] > points()[:, :1]).double()], dim=1)

    gradient = smooth_slope(x)
    gradient[:, 3] *= 1.001
    row = check(jumping, x, gradient)
    assert (row.wrong, row.kinks) == (WORLDS, WORLDS)
    assert row.worst.startswith("x3, ")


def test_worlds_that_blow_up_are_counted_apart(capsys):
    x = points()
    blown = torch.tensor([False, True, False, True, True])

    def function(x):
        return torch.where(blown.unsqueeze(1), torch.nan, smooth(x))

    row = check(function, x, smooth_slope(x))
    assert (row.wrong, row.checked, row.lost) == (0, 2 * COORDINATES, 3 * COORDINATES)
    assert report([row], TOLERANCE)
    every_world = check(lambda x: smooth(x) * torch.nan, x, smooth_slope(x))
    assert (every_world.checked, every_world.lost) == (0, WORLDS * COORDINATES)
    assert not report([every_world], TOLERANCE)
    assert "NOT CHECKED by x: every world blows up" in capsys.readouterr().out


def test_inputs_without_effect_are_right():
    x = points()
    row = check(lambda x: smooth(torch.ones_like(x)), x, torch.zeros_like(x))
    assert (row.wrong, row.checked, row.error) == (0, WORLDS * COORDINATES, 0)


def test_gradients_that_never_arrive_are_zeros():
    leaves = {name: torch.ones(2, dtype=torch.float64, requires_grad=True) for name in ("used", "unused")}
    found = gradients((2 * leaves["used"]).sum(), leaves)
    assert found["used"].tolist() == [2, 2] and found["unused"].tolist() == [0, 0]
    assert gradients(torch.tensor(1.0), leaves)["used"].tolist() == [0, 0]


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1e-6, 0.0, 1.0])
def test_a_tolerance_that_tells_nothing_is_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance must lie between 0 and 1"):
        require_sensible(tolerance, 0)
