"""What the contract refuses: mistakes that the author of an algorithm makes, each named where it is made."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import docking
import pytest
import torch

from trot.cli import main
from trot.envs.registry import make_env
from trot.learn.agent import AgentDescription
from trot.learn.algorithms import find_algorithm
from trot.learn.capture import fast_phases
from trot.learn.learner import Algorithm, Learner, LearnerSettings, Phase
from trot.runs.folder import RunFolder
from trot.sim.threads import get_num_threads, set_num_threads

TASK = f"{docking.__file__}:Docking"
REINFORCE = f"{Path(__file__).parents[2] / 'examples' / 'own_algorithm' / 'reinforce.py'}:REINFORCE"


@dataclass(frozen=True)
class Small(LearnerSettings):
    num_worlds: int = 4
    iterations: int = 3


class Idle(Learner):
    """Acts, and learns nothing."""

    columns = ("fitness",)
    given = {"fitness": torch.ones(())}  # noqa: RUF012
    concludes = 1

    def __init__(self, env, settings, seed=0):
        super().__init__(env, settings, seed)
        with self.seeded():
            self.make_agent(AgentDescription(env.num_observations, env.num_actions, (4,)))

    def phases(self):
        return (Phase("act", self.act),)

    @torch.no_grad()
    def act(self):
        _, reward, terminated, truncated, _ = self.env.step(self.agent(self.env.begin_window()))
        for _ in range(self.concludes):
            self.conclude(reward.unsqueeze(0), (terminated | truncated).unsqueeze(0), self.given)


def learner(kind=Idle, **attributes):
    return type("Variant", (kind,), attributes)(make_env(TASK, 4), Small())


def test_an_algorithm_that_learns_nothing_keeps_its_books():
    idle = learner()
    for _ in range(docking.STEPS):
        idle.iterate()
    found = dict(zip(idle.all_columns(), idle.metrics.tolist(), strict=True))
    assert found["episodes"] == 4 and found["episode_length"] == docking.STEPS and found["fitness"] == 1
    assert int(idle.steps) == 4 * docking.STEPS and int(idle.iteration) == docking.STEPS


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"columns": ("fitness", "reward")}, r"Variant\.columns: there is a column 'reward' already"),
        ({"columns": ("fitness", "fitness")}, "there is a column 'fitness' already"),
        ({"shown": {"how": "fittness"}}, r"Variant\.shown: there is no column 'fittness'"),
        ({"given": {}}, r"conclude\(\) was given the columns \[\]; `columns` says \['fitness'\]"),
        ({"given": {"fitness": torch.ones(()), "more": torch.ones(())}}, r"\['fitness', 'more'\]; `columns` says"),
        ({"given": {"fitness": 1.0}}, "'fitness' must be a tensor without dimensions"),
        ({"given": {"fitness": torch.ones(2)}}, "'fitness' must be a tensor without dimensions"),
    ],
)
def test_columns_that_do_not_fit(attributes, message):
    with pytest.raises(ValueError, match=message):
        learner(**attributes).iterate()


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ((Phase("act", print), Phase("act", print)), "two phases have the same name: act, act"),
        ((Phase("act", print, beside_last=True),), "the first phase, 'act', has none before it"),
        (
            (Phase("act", print), Phase("fit", print, beside_last=True), Phase("tell", print, beside_last=True)),
            "'tell' cannot run beside 'fit', which runs beside another itself",
        ),
    ],
)
def test_phases_that_do_not_fit(phases, message):
    with pytest.raises(ValueError, match=message):
        fast_phases(learner(phases=lambda self: phases))


def test_a_phase_that_says_so_runs_several_times():
    ran = []
    phases = (Phase("once", lambda: ran.append("once")), Phase("thrice", lambda: ran.append("thrice"), times=3))
    counting = learner(phases=lambda self: phases)
    counting.iterate()
    assert ran == ["once", "thrice", "thrice", "thrice"]
    ran.clear()
    for run in fast_phases(counting).values():
        run(0)
    assert ran == ["once", "thrice", "thrice", "thrice"]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


def test_a_phase_beside_another_has_a_thread_where_there_are_two(threads):
    ran, both = {}, threading.Barrier(threads, timeout=10)

    def noted(name):
        def run():
            if name != "tell":
                # With two threads neither ends before the other has begun.
                both.wait()
            ran[name] = threading.current_thread().name

        return run

    phases = (Phase("act", noted("act")), Phase("fit", noted("fit"), beside_last=True), Phase("tell", noted("tell")))
    for run in fast_phases(learner(phases=lambda self: phases)).values():
        run(0)
    here = threading.current_thread().name
    assert ran == {"act": here, "fit": "trot" if threads == 2 else here, "tell": here}


def test_an_error_beside_another_phase_comes_out_in_its_turn(threads):
    def fail():
        raise ArithmeticError("the fit")

    act, fit = fast_phases(
        learner(phases=lambda self: (Phase("act", lambda: None), Phase("fit", fail, beside_last=True)))
    ).values()
    act(0)
    with pytest.raises(ArithmeticError, match="the fit"):
        fit(0)


def test_a_phase_takes_part_only_where_it_is_due():
    ran = []
    phases = (
        Phase("first", lambda: ran.append("first"), due=lambda iteration: iteration < 2),
        Phase("even", lambda: ran.append("even"), due=lambda iteration: iteration % 2 == 0, times=2),
        Phase("always", lambda: ran.append("always")),
    )
    expected = [["first", "even", "even", "always"], ["first", "always"], ["even", "even", "always"], ["always"]]
    counting = learner(phases=lambda self: phases)
    for iteration, names in enumerate(expected):
        counting.iteration.fill_(iteration)
        counting.iterate()
        assert ran == names
        ran.clear()
        for run in fast_phases(counting).values():
            run(iteration)
        assert ran == names
        ran.clear()


@pytest.mark.parametrize("late", [0, 1])
def test_a_phase_that_is_not_always_due_runs_beside_no_other(late):
    due = [None, None]
    due[late] = lambda iteration: iteration > 3
    phases = (Phase("act", print, due=due[0]), Phase("fit", print, due=due[1], beside_last=True))
    with pytest.raises(ValueError, match="'fit' cannot run beside 'act': one of them is not always due"):
        fast_phases(learner(phases=lambda self: phases))


def test_an_algorithm_needs_a_preset_and_its_settings_must_fit():
    with pytest.raises(ValueError, match="'mine' has no preset"):
        Algorithm("mine", "Mine", "", Small, Idle, {})
    mine = Algorithm("mine", "Mine", "", Small, Idle, {"tuned": lambda task: Small(speed=3)})
    with pytest.raises(ValueError, match=r"the preset 'tuned' of 'mine' gives no settings for 'ant': .*speed"):
        mine.resolve("ant")


OWN_FILE = """
import torch
from test_learner_parts import Idle, Small
from trot.learn.learner import Algorithm

class Twice(Idle):
    concludes = 2

class Never(Idle):
    concludes = 0

class Agentless(Idle):
    def make_agent(self, description): pass

def algorithm(learner):
    return Algorithm("own", "Own", "", Small, learner, {"tuned": lambda task: Small()})

ONCE, TWICE, NEVER, AGENTLESS = map(algorithm, (Idle, Twice, Never, Agentless))
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A file that names the classes above, as a user's would define them."""
    import sys
    import types

    parts = types.ModuleType("test_learner_parts")
    parts.Idle, parts.Small = Idle, Small
    monkeypatch.setitem(sys.modules, "test_learner_parts", parts)
    (tmp_path / "own.py").write_text(OWN_FILE)
    monkeypatch.chdir(tmp_path)
    return "own.py"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TWICE", "1 iterations, but 2 calls of conclude(): the last phase of Twice is to call it once"),
        ("NEVER", "1 iterations, but 0 calls of conclude()"),
        ("AGENTLESS", "Agentless has no agent: its __init__ is to call make_agent()"),
        ("OTHER", "own.py has no algorithm 'OTHER'; it has: ONCE, TWICE, NEVER, AGENTLESS"),
    ],
)
def test_mistakes_in_a_file_are_one_line(own_file, name, message, capsys):
    assert main(["train", TASK, "--algo", f"{own_file}:{name}", "--device", "cpu"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]


def test_an_algorithm_that_changed_since_is_not_resumed(own_file, capsys, monkeypatch):
    train = ["train", TASK, "--algo", f"{own_file}:ONCE", "--device", "cpu", "--name", "run"]
    assert main(train) == 0
    before = (Path("runs") / "run" / "metrics.csv").read_bytes()
    for changes, message in (
        ({"columns": ("fitness", "more")}, "other columns of metrics than the algorithm has now: more"),
        ({"__init__": with_a_buffer}, "does not fit its task, algorithm and settings as they are now"),
    ):
        with monkeypatch.context() as patch:
            for name, value in changes.items():
                patch.setattr(Idle, name, value)
            assert main(["resume", "runs/run", "--iterations", "5"]) == 2
        assert message in capsys.readouterr().err
        assert (Path("runs") / "run" / "metrics.csv").read_bytes() == before
    assert main(["resume", "runs/run", "--iterations", "5"]) == 0
    # From elsewhere the file is not found, and the message says from where it looked.
    monkeypatch.chdir(Path("runs"))
    assert main(["resume", "run", "--iterations", "7"]) == 2
    assert f"no algorithm file 'own.py', seen from '{Path.cwd()}'" in capsys.readouterr().err


original = Idle.__init__


def with_a_buffer(self, *arguments):
    original(self, *arguments)
    self.register_buffer("more", torch.zeros(3))


def test_weights_that_are_not_finite_stop_a_run_and_are_never_kept(tmp_path, capsys):
    """REINFORCE with a rate that throws its weights away, on returns below zero: a world that blows up gets 0."""
    options = ["--lr", "1e38", "--num-worlds", "4", "--iterations", "40", "--device", "cpu", "--runs", str(tmp_path)]
    assert main(["train", TASK, "--algo", REINFORCE, *options, "--save-every", "1", "--name", "run"]) == 2
    assert "a number that is not finite in iteration" in capsys.readouterr().err
    run = RunFolder.open(tmp_path / "run")
    for name in run.checkpoint_names():
        assert all(tensor.isfinite().all() for tensor in run.load_checkpoint(name)["agent"].values())


def test_the_example_learns(tmp_path):
    """REINFORCE on the toy: better than doing nothing, which the optimum beats by far."""
    algorithm = find_algorithm(REINFORCE)
    settings = replace(algorithm.resolve(TASK), num_worlds=64, horizon=docking.STEPS, iterations=150, hidden=(16,))
    own = algorithm.learner(make_env(TASK, 64), settings, 0)
    returns = []
    for _ in range(settings.iterations):
        own.iterate()
        returns.append(own.reward.sum(dim=0).mean().item())
    assert sum(returns[-10:]) / 10 > 0.6 * sum(returns[:10]) / 10
