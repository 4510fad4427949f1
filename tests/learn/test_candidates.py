"""How many candidates begin where nothing, or only a part, is said; the tables' numbers are typed in here once more."""

from dataclasses import replace
from pathlib import Path

import pytest

import trot
from trot.api import training
from trot.cli import main
from trot.learn.algorithms import find_algorithm
from trot.learn.candidates import end_of_round, rounds_of, with_candidates
from trot.learn.train import parse_settings


@pytest.fixture(autouse=True)
def no_gpu_is_asked_for(monkeypatch):
    """Whatever this machine has, and --device says."""
    monkeypatch.setattr("trot.learn.train.choose_device", lambda device: device.replace("auto", "cpu"))


def begun(*arguments, on_cuda=True, worlds_given=False):
    """Candidates, and the worlds of all of them."""
    device = ["--device", "cuda" if on_cuda else "cpu"]
    found = with_candidates(parse_settings([*arguments, *device]), on_cuda, worlds_given)
    return found.candidates, found.settings.num_worlds


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("cartpole", (1, 64)),
        ("hopper", (8, 8 * 256)),
        ("half_cheetah", (8, 8 * 64)),
        ("ant", (8, 8 * 64)),
        ("humanoid", (8, 8 * 256)),
        ("muscle_humanoid", (8, 8 * 64)),
        ("quadruped", (1, 256)),
    ],
)
def test_unless_told_a_gpu_has_what_serves_the_task_and_the_cpu_one(task, expected):
    assert begun(task) == expected
    assert begun(task, on_cuda=False) == (1, find_algorithm("shac").resolve(task).num_worlds)


@pytest.mark.parametrize(
    "options",
    [
        ["--stop-at", "5000"],
        ["--minutes", "2"],
        ["--preset", "paper"],
        ["--algo", "rpo"],
        ["--algo", "ppo"],
        # The last three rounds have 31 windows of 32 steps: less than an episode of 1000 steps.
        ["--iterations", "191"],
    ],
)
def test_one_alone_where_a_contest_would_not_do_as_asked(options):
    assert begun("ant", *options)[0] == 1
    assert begun("ant", *options)[1] == parse_settings(["ant", *options]).settings.num_worlds


def test_one_alone_goes_on_from_another_run():
    settings = replace(parse_settings(["ant", "--device", "cuda"]), start_from=Path("elsewhere"))
    assert with_candidates(settings, on_cuda=True, worlds_given=False).candidates == 1


def test_the_humanoid_has_wide_networks_on_a_gpu_unless_told_otherwise():
    def preset(*arguments):
        found = parse_settings(["humanoid", *arguments])
        return found.preset, found.settings.actor_hidden, found.settings.critic_hidden

    wide, usual = ((400, 200, 100), (256, 256)), ((256, 128), (128, 128))
    assert preset("--device", "cuda") == preset("--device", "cuda", "--algo", "shac") == ("gpu", *wide)
    assert preset("--device", "cpu", "--preset", "gpu") == ("gpu", *wide)
    assert preset("--device", "cpu") == preset() == ("tuned", *usual)
    assert preset("--device", "cuda", "--preset", "paper") == ("paper", *usual)
    assert parse_settings(["hopper", "--device", "cuda"]).preset == "tuned"
    assert begun("humanoid", "--preset", "gpu") == (8, 8 * 256)
    assert begun("humanoid", "--preset", "tuned") == (1, 64)


def test_so_has_the_call(monkeypatch):
    begun = []

    def begin(settings):
        begun.append(settings)
        raise NotImplementedError

    monkeypatch.setattr(training, "begin", begin)
    for device, preset in (("cuda", "gpu"), ("cpu", "tuned")):
        with pytest.raises(NotImplementedError):
            trot.train("humanoid", device=device)
        assert begun[-1].preset == preset


def test_rounds_of_a_whole_episode_are_enough():
    assert begun("ant", "--iterations", "192") == (8, 512)


def test_under_torchrun_there_is_one(monkeypatch):
    monkeypatch.setattr("trot.learn.candidates.launched", lambda: True)
    assert begun("ant") == (1, 64)


def test_each_begins_with_the_worlds_of_the_preset_unless_all_are_counted():
    assert begun("ant", "--candidates", "4", on_cuda=False) == (4, 256)
    assert begun("ant", "--candidates", "4", "--worlds", "64", on_cuda=False, worlds_given=True) == (4, 64)
    assert begun("ant", "--candidates", "1") == (1, 64)
    assert begun("ant", "--worlds", "1024", worlds_given=True) == (8, 1024)


def test_a_small_batch_is_not_cut_into_eight_unless_that_is_asked_for():
    assert begun("ant", "--worlds", "256", worlds_given=True) == (1, 256)
    assert begun("ant", "--worlds", "256", "--candidates", "8", worlds_given=True) == (8, 256)


def test_what_is_asked_for_is_not_taken_back():
    # It is the contest that refuses, and says why.
    assert begun("ant", "--candidates", "8", "--iterations", "10") == (8, 512)


@pytest.mark.parametrize(("given", "worlds"), [([], 4 * 64), (["--worlds", "32"], 32), (["--num-worlds=32"], 32)])
def test_the_command_knows_which_worlds_were_given(given, worlds, monkeypatch):
    begun = []
    monkeypatch.setattr("trot.learn.begin.train_by_contest", begun.append)
    assert main(["train", "ant", "--candidates", "4", "--device", "cpu", *given]) == 0
    assert begun[0].candidates == 4 and begun[0].settings.num_worlds == worlds


@pytest.mark.parametrize(("given", "worlds"), [({}, 4 * 64), ({"worlds": 32}, 32), ({"num_worlds": 32}, 32)])
def test_so_does_the_call(given, worlds, monkeypatch):
    begun = []

    def begin(settings):
        begun.append(settings)
        raise NotImplementedError

    monkeypatch.setattr("trot.learn.begin.train_by_contest", begin)
    with pytest.raises(NotImplementedError):
        trot.train("ant", candidates=4, device="cpu", **given)
    assert begun[0].candidates == 4 and begun[0].settings.num_worlds == worlds


def test_rounds_by_hand():
    assert [rounds_of(candidates) for candidates in (2, 4, 8, 16)] == [2, 3, 4, 5]
    assert [end_of_round(0, 2, 100)] == [50]
    assert [end_of_round(number, 4, 2000) for number in range(2)] == [1000, 1500]
    assert [end_of_round(number, 8, 3000) for number in range(3)] == [1500, 2000, 2500]
