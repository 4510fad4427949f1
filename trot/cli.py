"""The command line. Torch, Warp and MuJoCo are imported by the command that runs, so that help answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version

import tyro

from trot.sim.errors import NonFiniteError

DESCRIPTION = "Parallel differentiable simulation of articulated bodies. `trot --version` prints the version."


def check(arguments: list[str]) -> int:
    """Load a robot file, step it and compare its gradients with finite differences."""
    from trot.sim.check import CheckSettings, run_check

    settings = tyro.cli(CheckSettings, prog="trot check", description=check.__doc__, args=arguments)
    return 0 if run_check(settings) else 1


def bench(arguments: list[str]) -> int:
    """Measure the simulation's speed, forward and backward."""
    try:
        from bench.step import BenchSettings, run_bench
    except ModuleNotFoundError as error:
        if error.name not in ("bench", "bench.step"):
            raise
        print(
            "trot bench: the benchmarks live in trot's repository, not in the installed package.\n"
            "In a clone of it run: python3 go.py run bench",
            file=sys.stderr,
        )
        return 2

    run_bench(tyro.cli(BenchSettings, prog="trot bench", description=bench.__doc__, args=arguments))
    return 0


def demo(arguments: list[str]) -> int:
    """Simulate a robot and improve its motion with gradients."""
    from trot.demo import run_demo

    tyro.cli(run_demo, prog="trot demo", description=demo.__doc__, args=arguments)
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {"check": check, "bench": bench, "demo": demo}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for what the user can mend, 130 for Ctrl-C."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        print(f"trot {version('trot')}")
        return 0
    if name not in COMMANDS:
        # Help, or a name that does not exist: tyro prints the names there are, and exits.
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="trot", description=DESCRIPTION, args=[name, *rest])

    try:
        return COMMANDS[name](rest)
    except KeyboardInterrupt:
        return 130
    except (FileNotFoundError, ValueError, NonFiniteError) as error:
        print(f"trot {name}: {_message(error)}", file=sys.stderr)
        return 2


def _message(error: Exception) -> str:
    # The system's own text starts with an error number; ours says what to mend.
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"no such file: {error.filename}"
    return str(error)
