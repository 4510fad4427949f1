"""Ranges of settings: what is drawn lies in them, spread out, and what cannot be read is named."""

import math
import random

import pytest

from trot.tune.space import REACH, Range, first_draws, parse_ranges, stepped

ALLOWED = ("actor_lr", "gamma", "max_grad_norm")


@pytest.mark.parametrize(
    ("text", "middle"),
    [
        ("actor_lr=log:1e-4:1e-2", 1e-3),
        ("max_grad_norm=0.5:2.5", 1.5),
        ("max-grad-norm=linear:-1:3", 1.0),
        ("gamma=log1m:0.9:0.999", 0.99),
    ],
)
def test_the_middle_of_a_range_by_hand(text, middle):
    one = Range.parse(text)
    assert one.at(0.5) == middle
    assert (one.at(0.0), one.at(1.0)) == (one.low, one.high)
    assert one.place(middle) == pytest.approx(0.5, abs=1e-12)
    assert one.low in one and one.high in one and one.high + 1e-9 not in one


def test_values_are_short_to_write():
    one = Range.parse("gamma=log1m:0.9:0.99999")
    assert all(len(repr(1 - one.at(place / 97))) > 0 and one.at(place / 97) < 1 for place in range(98))
    assert Range.parse("actor_lr=log:1e-4:1e-2").at(1 / 3) == 0.0004642


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("actor_lr", "--over takes NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=log1m:LOW:HIGH, not 'actor_lr'"),
        ("actor_lr=1e-3", "--over takes"),
        ("=1:2", "--over takes"),
        ("actor_lr=low:high", "--over takes"),
        ("actor_lr=log:1e-3:", "--over takes"),
        ("actor_lr=log10:1e-3:1", "the scale must be one of linear, log, log1m, not 'log10'"),
        ("actor_lr=a:b:1:2", "the scale must be one of"),
        ("actor_lr=2:1", "the smaller one first"),
        ("actor_lr=1:1", "the smaller one first"),
        ("actor_lr=0:inf", "must be finite"),
        ("actor_lr=nan:1", "must be finite"),
        ("actor_lr=log:0:1", "on a log scale both ends must be above 0"),
        ("gamma=log1m:0.9:1", "on a log1m scale both ends must be below 1"),
    ],
)
def test_what_is_no_range_is_named(text, said):
    with pytest.raises(ValueError, match="--over") as error:
        parse_ranges([text], ALLOWED)
    assert said in str(error.value)


def test_other_settings_are_refused_with_those_that_can():
    with pytest.raises(
        ValueError, match=r"cannot search for horizon: .* differ in actor_lr, gamma, max_grad_norm"
    ) as no:
        parse_ranges(["actor_lr=1:2", "horizon=16:32"], ALLOWED)
    assert "--groups horizon=A,B" in str(no.value)
    with pytest.raises(ValueError, match="names gamma twice"):
        parse_ranges(["gamma=0:1", "gamma=0:0.5"], ALLOWED)
    with pytest.raises(ValueError, match="names no setting to search for; there are actor_lr, gamma, max_grad_norm"):
        parse_ranges([], ALLOWED)


def test_first_draws_take_every_part_of_every_range_once():
    ranges = parse_ranges(["actor_lr=log:1e-4:1e-2", "gamma=0.5:0.9"], ALLOWED)
    draws = first_draws(ranges, 8, random.Random("a"))
    for one in ranges:
        # Four digits may bring a draw at a part's edge over it.
        places = sorted(one.place(draw[one.name]) * 8 for draw in draws)
        assert all(part - 0.01 <= place <= part + 1.01 for part, place in enumerate(places))
    order = [sorted(range(8), key=lambda index, name=one.name: draws[index][name]) for one in ranges]
    assert order[0] != order[1] and draws != first_draws(ranges, 8, random.Random("b"))
    assert draws == first_draws(ranges, 8, random.Random("a"))


@pytest.mark.parametrize("place", [0.0, 0.05, 0.5, 1.0])
def test_steps_stay_in_the_range_and_within_reach(place):
    one = Range.parse("actor_lr=log:1e-4:1e-2")
    draw = random.Random(1)
    values = {"actor_lr": one.at(place)}
    found = [one.place(stepped([one], values, draw)["actor_lr"]) for _ in range(300)]
    assert min(found) >= -1e-12 and max(found) <= 1 + 1e-12
    assert max(abs(other - place) for other in found) <= REACH + 1e-3
    # Both sides are tried where there are two.
    assert math.isclose(min(found), max(place - REACH, 0.0), abs_tol=0.02)
    assert math.isclose(max(found), min(place + REACH, 1.0), abs_tol=0.02)
