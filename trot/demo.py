"""`trot demo`: a pole on a cart learns to swing up, on the CPU and within a minute."""

from __future__ import annotations

import sys
import time
import webbrowser
from pathlib import Path

from trot.learn.agent import load_agent
from trot.learn.algorithms import DEFAULT_ALGORITHM, find_algorithm
from trot.learn.evaluate import evaluate
from trot.learn.learner import PAPER
from trot.learn.resume import resume
from trot.learn.schedule import Schedule
from trot.learn.train import TrainSettings, train
from trot.runs.folder import RunFolder
from trot.view.motion.record import record

SOLVED = -600.0
"""Mean return of an episode. Hanging down costs about -2400; swinging up at once and standing still, about -450."""
MARGIN = 30.0
"""By how much more than that to learn on, when new episodes turn out worse."""


def run_demo(runs: Path = Path("runs"), seed: int = 0, goal: float = SOLVED) -> None:
    """Train CartPole swing-up until 128 new episodes show that it is solved.

    Args:
        runs: Where the run folder is made.
        seed: Of the run.
        goal: Mean return that counts as solved.
    """
    began = time.monotonic()
    print("A pole hangs from a cart. 64 of them learn to swing it up, by gradients through their own simulation.")
    # What solves it soonest; the default preset learns for longer, and better.
    settings = TrainSettings(
        "cartpole",
        preset=PAPER,
        seed=seed,
        device="cpu",
        runs=runs,
        name=f"demo-{seed}",
        schedule=Schedule(stop_at=goal),
        settings=find_algorithm(DEFAULT_ALGORITHM).resolve("cartpole", PAPER),
    )
    run = train(settings)
    aim, played = goal, _play(run)
    # While a policy still changes quickly, its training episodes flatter it.
    while played < goal and _iteration(run) < settings.settings.iterations:
        print(f"On the way: 128 new episodes return {played:.0f} on average, {goal:.0f} is the goal. Learning goes on.")
        aim += MARGIN
        run = resume(run.path, stop_at=aim)
        played = _play(run)
    verdict = "It is solved" if played >= goal else f"Learning ended before the goal of {goal:.0f}"
    print(
        f"{verdict}: 128 new episodes return {played:.0f} on average; a pole that hangs down gets -2400. "
        f"{time.monotonic() - began:.0f} s in all.\n"
        f"The run lies in {run.path}. Play it again: trot eval {run.path}. Next: trot play ant, trot train ant"
    )
    _write_page(run)


def _play(run: RunFolder) -> float:
    return evaluate(load_agent(run, "last"), "cartpole").mean_return


def _iteration(run: RunFolder) -> int:
    return int(run.load_checkpoint("last")["iteration"])


def _write_page(run: RunFolder) -> None:
    """The learned motion as a page to open in a browser; without the viewer's extra, say how to get it."""
    try:
        from trot.view.browser.page import write_page
        from trot.view.browser.serving import has_screen
    except ImportError:
        print('To watch it: pip install "trot[view]", then trot view', run.path)
        return
    path = run.path / "motion.html"
    write_page(record(str(run.path), checkpoint="last"), path)
    print(f"Watch it: open {path} in a browser. Push it: trot play {run.path}", flush=True)
    if sys.stdout.isatty() and has_screen():
        webbrowser.open(path.resolve().as_uri())
