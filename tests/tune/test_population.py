"""Rounds of trials: who stays, who takes over from whom, worked out by hand."""

import json
import random

import pytest

from trot.tune.population import Population
from trot.tune.space import Range

RANGES = [Range.parse("actor_lr=log:1e-4:1e-2"), Range.parse("gamma=0.5:0.9")]
PRESENT = {"actor_lr": 2e-3, "gamma": 0.8}


def begun(members=5, present=PRESENT):
    return Population.begin(RANGES, members, random.Random(0), present)


def numbers(trials):
    return [trial.number for trial in trials]


def test_the_present_settings_are_the_first_trial_where_the_ranges_hold_them():
    assert begun().trials[0].values == PRESENT
    drawn = begun(present=PRESENT | {"gamma": 0.99}).trials
    assert drawn[0].values["gamma"] <= 0.9 and drawn[1:] == begun().trials[1:]
    assert {trial.parent for trial in drawn} == {None} and numbers(drawn) == [0, 1, 2, 3, 4]


def test_half_stay_and_the_others_places_go_to_children_of_these():
    population = begun()
    population.conclude([3.0, 9.0, 1.0, None, 5.0])
    population.go_on(RANGES, random.Random(1))
    # 1, 4 and 0 stay where they are; the best has the first child, the second best the next one.
    assert population.places == [[0, 1, 2, 3, 4], [0, 1, 5, 6, 4]]
    assert [(trial.parent, trial.first_round) for trial in population.trials[5:]] == [(1, 1), (4, 1)]
    assert population.round == 1 and numbers(population.present()) == [0, 1, 5, 6, 4]
    for child in population.trials[5:]:
        parent = population.trials[child.parent]
        assert child.values != parent.values
        for one in RANGES:
            assert abs(one.place(child.values[one.name]) - one.place(parent.values[one.name])) < 0.201
    population.conclude([2.0, 2.0, 8.0, -1.0, None])
    assert [(trial.number, score) for trial, score in population.ranked(1)] == [(5, 8.0), (0, 2.0), (1, 2.0), (6, -1.0)]
    assert population.last_score(population.trials[3]) == (0, None)
    assert population.last_score(population.trials[2]) == (0, 1.0)
    assert population.last_score(population.trials[6]) == (1, -1.0)
    assert population.told(1, 4).startswith("Round 2 of 4: best 8 (trial-05: actor_lr ")
    assert population.told(1, 4).endswith("median 2, 1 without a return")


def test_who_has_no_return_never_stays():
    population = begun(4)
    population.conclude([None, None, 7.0, None])
    population.go_on(RANGES, random.Random(1))
    assert population.places[1] == [4, 5, 2, 6]
    assert [trial.parent for trial in population.trials[4:]] == [2, 2, 2]
    population.conclude([1.0, 2.0, 3.0, 4.0])


def test_a_round_without_any_return_ends_the_search():
    population = begun(2)
    with pytest.raises(ValueError, match="no trial has a return after round 1"):
        population.conclude([None, None])
    assert population.round == 0


def test_a_population_is_read_back_as_it_was_written():
    population = begun()
    population.conclude([3.0, 9.0, 0.1 + 0.2, None, 5.0])
    population.go_on(RANGES, random.Random(1))
    read = Population.read(json.loads(json.dumps(population.saved())))
    assert read == population
