"""The study `surface`: over two directions, as a call, as a command and as a page, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from browser import CHROMIUM, MISSING, browser_page

import trot.study
from trot.cli import main
from trot.study.draw_surface import draw_surface
from trot.study.learned import load_learned
from trot.study.moved_weights import Moves, random_direction
from trot.study.objective import episode_objective, window_objective
from trot.study.surface_page import surface_page
from trot.study.surface_study import roughness
from trot.study.two_directions import LossGrid, Surface

SMALL = {"points": 3, "worlds": 3, "device": "cpu", "dtype": torch.float64}


@pytest.fixture
def bowl():
    """A parabola that rises twice as fast along the first direction, and a plain."""
    shift = np.linspace(-1, 1, 9)
    first, second = np.meshgrid(shift, shift, indexing="ij")
    episode = LossGrid(100, 2 * first**2 + second**2)
    return Surface("run, last", 4, True, True, shift, episode, LossGrid(8, np.full((9, 9), 3.0)))


@pytest.mark.parametrize("scaled", [True, False])
def test_every_point_is_the_policy_moved_by_both_directions(scaled, docking_run):
    found = trot.study.surface(docking_run, reach=0.3, scaled=scaled, seed=5, **SMALL)
    np.testing.assert_array_equal(found.shift, [-0.3, 0.0, 0.3])
    learned = load_learned(docking_run, "last", "cpu", torch.float64)
    for grid, make in ((found.episode, episode_objective), (found.window, window_objective)):
        objective, generator = make(learned, 3, 5), torch.Generator().manual_seed(5)
        assert grid.steps == objective.steps
        first, second = (random_direction(objective.weights, generator, scaled) for _ in range(2))
        for i, k1 in enumerate(found.shift):
            for j, k2 in enumerate(found.shift):
                weights = {name: w + k1 * first[name] + k2 * second[name] for name, w in objective.weights.items()}
                alone = objective.losses(Moves(weights, [], torch.zeros(1, 0)))
                assert grid.loss[i, j] == pytest.approx(float(alone), rel=1e-11)
        assert np.ptp(grid.loss) > 1e-3 and not np.allclose(grid.loss, grid.loss.T)


def test_scaled_directions_are_as_long_as_what_they_move():
    weights = {"a": torch.randn(30, 20), "b": 5 * torch.ones(7), "still": torch.zeros(3)}
    scaled, plain = (random_direction(weights, torch.Generator().manual_seed(1), kind) for kind in (True, False))
    for name, weight in weights.items():
        assert float(scaled[name].norm()) == pytest.approx(float(weight.norm()), rel=1e-5)
        # The same direction otherwise.
        if weight.any():
            torch.testing.assert_close(scaled[name] / scaled[name].norm(), plain[name] / plain[name].norm())
    assert float(plain["a"].std()) == pytest.approx(1, rel=0.1)


def test_the_command_leaves_data_figures_a_page_and_a_table(docking_run, tmp_path, capsys):
    given = ["--points", "5", "--worlds", "2", "--device", "cpu", "--studies", str(tmp_path), "--unscaled"]
    assert main(["study", "surface", str(docking_run), *given]) == 0
    printed, folder = capsys.readouterr(), tmp_path / "surface-run"
    assert "two directions as they were drawn, 5 x 5 points, 2 worlds each" in printed.out
    assert "100.0/100 %" in printed.err
    saved = np.load(folder / "surface.npz")
    found = trot.study.surface(docking_run, points=5, worlds=2, device="cpu", scaled=False)
    np.testing.assert_array_equal(saved["episode_loss"], found.episode.loss)
    np.testing.assert_array_equal(saved["window_loss"], found.window.loss)
    assert (folder / "surface.png").stat().st_size > 10_000 and "<svg" in (folder / "surface.svg").read_text()
    assert data_of((folder / "surface.html").read_text())["shift"] == found.shift.tolist()


def data_of(page):
    return json.loads(re.search(r"^const data = (.*);$", page, re.MULTILINE)[1])


def test_contours_have_the_first_direction_to_the_right(bowl):
    axes = draw_surface(bowl).axes
    flat = next(panel for panel in axes if panel.get_xlabel() == "First direction" and panel.name == "rectilinear")
    contours = flat.collections[1]
    widest = np.concatenate([path.vertices for path in contours.get_paths()[3:4]])
    # Along the steeper direction a contour of the bowl is narrower, by the root of 2.
    assert np.ptp(widest[:, 1]) == pytest.approx(np.sqrt(2) * np.ptp(widest[:, 0]), rel=0.05)


def test_a_page_holds_all_numbers_and_names_as_text(bowl):
    loss = bowl.episode.loss.copy()
    loss[2, 3] = np.inf
    odd = replace(bowl, name="</script><b>run", episode=LossGrid(100, loss))
    page = surface_page(odd)
    data = data_of(page)
    assert data["surfaces"][0]["loss"][2][3] is None
    assert data["surfaces"][0]["loss"][8][4] == 2.0 and data["surfaces"][0]["loss"][4][8] == 1.0
    assert [each["title"] for each in data["surfaces"]] == [
        "Whole episode, 100 steps",
        "Window of 8 steps and value beyond",
    ]
    assert "<b>run" not in page and page.count("</script>") == 1
    assert not re.search(r"(?:src|href)=|https?:", page), "it needs nothing from elsewhere"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_the_page_draws_offline_and_turns(bowl, tmp_path):
    path = tmp_path / "surface.html"
    loss = bowl.episode.loss.copy()
    loss[0, 0] = np.nan
    path.write_text(surface_page(replace(bowl, episode=LossGrid(100, loss))))
    with browser_page() as page:
        page.open(path.as_uri(), offline=True)
        page.wait_for("typeof panels !== 'undefined' && panels.length == 2")
        before = page.screenshot(tmp_path / "before.png")
        # The left half has a bowl in many colours, the right one a plain of one.
        height, width, _ = before.shape
        left, right = (len(np.unique(half.reshape(-1, 3), axis=0)) for half in np.split(before, 2, axis=1))
        assert left > 60 and right > 2
        near = dict(type="mousePressed", x=width // 4, y=height // 2, button="left", buttons=1, clickCount=1)
        page.call("Input.dispatchMouseEvent", **near)
        page.call("Input.dispatchMouseEvent", **(near | {"type": "mouseMoved", "x": width // 4 + 90}))
        page.call("Input.dispatchMouseEvent", **(near | {"type": "mouseReleased", "x": width // 4 + 90}))
        assert page.evaluate("view.turn") != -0.9
        after = page.screenshot(tmp_path / "after.png")
        assert (before != after).any(axis=2).mean() > 0.02
        # From above nothing hides the policy itself, and the pointer over it reads its loss.
        page.evaluate("view.tilt = 1.5; drawAll()")
        place = page.evaluate(
            "(() => { const box = panels[0].canvas.getBoundingClientRect(), p = panels[0].points[4][4];"
            " return [box.left + p.x / devicePixelRatio, box.top + p.y / devicePixelRatio]; })()"
        )
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1], button="none", buttons=0)
        assert page.evaluate("panels[0].note.textContent") == "0.00, 0.00: 0.0000"
        assert not page.errors and page.requests == [path.as_uri()]


def test_roughness_is_the_distance_from_the_neighbours():
    loss = np.zeros((4, 4))
    loss[1, 1] = 8.0
    # Inner points are off by 8, 2, 2 and 0, in a range of 8.
    assert roughness(loss) == pytest.approx((8 + 2 + 2 + 0) / 4 / 8)
    plane = np.add.outer(np.arange(4.0), 3 * np.arange(4.0))
    assert roughness(plane) == 0 and roughness(np.ones((3, 3))) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--points", "2"], "points must be an odd number of at least 3"),
        (["--worlds", "0"], "worlds must be at least 1, not 0"),
        (["--checkpoint", "best"], "keeps the policy alone, without the critic"),
    ],
)
def test_what_makes_no_surface_is_told_in_one_line(options, message, docking_run, tmp_path, capsys):
    assert main(["study", "surface", str(docking_run), "--device", "cpu", "--studies", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
