"""The trained policies that come with trot, a pair of small files per task in trot/policies.

TASK.pt holds the weights, written and read as a checkpoint is: sealed, and loaded without executing code. TASK.json
says what network they belong to, the command that made them, what they return, and when.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro

from trot.atomic import replacing
from trot.command_line import RunPath, parse
from trot.learn.agent import Agent, AgentDescription, load_agent
from trot.learn.evaluate import evaluate
from trot.learn.saved_settings import settings_from
from trot.runs.checkpoint_file import read_checkpoint, write_checkpoint
from trot.runs.folder import RunFolder

POLICIES = Path(__file__).parents[1] / "policies"


@dataclass(frozen=True)
class PackagedPolicy:
    """An agent, and where it comes from."""

    agent: Agent
    command: str
    """What trained it."""
    mean_return: float
    """Of as many new episodes, without noise."""
    episodes: int
    date: str
    """Of the training, year-month-day."""


def packaged_tasks(folder: Path = POLICIES) -> list[str]:
    """The tasks that a policy comes for."""
    return sorted(file.stem for file in folder.glob("*.json"))


def load_packaged(task: str, folder: Path = POLICIES) -> PackagedPolicy:
    """The policy that comes for a task, on the CPU and without gradients."""
    if task not in packaged_tasks(folder):
        raise FileNotFoundError(
            f"no policy comes with trot for the task '{task}': choose the agent zero or random, or name a run folder"
        )
    about, weights = folder / f"{task}.json", folder / f"{task}.pt"
    try:
        told: dict[str, Any] = json.loads(about.read_text())
        agent = settings_from(told["agent"], AgentDescription, "the agent").build()
        agent.load_state_dict(read_checkpoint(weights, "cpu")["agent"])
        agent.requires_grad_(False)
        return PackagedPolicy(
            agent, str(told["command"]), float(told["return"]), int(told["episodes"]), str(told["date"])
        )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the policy in '{about}' and '{weights.name}' cannot be read: {reason}") from None


def package_policy(
    run: RunFolder, command: str, checkpoint: str = "best", folder: Path = POLICIES, episodes: int = 128
) -> Path:
    """Keep a run's policy for its task, with what it returns in new episodes; returns the file that tells of it."""
    task, agent = str(run.settings["task"]), load_agent(run, checkpoint)
    if Path(task).name != task:
        raise ValueError(f"policies come for tasks of trot's own, not for '{task}'")
    about = {
        "task": task,
        "command": command,
        "return": round(evaluate(agent, task, episodes).mean_return, 1),
        "episodes": episodes,
        "date": datetime.date.today().isoformat(),
        "trot": version("trot"),
        "agent": agent.described(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{task}.pt") as file:
        write_checkpoint(file, {"agent": agent.saved()})
    with replacing(folder / f"{task}.json") as file:
        file.write((json.dumps(about, indent=2) + "\n").encode())
    return folder / f"{task}.json"


@dataclass
class PackageSettings:
    """Keep a run's policy in trot/policies, so that it comes with the package."""

    run: RunPath
    """The run's folder."""
    command: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="COMMAND")]
    """What trained it, for example "trot train ant"."""
    checkpoint: str = "best"
    """Of the run: initial, iteration_000400, ..., best, last."""


def main(arguments: list[str] | None = None) -> None:
    """`python -m trot.learn.packaged_policy RUN COMMAND`."""
    import sys

    given = sys.argv[1:] if arguments is None else arguments
    settings = parse(PackageSettings, "python -m trot.learn.packaged_policy", PackageSettings.__doc__, given)
    print(package_policy(RunFolder.open(settings.run), settings.command, settings.checkpoint))


if __name__ == "__main__":
    main()
