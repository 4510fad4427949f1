"""Figures of runs: what is drawn is what the metrics say, computed by hand."""

import subprocess
import sys

import numpy as np
import pytest
from made_metrics import make_run, rewrite_seconds
from matplotlib.colors import to_rgba
from PIL import Image

from trot import cli
from trot.learn.algorithms import ALGORITHMS
from trot.learn.algorithms.shac import Shac
from trot.learn.gradient_health import STEEP
from trot.view.plots import figures
from trot.view.plots.curves import CURVE_COLUMNS, HEALTH_COLUMNS, HEALTH_COLUMNS_OF_SOME, load_runs, timing
from trot.view.plots.figures import COLOURS, DASHES, line_style, style_slots
from trot.view.plots.plot import curves_figure, plot_command


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    """Half of these tests' time would go into asking git and the processor."""
    monkeypatch.setattr("trot.runs.folder.describe_machine", dict)


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Runs the command and returns the figure that it would have written; to render it takes most of the time."""
    seen = []
    monkeypatch.setattr(figures, "write_figure", lambda figure, file, extension: seen.append(figure))

    def run(*arguments):
        assert plot_command([str(argument) for argument in (*arguments, "--out", tmp_path / "drawn.png")]) == 0
        return seen[-1]

    return run


@pytest.fixture
def refused(monkeypatch, capsys):
    """Runs the command as the command line does and returns its one line of error."""
    monkeypatch.setitem(cli.COMMANDS, "plot", plot_command)

    def run(*arguments):
        capsys.readouterr()
        assert cli.main(["plot", *map(str, arguments)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and len(printed.err.splitlines()) == 1
        return printed.err.removesuffix("\n")

    return run


def line_at(panel, x, number=0):
    line = panel.lines[number]
    return np.interp(x, line.get_xdata(), line.get_ydata())


def band_at(panel, x, number=0):
    """Lower and upper edge of a band, from the outline that is drawn."""
    vertices = panel.collections[number].get_paths()[0].vertices
    middle = line_at(panel, vertices[:, 0], number)

    def edge(part):
        order = np.argsort(part[:, 0])
        return np.interp(x, part[order, 0], part[order, 1])

    return edge(vertices[vertices[:, 1] < middle]), edge(vertices[vertices[:, 1] > middle])


def legend_texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


# Learning curves


def test_mean_and_deviation_by_hand(tmp_path, drawn):
    for seed, returns in enumerate([(10, 20, 30), (20, 30, 40), (60, 70, 110)]):
        make_run(tmp_path, returns, seed=seed, seconds=0.5)
    by_steps, by_seconds = drawn(tmp_path).axes
    # 10, 20, 60: mean 30, deviations -20, -10, 30, variance 1400 / 2; 30, 40, 110: mean 60, -30, -20, 50, 3800 / 2.
    mean, deviation = np.array([30, 40, 60]), np.sqrt([700, 700, 1900])
    for panel, x in ((by_steps, [100, 200, 300]), (by_seconds, [0.5, 1.0, 1.5])):
        assert len(panel.lines) == len(panel.collections) == 1
        np.testing.assert_allclose(line_at(panel, x), mean, rtol=1e-9)
        lower, upper = band_at(panel, x)
        np.testing.assert_allclose(lower, mean - deviation, rtol=1e-6)
        np.testing.assert_allclose(upper, mean + deviation, rtol=1e-6)
        assert panel.collections[0].get_facecolor()[0][:3] == pytest.approx(to_rgba(COLOURS[0])[:3])


def test_runs_of_other_length_and_spacing_meet_on_the_common_range(tmp_path, drawn, capsys):
    # Return = steps + 10, from step 100 to 400; return = 2 steps, from step 150 to 600.
    make_run(tmp_path, [110, 210, 310, 410], seed=0, steps=100)
    make_run(tmp_path, [300, 600, 900, 1200], seed=1, steps=150)
    (panel,) = drawn(tmp_path, "--x", "steps").axes
    x, y = panel.lines[0].get_data()
    assert (x[0], x[-1]) == (150, 400)
    np.testing.assert_allclose(y, (3 * x + 10) / 2)
    lower, upper = band_at(panel, 210)
    assert upper - lower == pytest.approx(2 * abs(210 - 10) / np.sqrt(2))
    assert "ant, shac: drawn up to 67% of the longest run" in capsys.readouterr().err


def test_nothing_is_drawn_before_the_first_episode_ends(tmp_path, drawn):
    make_run(tmp_path, [None, None, 5, 6, np.nan, 8], seed=0)
    (panel,) = drawn(tmp_path, "--x", "time").axes
    x, y = panel.lines[0].get_data()
    assert (x[0], x[-1]) == (3, 6) and (y[0], y[-1]) == (5, 8)
    assert line_at(panel, 5) == pytest.approx(7), "a return that is not a number is left out"
    assert not panel.collections, "one run has no deviation"


def test_rows_of_one_look_are_spread_over_its_time(tmp_path, drawn):
    run = make_run(tmp_path, [1, 2, 3, 4, 5])
    rewrite_seconds(run, [4.0, 4.0, 4.0, 4.0, 7.0])
    (panel,) = drawn(run, "--x", "time").axes
    np.testing.assert_allclose(line_at(panel, [1, 2, 3, 4, 5.5, 7]), [1, 2, 3, 4, 4.5, 5], atol=1e-2)


def test_a_row_of_panels_per_task_in_the_given_order(tmp_path, drawn):
    paths = [make_run(tmp_path, [1, 2], task=task) for task in ("hopper", "half_cheetah", "my.py:BigAnt", "ant")]
    panels = drawn(*paths).axes
    assert [panel.get_title("left") for panel in panels[::2]] == ["Hopper", "Half cheetah", "BigAnt", "Ant"]
    assert {panel.get_ylabel() for panel in panels[::2]} == {"Episode return"}
    assert [panel.get_xlabel() for panel in panels[-2:]] == ["Samples (environment steps)", "Wall clock (s)"]
    assert not any(panel.get_xscale() == "log" or panel.get_yscale() == "log" for panel in panels)


@pytest.mark.parametrize(("seconds", "unit", "last"), [(300.0, "s", 600), (600.0, "min", 20), (9000.0, "h", 5)])
def test_the_unit_of_time_fits_the_run(tmp_path, drawn, seconds, unit, last):
    make_run(tmp_path, [1, 2], seconds=seconds)
    (panel,) = drawn(tmp_path, "--x", "time").axes
    assert panel.get_xlabel() == f"Wall clock ({unit})"
    assert panel.lines[0].get_xdata()[-1] == pytest.approx(last)


def test_thousands_are_separated(tmp_path, drawn):
    make_run(tmp_path, [-3000, 0, 4000], steps=1_000_000)
    figure = drawn(tmp_path, "--x", "steps")
    figure.draw_without_rendering()
    (panel,) = figure.axes
    assert "2,000,000" in [text.get_text() for text in panel.get_xticklabels()]
    assert {"\N{MINUS SIGN}2,000", "2,000"} <= {text.get_text() for text in panel.get_yticklabels()}


def test_the_legend_counts_seeds(tmp_path, drawn):
    for seed in range(3):
        make_run(tmp_path, [1, 2], seed=seed)
        make_run(tmp_path, [1, 2], seed=seed, algo="bptt")
    make_run(tmp_path, [1, 2], task="hopper", algo="bptt")
    figure = drawn(tmp_path)
    assert legend_texts(figure) == ["BPTT (1 to 3 seeds)", "SHAC (3 seeds)"]
    assert "standard deviation" in figure.legends[0].get_title().get_text()
    make_run(tmp_path, [1, 2], seed=2)
    assert legend_texts(drawn(tmp_path))[1] == "SHAC (4 runs)", "one seed twice"


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("task", ["Ant (4 runs)"]),
        ("seed", ["Seed 0 (2 runs)", "Seed 1 (2 runs)"]),
        ("name", ["ant-bptt-0", "ant-bptt-1", "ant-shac-0", "ant-shac-1"]),
    ],
)
def test_other_groups(tmp_path, drawn, by, expected):
    for algo in ("shac", "bptt"):
        for seed in (0, 1):
            make_run(tmp_path, [seed, seed + 2], algo=algo, seed=seed)
    figure = drawn(tmp_path, "--by", by)
    assert legend_texts(figure) == expected
    assert len(figure.axes[0].lines) == len(expected)
    if by == "seed":
        assert line_at(figure.axes[0], [100, 200], 1) == pytest.approx([1, 3])


def test_an_algorithm_keeps_its_colour_and_dashes(tmp_path, drawn):
    paths = {algo: make_run(tmp_path, [1, 2], algo=algo) for algo in ("bptt", "other", "shac", "shac-no-critic")}

    def styles(*algos):
        lines = drawn(*(paths[algo] for algo in algos), "--x", "steps").axes[0].lines
        return {algo: (line.get_color(), line.get_linestyle()) for algo, line in zip(algos, lines, strict=True)}

    together = styles("bptt", "other", "shac", "shac-no-critic")
    assert together == styles("shac-no-critic", "shac", "other", "bptt")
    assert all(styles(algo) == {algo: together[algo]} for algo in paths)
    assert len(set(together.values())) == 4
    assert together["shac"] == ("#0072B2", "-")


def test_the_axis_is_logarithmic_where_one_run_goes_ten_times_as_far(tmp_path, drawn):
    make_run(tmp_path, [1, 2])
    far = make_run(tmp_path, list(range(1, 31)), algo="bptt")
    assert [panel.get_xscale() for panel in drawn(far).axes] == ["linear", "linear"]
    figure = drawn(tmp_path, "--x", "steps")
    assert figure.axes[0].get_xscale() == "log"
    assert line_at(figure.axes[0], [150, 1000], 0) == pytest.approx([1.5, 10])


def test_styles_differ():
    several = style_slots([f"algorithm {number}" for number in range(40)], "algo")
    assert len(set(several.values())) == 40 and min(several.values()) == len(ALGORITHMS)
    styles = [line_style(slot) for slot in range(len(COLOURS) * len(DASHES))]
    assert len({str(style) for style in styles}) == len(styles)


# Which runs


def test_folders_run_folders_and_both(tmp_path, drawn):
    first = make_run(tmp_path / "runs", [1, 2], seed=0)
    make_run(tmp_path / "runs" / "deeper", [1, 2], seed=1)
    (tmp_path / "runs" / "notes").mkdir()
    assert legend_texts(drawn(tmp_path / "runs")) == ["SHAC (2 seeds)"]
    assert legend_texts(drawn(first, tmp_path / "runs", tmp_path / "runs" / "notes")) == ["SHAC (2 seeds)"]


def test_runs_without_an_episode_are_left_out_and_named(tmp_path, drawn, capsys):
    make_run(tmp_path, [1, 2], seed=0)
    make_run(tmp_path, [None, None], seed=1)
    empty = make_run(tmp_path, [], seed=2)
    assert legend_texts(drawn(tmp_path)) == ["SHAC (1 seed)"]
    left_out = capsys.readouterr().err.splitlines()
    assert len(left_out) == 2 and left_out[1] == f"left out: '{empty}', no finished episode"


# Health and timing


def test_health(tmp_path, drawn):
    values = {"gradient_norm": [3.0, 2.0, 1.0], "adjoint_first": [500.0, 2000.0, 100.0], "steep_worlds": [0, 0.5, 0.25]}
    values |= {"adjoint_median": [50.0, 60.0, 70.0], "adjoint_last": [5.0, 6.0, 7.0], "faults": [0, 0, 2]}
    values |= {"saturated": [0, 0.25, 1.0]}
    path = make_run(tmp_path, [None] * 3, **values)
    figure = drawn("--health", path)
    norm, adjoint, steep, saturated, faults = figure.axes
    assert norm.get_title("left") == "ant-shac-0"
    assert list(norm.lines[0].get_ydata()) == values["gradient_norm"] and list(norm.lines[0].get_xdata()) == [1, 2, 3]
    for line, step in zip(adjoint.lines, ("first", "median", "last"), strict=False):
        assert list(line.get_ydata()) == values[f"adjoint_{step}"]
    assert adjoint.get_yscale() == "log" and set(adjoint.lines[3].get_ydata()) == {STEEP}
    assert list(steep.lines[0].get_ydata()) == [0, 50, 25] and steep.get_ylabel() == "Steep worlds (%)"
    assert list(saturated.lines[0].get_ydata()) == [0, 25, 100]
    assert list(faults.lines[0].get_ydata()) == [0, 0, 2] and faults.get_xlabel() == "Iteration"
    assert legend_texts(figure) == ["first", "median", "last", "steep from here"]
    assert {*HEALTH_COLUMNS, *HEALTH_COLUMNS_OF_SOME} <= {"iteration", *Shac.all_columns()}


def test_health_names_where_the_gradient_failed(tmp_path, drawn):
    norms = ([1.0, 2.0], [1.0, np.inf], [np.nan, np.nan])
    paths = [make_run(tmp_path, [1, 2], seed=seed, gradient_norm=norm) for seed, norm in enumerate(norms)]
    figure = drawn("--health", *paths)
    figure.draw_without_rendering()
    titles = [panel.get_title("left").partition(": ")[2] for panel in figure.axes[::5]]
    assert titles == ["", "not finite in iteration 2", "not finite in iteration 1"]


def test_timing_is_a_median_of_differences(tmp_path, drawn):
    # 20 looks at 4 iterations of 0.25 s each; saving takes 10 s before one of them.
    looks = [(number // 4 + 1) + (10.0 if number >= 40 else 0.0) for number in range(80)]
    path = make_run(tmp_path, [1] * 80, seconds=0)
    rewrite_seconds(path, looks)
    (run,) = load_runs([path], ("iteration", "steps", "seconds"))
    found = timing(run)
    assert found.overall_milliseconds == pytest.approx(250) and found.overall_steps_per_second == pytest.approx(400)
    assert len(found.iteration) == 2 and found.milliseconds == pytest.approx(250)
    figure = drawn("--timing", path)
    milliseconds, speed = figure.axes
    assert milliseconds.get_ylabel() == "Time per iteration (ms)" and speed.get_ylabel() == "Steps per second"
    assert milliseconds.lines[0].get_ydata() == pytest.approx(250) and speed.lines[0].get_ydata() == pytest.approx(400)
    assert legend_texts(figure) == ["ant-shac-0: 250 ms, 400/s"]


def test_rounded_milliseconds_do_not_spoil_the_timing(tmp_path):
    path = make_run(tmp_path, [1] * 400, seconds=0)
    rewrite_seconds(path, [round(0.0026 * (number + 1), 3) for number in range(400)])
    (run,) = load_runs([path], ("iteration", "steps", "seconds"))
    assert timing(run).overall_milliseconds == pytest.approx(2.6, rel=0.02)


def test_runs_of_one_name_are_told_apart_in_the_timing(tmp_path, drawn):
    paths = [make_run(tmp_path / folder, [1, 2, 3]) for folder in ("a", "b")]
    texts = legend_texts(drawn("--timing", *paths))
    assert [text.partition(":")[0] for text in texts] == list(map(str, paths))


# Files


@pytest.mark.parametrize(("extension", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_are_written_whole_and_the_same_each_time(tmp_path, capsys, extension, start):
    make_run(tmp_path / "runs", [1, 2])
    contents = []
    for folder in ("once", "twice"):
        out = tmp_path / folder / f"figure.{extension}"
        assert plot_command([str(tmp_path / "runs"), "--out", str(out)]) == 0
        assert capsys.readouterr().out == f"{out}\n" and [path.name for path in out.parent.iterdir()] == [out.name]
        contents.append(out.read_bytes())
    assert contents[0] == contents[1] and contents[0].startswith(start) and len(contents[0]) > 5000


def test_a_png_is_wide_enough_and_has_the_colours(tmp_path):
    assert plot_command([str(make_run(tmp_path, [1, 2])), "--out", str(tmp_path / "drawn.png")]) == 0
    with Image.open(tmp_path / "drawn.png") as image:
        assert 1550 < image.width < 1650
        colours = {colour for _, colour in image.convert("RGB").getcolors(2**24)}
    assert {(0x00, 0x72, 0xB2), (255, 255, 255)} <= colours


@pytest.mark.parametrize(
    ("option", "name"), [([], "curves.png"), (["--health"], "health.png"), (["--timing"], "timing.png")]
)
def test_the_usual_name(tmp_path, monkeypatch, capsys, option, name):
    make_run(tmp_path / "runs", [1, 2, 3])
    monkeypatch.chdir(tmp_path)
    assert plot_command([*option, "runs"]) == 0
    assert capsys.readouterr().out == f"{name}\n" and (tmp_path / name).stat().st_size > 5000


# Errors


def test_no_runs(tmp_path, refused):
    assert refused(tmp_path) == f"trot plot: no runs in '{tmp_path}'; make one: trot train cartpole"
    assert refused(tmp_path / "none") == f"trot plot: no such run folder: '{tmp_path / 'none'}'"
    assert refused() == "trot plot: name one run or more"


def broken_settings(path):
    (path / "settings.json").write_text("{")
    return f"'{path / 'settings.json'}' is broken"


def no_settings(path):
    (path / "settings.json").unlink()
    return f"'{path}' is not a run folder: it has no settings.json"


def missing_columns(path):
    (path / "metrics.csv").write_text("iteration,steps\n1,100\n")
    return f"'{path / 'metrics.csv'}' lacks seconds, episode_return, episodes"


def word_for_a_number(path):
    text = (path / "metrics.csv").read_text()
    (path / "metrics.csv").write_text(text.replace("200", "many"))
    return f"{path / 'metrics.csv'} is broken in line 3"


def steps_that_go_back(path):
    text = (path / "metrics.csv").read_text()
    (path / "metrics.csv").write_text(text.replace("200", "50"))
    return f"'{path / 'metrics.csv'}' is broken: steps must grow from row to row"


@pytest.mark.parametrize(
    "damage", [broken_settings, no_settings, missing_columns, word_for_a_number, steps_that_go_back]
)
def test_a_broken_run_is_named_and_breaks_no_other(tmp_path, refused, capsys, damage):
    path = make_run(tmp_path / "runs", [1, 2], seed=0)
    reason = damage(path)
    assert refused(path).startswith(f"trot plot: {reason}")
    if damage is not no_settings:
        assert refused(tmp_path / "runs").startswith(f"trot plot: no run can be read: {reason}")
    make_run(tmp_path / "runs", [1, 2], seed=1)
    capsys.readouterr()
    assert plot_command([str(tmp_path / "runs"), "--out", str(tmp_path / "curves.png")]) == 0
    assert (tmp_path / "curves.png").exists()
    said = capsys.readouterr().err
    assert said == "" if damage is no_settings else said.startswith(f"left out: {reason}")


def test_no_finished_episode(tmp_path, refused):
    first = make_run(tmp_path, [None, None], seed=0)
    assert refused(first) == f"trot plot: no finished episode in any run: '{first}'"
    make_run(tmp_path, [], seed=1)
    assert refused(tmp_path) == f"trot plot: no finished episode in any run: '{first}' and 1 more"


def test_runs_that_never_overlap(tmp_path, refused):
    early = make_run(tmp_path, [1], seed=0)
    late = make_run(tmp_path, [None, 2, 3], seed=1)
    assert refused(tmp_path).startswith(f"trot plot: '{early}' ends before '{late}' has finished an episode")


def test_runs_whose_seconds_never_overlap_are_drawn_over_steps(tmp_path, capsys):
    early = make_run(tmp_path, [1], seed=0, seconds=1)
    late = make_run(tmp_path, [2], seed=1, seconds=2)
    runs = load_runs([early, late], CURVE_COLUMNS)
    (panel,) = curves_figure(runs, "algo", ("steps", "seconds")).axes
    assert panel.get_xlabel().startswith("Samples")
    (line,) = panel.lines
    assert line.get_ydata().tolist() == [1.5]
    assert capsys.readouterr().err.startswith(f"no curves over seconds: '{early}' ends before '{late}' has finished")


def test_too_short_for_health_or_timing(tmp_path, refused):
    path = make_run(tmp_path, [])
    assert refused("--health", path) == f"trot plot: no finished iteration in any run: '{path}'"
    assert refused("--timing", path) == f"trot plot: too few iterations to tell the speed in any run: '{path}'"


def test_options_that_do_not_exist(tmp_path, refused):
    path = make_run(tmp_path, [1, 2])
    assert refused(path, "--by", "colour") == "trot plot: --by takes algo, label, task, seed, name, not 'colour'"
    assert refused(path, "--x", "hours") == "trot plot: --x takes steps, time, both, not 'hours'"
    assert refused(path, "--out", "a.gif") == "trot plot: --out takes a file that ends in .png, .svg, .pdf, not 'a.gif'"
    assert refused(path, "--health", "--timing").endswith("ask for one at a time")


def test_a_place_that_cannot_be_written(tmp_path, refused):
    path = make_run(tmp_path, [1, 2])
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "curves.png"
    assert refused(path, "--out", out).startswith(f"trot plot: cannot write '{out}': ")


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    path = make_run(tmp_path, [1, 2])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot_command([str(path)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and 'pip install "trot[plot]"' in error


WITHOUT_HEAVY_MODULES = """
import sys
from trot.view.plots.plot import curves_figure, plot_command
before = "matplotlib" in sys.modules
code = plot_command(sys.argv[1:])
print(before, *sorted({"torch", "warp", "mujoco", "matplotlib.pyplot"} & set(sys.modules)))
sys.exit(code)
"""


def test_neither_torch_nor_a_display_is_asked_for(tmp_path):
    arguments = [str(make_run(tmp_path, [1, 2])), "--out", str(tmp_path / "a.svg")]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_HEAVY_MODULES, *arguments], capture_output=True, text=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1:] == ["False"]
