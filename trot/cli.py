"""The command line. Torch, Warp and MuJoCo are imported by the command that runs, so that help answers at once."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import tyro

from trot.command_line import RunPath, parse, parse_call
from trot.completion import completion_script
from trot.out_of_memory import memory_message, out_of_memory
from trot.sim.errors import GradientError, NonFiniteError

DESCRIPTION = (
    "Robots that learn through gradients of their simulation. `trot --version` prints the version, "
    'and `eval "$(trot --completion)"` lets bash and zsh complete commands and tasks.'
)


def tasks(arguments: list[str]) -> int:
    """List the tasks with their dimensions."""
    from trot.learn.try_out import print_tasks

    parse_call(print_tasks, "trot tasks", tasks.__doc__, arguments)()
    return 0


def try_task(arguments: list[str]) -> int:
    """Run a task for a few seconds with an agent that knows nothing, and print returns."""
    from trot.learn.try_out import TrySettings, run_try

    run_try(parse(TrySettings, "trot try", try_task.__doc__, arguments))
    return 0


def check(arguments: list[str]) -> int:
    """Check a robot file or a task: a robot's approximations, motion, substeps and gradients; a task's gradients."""
    from trot.envs.check_task import TaskCheckSettings, run_task_check
    from trot.envs.registry import make_task, names_task
    from trot.sim.check_robot import CheckSettings
    from trot.sim.doctor import run_check

    if any(names_task(argument) for argument in arguments):
        task_settings = parse(TaskCheckSettings, "trot check", check.__doc__, arguments)
        return 0 if run_task_check(task_settings) else 1
    description = f"{check.__doc__} These are the options for a robot file; `trot check ant --help` shows a task's."
    settings = parse(CheckSettings, "trot check", description, arguments)
    if not settings.model.suffix and not settings.model.exists():
        # A task misspelt rather than a file: the answer lists the tasks.
        make_task(str(settings.model))
    return 0 if run_check(settings) else 1


def train(arguments: list[str]) -> int:
    """Teach a policy by gradients through the simulation."""
    from trot.learn.begin import begin
    from trot.learn.candidates import with_candidates
    from trot.learn.train import on_cuda, parse_settings

    settings = parse_settings(arguments)
    worlds_given = any(argument.partition("=")[0] in ("--worlds", "--num-worlds") for argument in arguments)
    begin(with_candidates(settings, on_cuda(settings.device), worlds_given))
    return 0


def resume(arguments: list[str]) -> int:
    """Go on with a run as if it had never stopped, or with several of `trot train --seeds` in one batch."""
    from trot.learn.contest import has_contest, resume_contest
    from trot.learn.resume import resume as go_on
    from trot.learn.resume_together import resume_together

    def read(
        run: RunPath,
        others: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")] = (),
        device: str = "auto",
        stop_at: float | None = None,
        iterations: int | None = None,
        minutes: float | None = None,
    ) -> None:
        """Go on with a run.

        Args:
            run: The run folder.
            others: More of them that differ in their seeds alone, to go on together.
            device: auto is the kind of device that the run began on.
            stop_at: Another goal than the run's own, also for a run that has reached that.
            iterations: In all, instead of the run's own number; also for a run that is finished.
            minutes: Of training in all, instead of the run's own limit, also where that is reached; inf for no limit.
        """
        if has_contest([run, *others]):
            resume_contest([run, *others], device, stop_at, iterations, minutes)
        elif others:
            resume_together([run, *others], device, stop_at, iterations, minutes)
        else:
            go_on(run, device, stop_at, iterations, minutes)

    parse_call(read, "trot resume", resume.__doc__, arguments)()
    return 0


def algorithms(arguments: list[str]) -> int:
    """List the algorithms that `trot train` learns by."""
    from trot.learn.algorithms import print_algorithms

    parse_call(print_algorithms, "trot algorithms", algorithms.__doc__, arguments)()
    return 0


def evaluate(arguments: list[str]) -> int:
    """Play episodes with a trained policy, and print returns, lengths and falls."""
    from trot.learn.eval_command import eval_command

    return eval_command(arguments)


def export(arguments: list[str]) -> int:
    """Write a trained policy as ONNX and TorchScript, and check that they agree with it."""
    from trot.learn.export import export_command

    return export_command(arguments)


def plot(arguments: list[str]) -> int:
    """Draw learning curves, gradient health or speed of runs."""
    from trot.view.plots.plot import plot_command

    return plot_command(arguments)


def compare(arguments: list[str]) -> int:
    """Train a task by several algorithms and seeds, and set them side by side: curves, and a table."""
    from trot.compare.compare_command import compare_command

    return compare_command(arguments)


def tune(arguments: list[str]) -> int:
    """Search for settings by which a task is learned best, with many trials in one batch."""
    from trot.tune.tune_command import tune_command

    return tune_command(arguments)


def study(arguments: list[str]) -> int:
    """Redraw a figure that explains why learning through gradients works: `trot study` lists them."""
    from trot.study.study_command import study_command

    return study_command(arguments)


def view(arguments: list[str]) -> int:
    """Watch a run, a task or a robot in the browser, or write it as a page."""
    from trot.view.browser.view_command import view_command

    return view_command(arguments)


def play(arguments: list[str]) -> int:
    """Play with a living robot in the browser: push it, drag it, change its world."""
    from trot.view.play.play_command import play_command

    return play_command(arguments)


def render(arguments: list[str]) -> int:
    """Make a video, an animation or a strip of pictures of a run, a task or a robot."""
    from trot.view.video.render import render_command

    return render_command(arguments)


def list_runs(arguments: list[str]) -> int:
    """List runs with their best returns."""
    from trot.runs.listing import list_command

    return list_command(arguments)


def replay_fault(arguments: list[str]) -> int:
    """Run again where a world blew up or a gradient failed, and say where it began."""
    from trot.learn.replay_fault import replay_fault as replay

    def read(path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]) -> None:
        """Print what went wrong.

        Args:
            path: A file that Fault.save() or a stopped run wrote.
        """
        print(replay(path))

    parse_call(read, "trot replay-fault", replay_fault.__doc__, arguments)()
    return 0


def bench(arguments: list[str]) -> int:
    """Measure speed: `trot bench` the simulation, `env` the environments, `train` learning, `scale` large batches."""
    try:
        from bench.env import EnvBenchSettings, run_env_bench
        from bench.scale import ScaleBenchSettings, run_scale_bench
        from bench.step import BenchSettings, run_bench
        from bench.train import TrainBenchSettings, run_train_bench
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "bench":
            raise
        print(
            "trot bench: the benchmarks live in trot's repository, not in the installed package.\n"
            "In a clone of it run: python3 go.py run bench",
            file=sys.stderr,
        )
        return 2

    named = arguments[:1] in (["env"], ["train"], ["scale"])
    what, rest = (arguments[0], arguments[1:]) if named else ("step", arguments)
    if what == "env":
        description = "Measure the environments, and what they add to the physics."
        run_env_bench(parse(EnvBenchSettings, "trot bench env", description, rest))
    elif what == "train":
        description = "Measure a learning iteration, split into the phases of the algorithm."
        run_train_bench(parse(TrainBenchSettings, "trot bench train", description, rest))
    elif what == "scale":
        description = "Measure learning in larger and larger batches: its rate, its memory, and where it stops paying."
        run_scale_bench(parse(ScaleBenchSettings, "trot bench scale", description, rest))
    else:
        run_bench(parse(BenchSettings, "trot bench", bench.__doc__, rest))
    return 0


def demo(arguments: list[str]) -> int:
    """Teach a pole on a cart to swing up, on the CPU, within a minute."""
    from trot.demo import run_demo

    parse_call(run_demo, "trot demo", demo.__doc__, arguments)()
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "tasks": tasks,
    "try": try_task,
    "algorithms": algorithms,
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "export": export,
    "list": list_runs,
    "play": play,
    "view": view,
    "plot": plot,
    "compare": compare,
    "tune": tune,
    "study": study,
    "render": render,
    "check": check,
    "replay-fault": replay_fault,
    "bench": bench,
    "demo": demo,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for what the user can mend, 130 for Ctrl-C."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        print(f"trot {version('trot')}")
        return 0
    if name == "--completion":
        from trot.envs.registry import TASKS

        print(completion_script(COMMANDS, TASKS), end="")
        return 0
    if name in ("-h", "--help"):
        # tyro prints it, and exits.
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="trot", description=DESCRIPTION, args=[name])
    if name not in COMMANDS:
        print(f"trot: {_no_command(name)}", file=sys.stderr)
        return 2

    try:
        return COMMANDS[name](rest)
    except KeyboardInterrupt as stopped:
        print(str(stopped) or f"trot {name}: stopped", flush=True)
        return 130
    except (FileNotFoundError, ValueError, NonFiniteError, GradientError) as error:
        print(f"trot {name}: {_message(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print(f"trot {name}: {memory_message(error, rest)}", file=sys.stderr)
        return 2


def _no_command(name: str) -> str:
    nearest = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f"there is no command '{name}'.{hint} There are: {', '.join(COMMANDS)}"


def _message(error: Exception) -> str:
    # The system's own text starts with an error number; ours says what to mend.
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"no such file: {error.filename}"
    return str(error)
