"""`trot play`: a living robot in the browser, to push, to drag and to change.

viser, PyTorch and MuJoCo are imported when they are needed, so that the command line's help answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trot.command_line import Source, parse
from trot.view.browser.page_options import PageSettings, viser_is_missing

if TYPE_CHECKING:
    from trot.learn.agent import Agent
    from trot.view.play.run_watch import RunWatch

DESCRIPTION = "Play with a living robot in the browser: push it, drag it, change its world."


@dataclass(kw_only=True)
class PlaySettings(PageSettings):
    """Play with a living robot."""

    source: Source
    """A run folder, a task, or my_task.py:Class."""
    agent: Literal["policy", "random", "zero"] = "policy"
    """Who acts at first: the run's policy or the one that comes with trot, chance, or nobody."""
    watch: bool = False
    """Of a run that is being trained: its newest policy, whenever there is one, and its returns so far."""


def play_command(arguments: list[str], shown: Callable[[], object] = lambda: None) -> int:
    """Play with a living robot; returns the exit code. shown() is called when there is a page to be seen."""
    settings = parse(PlaySettings, "trot play", DESCRIPTION, arguments)
    if viser_is_missing("trot play"):
        return 2
    print(f"{_title(settings.source)}: starting the viewer ...", flush=True)
    from trot.view.play.living import Living
    from trot.view.play.player import serve_play

    watch, checkpoint = None, settings.checkpoint
    if settings.watch:
        watch, checkpoint = _watch(settings.source), "initial"
    task, agent, about = find_player(settings.source, settings.agent, checkpoint)
    living = Living(task, agent, settings.agent, settings.seed)
    serve_play(
        living,
        watch=watch,
        title=_title(settings.source),
        about=about,
        follow=settings.follow,
        port=settings.port,
        open_browser=settings.browser,
        shown=shown,
    )
    return 0


def _watch(source: str) -> RunWatch:
    from trot.envs.registry import names_task
    from trot.runs.folder import RunFolder
    from trot.view.play.run_watch import RunWatch

    if names_task(source):
        raise ValueError(f"--watch is for the folder of a run that is being trained, not for the task '{source}'")
    return RunWatch(RunFolder.open(source))


def find_player(source: str, kind: str, checkpoint: str) -> tuple[str, Agent | None, str]:
    """The task that is meant, its policy where there is one, and a line about that policy."""
    from trot.envs.registry import TASKS, names_task
    from trot.learn.agent import load_agent
    from trot.learn.packaged_policy import load_packaged, packaged_tasks
    from trot.runs.folder import RunFolder

    if not names_task(source):
        if not Path(source).exists():
            raise FileNotFoundError(f"'{source}' is no run folder or task; tasks are {', '.join(TASKS)}")
        run = RunFolder.open(source)
        return str(run.settings["task"]), load_agent(run, checkpoint), f"policy '{checkpoint}' of {run.path.name}"
    if source in packaged_tasks():
        policy = load_packaged(source)
        made = f"trot's own policy, by '{policy.command}' ({policy.date})"
        return source, policy.agent, f"{made}: return {policy.mean_return:.0f}"
    if kind == "policy":
        trained = f"runs/{source.rpartition(':')[2]}-shac-0"
        raise ValueError(
            f"no policy comes with trot for '{source}'. Get one: trot train {source} && trot play {trained}. "
            "Or play without: --agent random, --agent zero"
        )
    return source, None, ""


def _title(source: str) -> str:
    return Path(source).name or source
