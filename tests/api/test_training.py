"""trot.train() from Python: the run that the command leaves, and a result to look at."""

import sys
import types

import numpy as np
import pytest
import torch
from ctrl_c import ctrl_c_in_iteration
from docking import Docking
from small_run import DOCKING, small_run

import trot
from trot.api.keywords import seed_texts
from trot.api.notebook import InlinePage
from trot.learn.evaluate import evaluate

SMALL = {"num_worlds": 4, "horizon": 8, "actor_hidden": [8], "critic_hidden": (8,), "critic_passes": 2, "device": "cpu"}


class Here(Docking):
    """A task that stands in no module of its own, as in a notebook."""


Here.__module__ = "__main__"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(root):
    return trot.train(Docking, runs=root, name="run", iterations=8, keep_every=2, **SMALL)


def numbers(run):
    return {name: column.tolist() for name, column in trot.load_run(run).metrics.items() if name != "seconds"}


def test_it_is_the_run_of_the_command(trained, tmp_path):
    other = small_run(tmp_path)
    assert numbers(trained.path) == numbers(other)
    ours, theirs = trained.settings, trot.load_run(other).settings
    assert ours == theirs, "every setting is kept as the command keeps it"
    assert trained.task == DOCKING


def test_its_numbers_are_those_of_the_file(trained):
    lines = [line.split(",") for line in (trained.path / "metrics.csv").read_text().splitlines()]
    columns = {name: [float(row[place]) for row in lines[1:]] for place, name in enumerate(lines[0])}
    assert trained.metrics.keys() == columns.keys()
    np.testing.assert_array_equal(trained.metrics["reward"], columns["reward"])
    # Windows of 8 steps: episodes of 24 end in every third of them.
    assert np.isnan(trained.returns[:2]).all()
    np.testing.assert_array_equal(trained.returns[2:], columns["episode_return"][2:])
    assert trained.best_return == columns["best_return"][-1]
    assert trained.checkpoints[0] == "initial" and trained.checkpoints[-1] == "last"


def test_its_policy_acts_and_plays(trained):
    policy = trained.policy("last")
    action = policy(torch.tensor([[0.5, 0.0], [-0.5, 0.0]]))
    assert action.shape == (2, 1) and (action.abs() <= 1).all() and not action.requires_grad
    found = trained.evaluate(6, "last", device="cpu", seed=3)
    assert found.returns == evaluate(policy, Docking(), 6, "cpu", 3).returns
    assert repr(found).startswith("Evaluation(6 episodes: return -")


def test_it_is_drawn(trained):
    pytest.importorskip("matplotlib", reason='needs Matplotlib: pip install "trot[plot]"')
    figure = trained.plot()
    assert len(figure.axes) == 2
    assert figure._repr_png_().startswith(b"\x89PNG"), "what a notebook shows"


def test_it_is_shown_in_a_frame_that_cannot_reach_the_notebook(trained, tmp_path):
    pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')
    shown = trained.show(seconds=0.3)
    assert repr(shown).startswith("InlinePage(run, best, 4 frames")
    html = InlinePage('<b title="a">', "a run's", 1)._repr_html_()
    assert 'srcdoc="&lt;b title=&quot;a&quot;&gt;"' in html and 'title="a run&#x27;s"' in html
    assert 'sandbox="allow-scripts"' in html
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == shown.text and "<title>trot: " in shown.text


def test_several_seeds_come_back_together(root, trained):
    runs = trot.train(DOCKING, runs=root, name="many", seeds=range(2), iterations=8, **SMALL)
    assert [run.settings["seed"] for run in runs] == [0, 1] and len(runs) == 2
    np.testing.assert_array_equal(runs.returns, np.stack([run.returns for run in runs]))
    # Products of stacked networks are summed in another order.
    np.testing.assert_allclose(runs[0].metrics["reward"], trained.metrics["reward"], rtol=1e-5)
    best = [run.best_return for run in runs]
    assert repr(runs).endswith(f"from {min(best):.1f} to {max(best):.1f})")
    further = trot.resume(*(run.path for run in runs), iterations=9)
    assert [len(run.returns) for run in further] == [9, 9]


@pytest.mark.parametrize(("given", "texts"), [("0-2 7", ("0-2", "7")), (range(2), ("0", "1")), ([3, 1], ("3", "1"))])
def test_seeds_as_python_has_them(given, texts):
    assert seed_texts(given) == texts


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"num_world": 3}, TypeError, "takes no 'num_world' with shac. Did you mean num_worlds?"),
        ({"iteratons": 3}, TypeError, "Did you mean iterations?"),
        ({"sede": 3}, TypeError, "Did you mean seed?"),
        ({"num_worlds": "3"}, TypeError, "num_worlds must be a whole number, not '3'"),
        ({"num_worlds": True}, TypeError, "num_worlds must be a whole number, not True"),
        ({"num_worlds": 0}, ValueError, "num_worlds must be at least 1"),
        ({"actor_lr": "fast"}, TypeError, "actor_lr must be a number, not 'fast'"),
        ({"actor_hidden": 8}, TypeError, "actor_hidden must be a tuple, not 8"),
        ({"policy": "wild"}, ValueError, "policy must be one of"),
        ({"minutes": -1}, ValueError, "minutes must be above 0"),
        ({"algo": "shak"}, ValueError, "Did you mean shac?"),
        ({"preset": "best"}, ValueError, "preset must be one of"),
        ({"seed": 1, "seeds": [1]}, TypeError, "give one of them"),
        ({"worlds": 3, "num_worlds": 3}, TypeError, "give one of them"),
        ({"worlds": 0}, ValueError, "num_worlds must be at least 1"),
        ({"seeds": []}, ValueError, "names no seed"),
        ({"seeds": [1, 1]}, ValueError, "twice"),
        ({"seeds": 1.5}, TypeError, "seeds are numbers"),
    ],
)
def test_what_it_cannot_take_is_named(tmp_path, given, error, words):
    with pytest.raises(error, match=words.replace("?", r"\?")):
        trot.train(DOCKING, runs=tmp_path, **given)
    assert not list(tmp_path.iterdir()), "nothing was begun"


@pytest.mark.parametrize(("task", "words"), [("dockin", "there is no task 'dockin'"), (3, "not int")])
def test_what_is_no_task_is_named(tmp_path, task, words):
    with pytest.raises((ValueError, TypeError), match=words):
        trot.train(task, runs=tmp_path)


def test_ctrl_c_leaves_a_run_that_goes_on_bit_for_bit(tmp_path, trained, monkeypatch):
    ctrl_c_in_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt) as stopped:
        trot.train(Docking, runs=tmp_path, name="run", iterations=8, keep_every=2, **SMALL)
    path = tmp_path / "run"
    assert str(stopped.value) == (
        f"Stopped after iteration 3. Go on: trot.resume('{path}'), or in a shell: trot resume {path}"
    )
    assert len(trot.load_run(path).returns) == 3
    assert numbers(trot.resume(path).path) == numbers(trained.path)


def test_a_task_of_a_notebook_is_known_to_its_process(tmp_path, trained, monkeypatch, capsys):
    ctrl_c_in_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt, match=r"Go on: trot\.resume\('.*', task=Here\)$"):
        trot.train(Here, runs=tmp_path, iterations=8, **SMALL)
    path = tmp_path / "Here-shac-0"
    assert trot.load_run(path).task == "python:Here"
    went_on = trot.resume(path)
    np.testing.assert_array_equal(went_on.metrics["reward"], trained.metrics["reward"])
    assert went_on.evaluate(2, device="cpu").faults == 0
    monkeypatch.setattr("trot.envs.given_task._given", {})
    with pytest.raises(ValueError, match=r"given from Python, and no file holds it.*load_run\(RUN, task=Here\)"):
        went_on.evaluate(2)
    with pytest.raises(ValueError, match="was trained with the task python:Here, not python:Docking"):
        trot.load_run(path, task=Docking())
    assert trot.load_run(path, task=Here).evaluate(2, device="cpu").faults == 0


def test_an_object_is_taken_as_it_is(tmp_path):
    task = Docking()
    task.episode_length = 8
    run = trot.train(task, runs=tmp_path, iterations=1, **SMALL)
    assert run.task == "python:Docking" and run.path.name == "Docking-shac-0"
    assert run.metrics["episode_length"].tolist() == [8.0]


def test_a_notebook_sees_one_line_that_redraws_itself(tmp_path, trained, monkeypatch, capsys):
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setenv("TERM", "xterm-color")
    trot.train(Docking, runs=tmp_path, iterations=2, **SMALL)
    told = capsys.readouterr()
    assert told.err == ""
    assert "\r[" in told.out and "2/2" in told.out
