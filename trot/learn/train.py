"""`trot train`: learning with a run folder, progress, checkpoints, and a clean end."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import torch
import tyro

from trot.command_line import TaskName, parse
from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.rank_env import RankEnv
from trot.envs.ranks import ranks_on
from trot.envs.registry import make_env, make_task
from trot.envs.trainable import require_trainable
from trot.learn.agent import described_agent, load_agent
from trot.learn.algorithms import DEFAULT_ALGORITHM, algorithm_lines, find_algorithm
from trot.learn.learner import Algorithm, Learner, LearnerSettings
from trot.learn.led import place_of, see_through, together
from trot.learn.run_record import RunRecord, resume_command, writing_into
from trot.learn.schedule import Schedule
from trot.learn.seeds import parsed_seeds
from trot.learn.watched import require_viewer, watched
from trot.learn.weights_and_biases import WANDB, new_wandb_run, require_wandb
from trot.runs.folder import RunFolder

Settings = TypeVar("Settings", bound=LearnerSettings)


@dataclass(frozen=True)
class TrainSettings(Generic[Settings]):
    """Teach a policy. `trot algorithms` lists what it can learn by, and each has options of its own."""

    task: TaskName
    """One of `trot tasks`, or path/to/file.py:Class."""
    settings: Annotated[Settings, tyro.conf.OmitArgPrefixes]
    """The algorithm's."""
    algo: str = DEFAULT_ALGORITHM
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    preset: str | None = None
    """Where the defaults of the options come from; the algorithm's first preset unless given, or on a GPU another that
    serves the task better there."""
    start_from: Path | None = None
    """A run folder whose best policy, with its statistics of observations, is what this run begins with. Options that
    give a policy its form are those of that run unless given."""
    then: Literal["ppo"] | None = None
    """ppo: when the training has ended, PPO goes on from the best policy, in a run folder of its own, as --algo
    ppo-finish --start-from RUN does."""
    seed: int = 0
    """Of the first weights, the starts of episodes and the noise."""
    seeds: tuple[str, ...] = ()
    """Several at once, in one batch: 0-15, or 0 3 7. Each leaves a run folder as if trained alone."""
    candidates: int = 0
    """So many policies begin, each with its share of the worlds. The better half goes on again and again, and takes
    over the others' worlds, until one is left. A power of 2; 0: on a GPU as many as were found to serve the task, on
    the CPU one."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str | None = None
    """Of the run folder; task, algorithm and seed without it. With --seeds, the seed comes behind it."""
    view: bool = False
    """Show the newest policy in the browser while it learns, in a process that yields to the training."""
    schedule: Annotated[Schedule, tyro.conf.OmitArgPrefixes] = field(default_factory=Schedule)
    randomize: Randomize = field(default_factory=Randomize)
    """Physics of its own for each world: ranges of factors."""
    wandb: bool = False
    """Log to Weights & Biases as well; WANDB_MODE=offline keeps it in the run folder."""

    def __post_init__(self) -> None:
        # What cannot be read is an error before anything is made.
        parsed_seeds(self.seeds)
        if self.candidates < 0:
            raise ValueError(f"candidates must be 1 or more, or 0 for what serves the task, not {self.candidates}")
        if self.wandb:
            require_wandb()
        if self.view:
            require_viewer(self.seeds)


def train(settings: TrainSettings[Any]) -> RunFolder:
    """Start a run and see it through; train_together() does so with several seeds.

    Under torchrun this is for rank 0; the others call help_to_train().
    """
    algorithm, learner = _beginning(settings)
    with together(learner):
        name = settings.name or run_name(learner.env.task.name, algorithm, settings.seed)
        with RunFolder.create(settings.runs, name, described(settings, algorithm, learner)) as run, stoppable(run):
            start = f"{settings.task}, {settings.algo}, seed {settings.seed}, on {place_of(learner)}"
            print(f"{start}. Run folder: {run.path}", flush=True)
            with writing_into(run):
                run.save_checkpoint("initial", {"agent": learner.agent.saved()})
            with watched(run, settings.view):
                see_through(RunRecord(run, settings.schedule), learner, settings.settings.iterations)
    return run


def help_to_train(settings: TrainSettings[Any]) -> None:
    """What the ranks do that rank 0 leads."""
    _, learner = _beginning(settings)
    with together(learner):
        pass


def _beginning(settings: TrainSettings[Any]) -> tuple[Algorithm, Learner]:
    if settings.seeds:
        raise ValueError(f"train() is for one seed; for {', '.join(settings.seeds)} call train_together()")
    algorithm = find_algorithm(settings.algo)
    env = make_training_env(settings)
    require_trainable(env)
    learner = make_learner(algorithm, env, settings)
    if settings.start_from is not None:
        start_from_run(learner, RunFolder.open(settings.start_from))
    return algorithm, learner


def start_from_run(learner: Learner, run: RunFolder, checkpoint: str = "best") -> None:
    """Let a learner begin with the policy that another run has learned."""
    try:
        learner.start_from(load_agent(run, checkpoint))
    except ValueError as error:
        raise ValueError(f"cannot start from {run.path}: {error}") from None


def run_name(task: str, algorithm: Algorithm, seed: int) -> str:
    """Of a run's folder, unless another is asked for."""
    # A file's class gives its name; a colon or a slash has no place in a folder's.
    return f"{task.rpartition(':')[2]}-{algorithm.name}-{seed}"


def parse_settings(arguments: list[str]) -> TrainSettings[Any]:
    """From the command line: task, algorithm and preset choose the defaults of everything else."""
    task = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(arguments):
        raise ValueError("the task comes first: trot train ant --seed 1")
    # Raises where there is no such task, and suggests the nearest name.
    randomize = Randomize() if task is None else make_task(task).randomize
    first = argparse.ArgumentParser(prog="trot train", add_help=False)
    for option, otherwise in (("--algo", None), ("--preset", None), ("--device", "auto"), ("--start-from", None)):
        first.add_argument(option, default=otherwise)
    chosen, _ = first.parse_known_args(arguments)
    algo = chosen.algo or DEFAULT_ALGORITHM
    algorithm = find_algorithm(algo)
    preset = chosen.preset or algorithm.preset_for(task or "", on_cuda(chosen.device))
    resolved = default_settings(algorithm, task or "", preset, chosen.start_from)
    default = TrainSettings(task or "", resolved, algo, preset, randomize=randomize)
    kind = TrainSettings[algorithm.settings]  # type: ignore[name-defined]
    description = f"Teach a policy by {algorithm.label}: {algorithm.summary}. Presets: {', '.join(algorithm.presets)}."
    if {"-h", "--help"} & set(arguments) or task is None:
        # Lines of one paragraph would flow into one another.
        description = "\n\n".join([description, "All algorithms, for --algo:", *algorithm_lines()])
    if task is None:
        return parse(kind, "trot train", description, ["--help"])
    given = {argument.partition("=")[0] for argument in arguments}
    if {"--seed", "--seeds"} <= given:
        raise ValueError("--seed is for one run, --seeds for several: give one of them")
    settings = parse(kind, "trot train", description, arguments, default=default)
    if "--seeds" in given and not settings.seeds:
        raise ValueError("--seeds names no seed: give some, such as 0-15 or 0 3 7")
    return settings


def default_settings(algorithm: Algorithm, task: str, preset: str, start_from: Path | str | None) -> LearnerSettings:
    """Those of the preset; where there is a run to start from, as they are to go on from its policy."""
    resolved: LearnerSettings = algorithm.resolve(task, preset)
    return resolved if start_from is None else resolved.going_on_from(described_agent(RunFolder.open(Path(start_from))))


def choose_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def on_cuda(device: str) -> bool:
    """Whether that chooses a GPU."""
    return choose_device(device).startswith("cuda")


def make_learner(algorithm: Algorithm, env: Env, settings: TrainSettings[Any]) -> Learner:
    """A learner at its beginning."""
    learner = algorithm.learner(env, settings.settings, settings.seed)
    if not hasattr(learner, "agent") or not hasattr(learner, "best"):
        raise ValueError(f"{type(learner).__name__} has no agent: its __init__ is to call make_agent()")
    return learner


class Stopped(KeyboardInterrupt):
    """A Ctrl-C during a training; it says how to go on, and with which runs."""

    def __init__(self, message: str, runs: Sequence[RunFolder]) -> None:
        super().__init__(message)
        self.runs = runs


@contextlib.contextmanager
def stoppable(*runs: RunFolder) -> Iterator[None]:
    """Whenever Ctrl-C strikes, also before the first iteration, it says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        message = str(stopped) or f"Stopped. Go on: {resume_command(*runs)}"
        raise Stopped(message, runs) from None


def make_training_env(settings: TrainSettings[Any]) -> Env:
    """The worlds that a run learns in."""
    device = choose_device(settings.device)
    randomize, ranks = random_physics(settings), ranks_on(device)
    if ranks is not None:
        task, num_worlds = make_task(settings.task), settings.settings.num_worlds
        return RankEnv(task, num_worlds, ranks, device, settings.seed, randomize=randomize)
    return make_env(settings.task, settings.settings.num_worlds, device, settings.seed, randomize=randomize)


def random_physics(settings: TrainSettings[Any]) -> Randomize | None:
    """None where every world has the robot's own."""
    return None if settings.randomize == Randomize() else settings.randomize


def described(settings: TrainSettings[Any], algorithm: Algorithm, learner: Learner) -> dict[str, Any]:
    """Everything resolved, as settings.json keeps it."""
    return {
        "task": settings.task,
        "algo": settings.algo,
        "label": algorithm.label,
        "preset": settings.preset or algorithm.default_preset,
        "seed": settings.seed,
        "device": learner.device.type,
        **({} if learner.ranks is None else {"ranks": learner.ranks.size}),
        **({} if settings.start_from is None else {"start_from": str(settings.start_from)}),
        "iterations": settings.settings.iterations,
        "agent": learner.agent.described(),
        "schedule": asdict(settings.schedule),
        "settings": asdict(settings.settings),
        "randomize": asdict(settings.randomize),
        **({WANDB: new_wandb_run()} if settings.wandb else {}),
    }
