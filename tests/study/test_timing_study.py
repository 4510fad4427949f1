"""Times of a learning episode: what is measured, in which order, and the tables and the figure of made times."""

import csv
from pathlib import Path

import pytest

from trot.cli import main
from trot.study import timing_study
from trot.study.draw_timing import draw_timing
from trot.study.episode_time import PAPER_MS, EpisodeTime
from trot.study.study_folder import StudyFolder
from trot.study.timing_study import TimingSettings, episode_times, run_timing, time_points

TASK = f"{Path(__file__).parents[1] / 'helpers' / 'docking.py'}:Docking"
OURS = ["forward", "backward", "critic", "sum", "backward / forward"]


def made(task, settings, device="cpu", iterations=1):
    """1 ms per world forward, 2 per step of a window backward, 3 for the critic, 4 for the rest."""
    parts = {"forward": 1.0 * settings.num_worlds, "backward": 2.0 * settings.horizon, "critic": 3.0, "other": 4.0}
    return EpisodeTime(task, settings.num_worlds, settings.horizon, parts)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs a study of made times; the folder."""
    monkeypatch.setattr(timing_study, "_measure", made)

    def run(**settings):
        folder = StudyFolder(tmp_path)
        run_timing(TimingSettings(device="cpu", **settings), folder)
        return folder

    return run


def test_points_lie_on_two_lines_that_cross_at_the_papers_size():
    assert time_points([16, 256], [8]) == [(16, 32), (64, 8), (64, 32), (256, 32)]
    assert time_points([64], [32]) == [(64, 32)]


def test_tables_by_hand(study):
    folder = study(tasks=("ant", TASK), worlds=(16,), horizons=(8,))
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (folder.path / "table.md").read_text().splitlines()
        if line.startswith("|") and "--" not in line
    ]
    assert cells == [
        ["task", "worlds", "h", "forward", "backward", "critic", "other", "sum", "steps/s"],
        ["ant", "16", "32", "16.0", "64.0", "3.0", "4.0", "87.0", "5,885"],
        ["ant", "64", "8", "64.0", "16.0", "3.0", "4.0", "87.0", "5,885"],
        ["ant", "64", "32", "64.0", "64.0", "3.0", "4.0", "135.0", "15,170"],
        ["Docking", "16", "32", "16.0", "64.0", "3.0", "4.0", "87.0", "5,885"],
        ["Docking", "64", "8", "64.0", "16.0", "3.0", "4.0", "87.0", "5,885"],
        ["Docking", "64", "32", "64.0", "64.0", "3.0", "4.0", "135.0", "15,170"],
        ["task", *OURS, "paper: forward", "paper: backward", "paper: critic", "sum", "backward / forward"],
        ["ant", "64.0", "64.0", "3.0", "135.0", "1.00", "250", "370", "320", "940", "1.48"],
    ]
    with (folder.path / "timing.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(rows[1][name]) for name in ("worlds", "horizon", "forward_ms", "backward_ms")] == [64, 8, 64, 16]
    assert float(rows[1]["steps_per_second"]) == pytest.approx(512 / 0.087)
    assert [path.name for path in folder.written] == ["table.md", "timing.csv", "timing.png", "timing.svg"]


def test_a_task_that_the_paper_does_not_have_is_compared_with_nothing(study):
    assert "paper" not in (study(tasks=(TASK,), worlds=(16,), horizons=(8,)).path / "table.md").read_text()


def test_the_papers_sums():
    """Seconds of a learning episode, as its Table 12 adds up."""
    sums = {task: sum(parts.values()) / 1e3 for task, parts in PAPER_MS.items()}
    expected = {"cartpole": 0.72, "ant": 0.94, "humanoid": 3.20, "muscle_humanoid": 2.81}
    assert sums == pytest.approx(expected)


def test_the_figure_has_a_panel_per_axis_and_the_papers_points():
    settings = [timing_study.SHAC.resolve(task) for task in ("ant", TASK)]
    times = []
    for task, own in zip(("ant", TASK), settings, strict=True):
        times += [
            made(task, timing_study.replace(own, num_worlds=n, horizon=h)) for n, h in time_points([16, 256], [8])
        ]
    by_worlds, by_horizon, own_worlds, _ = draw_timing(times).axes
    lines = {line.get_color(): line for line in by_worlds.lines if len(line.get_xdata()) > 1}
    assert [list(line.get_ydata()) for line in lines.values()] == [
        [16, 64, 256], [64, 64, 64], [3, 3, 3], [4, 4, 4], [87, 135, 327],
    ]  # fmt: skip
    papers = [(line.get_xdata()[0], line.get_ydata()[0]) for line in by_horizon.lines if len(line.get_xdata()) == 1]
    assert papers == [(32, 250), (32, 370), (32, 320)]
    assert all(len(line.get_xdata()) > 1 for line in own_worlds.lines)
    assert own_worlds.get_title("left") == "Docking"


def test_the_largest_is_measured_first_so_that_too_little_memory_shows_at_once(monkeypatch):
    order = []
    monkeypatch.setattr(timing_study, "_measure", lambda *case: order.append(made(*case)) or made(*case))
    found = timing_study._measure_all(
        TimingSettings(device="cpu", tasks=("ant", "cartpole"), worlds=(16, 256), horizons=(8,))
    )
    assert [(one.num_worlds * one.horizon) for one in order] == sorted([512, 512, 2048, 8192] * 2, reverse=True)
    assert [(one.task, one.num_worlds, one.horizon) for one in found] == [
        (task, *point) for task in ("ant", "cartpole") for point in time_points([16, 256], [8])
    ]


def test_a_real_episode_has_all_parts():
    one, two = episode_times(TASK, [(4, 8), (4, 16)], "cpu", iterations=1)
    assert (one.num_worlds, one.horizon, two.horizon) == (4, 8, 16)
    assert list(one.milliseconds) == ["forward", "backward", "critic", "other"]
    assert all(value > 0 for value in one.milliseconds.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cartpol"], "there is no task 'cartpol'. Did you mean cartpole?"),
        (["cartpole", "--horizons", "6"], "horizon 6 does not split into critic_batches 4"),
        (["cartpole", "--worlds", "0"], "num_worlds must be at least 1, not 0"),
        (["cartpole", "--worlds", "1000000000000"], "Use fewer worlds"),
        (["cartpole", "--iterations", "0"], "--iterations must be at least 1, not 0"),
        (["--device", "gpu"], "device must be cpu or cuda, not gpu"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    device = [] if "--device" in arguments else ["--device", "cpu"]
    assert main(["study", "timing", *arguments, *device]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("trot study: ") and message in line
    assert not list(tmp_path.glob("studies/*"))
