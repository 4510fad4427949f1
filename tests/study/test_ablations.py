"""The paper's ablations: what differs between the variants, and their tables worked by hand."""

import csv
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_metrics import make_run

from trot.compare.plan import make_members
from trot.learn.algorithms.shac import SHAC
from trot.study.ablations import CriticSettings, DeterministicSettings, FixedSettingsSettings, write_ablation
from trot.study.study_folder import StudyFolder
from trot.study.training_study import Trained
from trot.view.plots.curves import CURVE_COLUMNS, load_runs
from trot.view.plots.figures import COLOURS
from trot.view.plots.plot import curves_figure

CPU = {"device": "cpu"}
WALKER = f"{Path(__file__).parents[2] / 'examples' / 'walker' / 'my_task.py'}:Walker"


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    monkeypatch.setattr("trot.runs.folder.describe_machine", dict)


def asked(settings, task, folder):
    """Settings of each variant's run, by the variant's name."""
    members = make_members(task, settings.variants(task), (0,), folder, "cpu", None, ["--iterations", "7"], [])
    return {member.variant.name: member.asked.settings for member in members}


def test_deterministic_differs_in_the_policy_alone(tmp_path):
    found = asked(DeterministicSettings(**CPU), "ant", tmp_path)
    assert found["stochastic"] == replace(SHAC.resolve("ant", "paper"), iterations=7)
    assert found["deterministic"] == replace(found["stochastic"], policy="deterministic")


@pytest.mark.parametrize("task", ["cartpole", "hopper", "muscle_humanoid", WALKER])
def test_fixed_settings_are_the_humanoids_on_every_task(tmp_path, task):
    found = asked(FixedSettingsSettings(**CPU), task, tmp_path)
    assert found["tuned"] == replace(SHAC.resolve(task, "paper"), iterations=7)
    # As the paper's section on fixed settings has them.
    expected = {
        "actor_hidden": (256, 128), "critic_hidden": (128, 128), "actor_lr": 2e-3, "critic_lr": 5e-4,
        "target_keep": 0.995, "horizon": 32, "num_worlds": 64, "gamma": 0.99, "td_lambda": 0.95, "critic_passes": 16,
        "critic_batches": 4, "iterations": 7, "policy": "gaussian",
    }  # fmt: skip
    assert {name: asdict(found["fixed"])[name] for name in expected} == expected


def test_with_its_own_networks_the_fixed_setting_is_the_general_preset(tmp_path):
    found = asked(FixedSettingsSettings(**CPU, own_networks=True), "cartpole", tmp_path)
    assert found["fixed"] == replace(SHAC.resolve("cartpole", "general"), iterations=7)
    assert found["fixed"].actor_hidden == (64, 64)


def test_without_the_critic_nothing_else_differs(tmp_path):
    found = asked(CriticSettings(**CPU), "ant", tmp_path)
    assert found["shac"].critic and found["shac-no-critic"] == replace(found["shac"], critic=False)


@pytest.fixture
def trained(tmp_path):
    """Two seeds of each variant on Ant, one on Hopper: rows 100 steps and a second apart, or 2 seconds."""
    runs = []
    for task, variant, label, seed, returns, seconds in [
        ("ant", "stochastic", "Stochastic", 0, [0, 100, 80], 1.0),
        ("ant", "stochastic", "Stochastic", 1, [20, 60, 40], 1.0),
        ("ant", "deterministic", "Deterministic", 0, [10, 40, 50], 2.0),
        ("ant", "deterministic", "Deterministic", 1, [30, 80, 90], 2.0),
        ("hopper", "stochastic", "Stochastic", 0, [1, 2, 3], 1.0),
        ("hopper", "deterministic", "Deterministic", 0, [1, 3, 5], 1.0),
    ]:
        name = f"{task}-{variant}-{seed}"
        (run,) = load_runs([make_run(tmp_path, returns, task, seed=seed, seconds=seconds, name=name)], CURVE_COLUMNS)
        runs.append((None, replace(run, algo=variant, label=label)))
    return Trained("deterministic: seeds 0, 1, on cpu", runs, ["Left out: one."])


def test_tables_by_hand(trained, tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.path.mkdir()
    text = write_ablation(trained, folder)
    assert (folder.path / "table.md").read_text() == text
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "--" not in line
    ]
    # Ant: best 100 and 60, 50 and 90; at the end 80 and 40. Both begin at 10 and 20 on the mean.
    assert cells[:3] == [
        ["variant", "seeds", "best return", "return at the end", "samples", "seconds"],
        ["Stochastic", "2", "80.0 ± 28.3", "60.0 ± 28.3", "300 ± 0", "3 ± 0"],
        ["Deterministic", "2", "70.0 ± 28.3", "70.0 ± 28.3", "300 ± 0", "6 ± 0"],
    ]
    # Half of the way from 10 to 80: Stochastic comes there after 145 and 162.5 steps, Deterministic after 250 and 130.
    (half,) = [row for row in cells if row[:3] == ["45.0", "50 % of the way to Stochastic's best", "Deterministic"]]
    assert half[3:6] == ["2 of 2", "190 ± 84.85", "1.24"]
    assert text.startswith("# deterministic: seeds 0, 1, on cpu\n") and "\n\nLeft out: one.\n\n" in text
    assert text.index("\n## ant\n") < text.index("\n## hopper\n")
    with (folder.path / "returns.csv").open() as file:
        rows = [(row["task"], row["variant"], row["seeds"], row["best_return_mean"]) for row in csv.DictReader(file)]
    assert rows == [
        ("ant", "stochastic", "2", "80.0"), ("ant", "deterministic", "2", "70.0"),
        ("hopper", "stochastic", "1", "3.0"), ("hopper", "deterministic", "1", "5.0"),
    ]  # fmt: skip
    with (folder.path / "levels.csv").open() as file:
        (level,) = [row for row in csv.DictReader(file) if (row["return"], row["variant"]) == ("45.0", "deterministic")]
    assert level["task"] == "ant" and float(level["steps_mean"]) == pytest.approx((250 + 130) / 2)
    names = [path.name for path in folder.written]
    assert names == ["table.md", "returns.csv", "levels.csv", "curves.png", "curves.svg"]
    assert all((folder.path / name).stat().st_size > 0 for name in names)


def test_curves_have_one_colour_per_variant_in_all_tasks(trained):
    figure = curves_figure(trained.loaded, "label", ("steps",))
    ant, hopper = figure.axes
    assert [line.get_color() for line in ant.lines] == [line.get_color() for line in hopper.lines] == [*COLOURS[:2]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Stochastic (1 to 2 seeds)", "Deterministic (1 to 2 seeds)",
    ]  # fmt: skip
    assert ant.lines[1].get_ydata()[-1] == 70 and hopper.lines[1].get_ydata()[-1] == 5
