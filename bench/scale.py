"""How far a batch grows: steps per second and memory against worlds, members and ranks, and where it stops paying.

python -m bench.scale                     the Ant, on the GPU where there is one
python -m bench.scale --tasks ant humanoid --worlds 64 1024 16384 --members 16
python -m bench.scale --worlds 1024 --members --ranks 1 2    one process, and two that share the worlds
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro

from bench.report import describe_machine, gpu_name, markdown_table
from bench.robots import ROOT
from trot.envs.device import existing_device, memory_bytes
from trot.envs.registry import make_task
from trot.learn.algorithms import DEFAULT_ALGORITHM, find_algorithm
from trot.learn.train import choose_device

ON_CUDA = tuple(4**power for power in range(3, 9))
ON_CPU = (16, 64, 256, 1024)
PAYS = 0.9
"""Of the highest rate: where it is reached, more worlds stop paying."""
SPARE = 0.9
"""Of the memory: what a batch may take by the estimate."""


@dataclass(frozen=True)
class ScaleBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = ("ant",)
    """Tasks by name, or path/to/file.py:Class."""
    worlds: tuple[int, ...] = ()
    """Worlds of one learner; from 64 to 65,536 on a GPU and from 16 to 1024 on the CPU unless given."""
    members: tuple[int, ...] = (4, 16)
    """Seeds in one batch, each with the task's tuned number of worlds."""
    ranks: tuple[int, ...] = ()
    """Processes that share the largest of these numbers of worlds, as by torchrun; on the CPU, and the cores, too."""
    algo: str = DEFAULT_ALGORITHM
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    iterations: int = 5
    """Of which the medians are taken."""
    json: Path | None = None
    """Write every figure to this file too."""


@dataclass(frozen=True)
class Batch:
    """So many worlds, of so many members."""

    task: str
    worlds: int
    """Of each member, where there are several."""
    members: int | None = None
    ranks: int | None = None
    """Processes that share the worlds."""

    @property
    def size(self) -> int:
        return self.worlds * (self.members or 1)

    def __str__(self) -> str:
        worlds = f"{self.worlds:,}" if self.members is None else f"{self.members} x {self.worlds:,}"
        return f"{self.task}, {worlds} worlds" + (f" on {self.ranks} ranks" if self.ranks else "")


@dataclass(frozen=True)
class Measured:
    """A batch that was tried."""

    batch: Batch
    fits: bool
    milliseconds: float = math.nan
    """Of an iteration."""
    steps_per_second: float = math.nan
    memory: int = 0
    """Bytes, the most that the process held: of the GPU, or of the machine."""


def run_scale_bench(settings: ScaleBenchSettings) -> None:
    """Measure and print."""
    for name in ("worlds", "members", "ranks"):
        if any(number < 1 for number in getattr(settings, name)):
            raise ValueError(f"{name} must be at least 1, not {min(getattr(settings, name))}")
    if settings.iterations < 1:
        raise ValueError(f"iterations must be at least 1, not {settings.iterations}")
    device = choose_device(settings.device)
    room = memory_bytes(existing_device(device))
    gpus = torch.cuda.device_count()
    if device.startswith("cuda") and max(settings.ranks, default=1) > gpus:
        raise ValueError(f"there are {gpus} GPUs here for {max(settings.ranks)} ranks")
    algorithm = find_algorithm(settings.algo)
    for task in settings.tasks:
        make_task(task)
    print(describe_machine(gpu_name() if device.startswith("cuda") else None), flush=True)
    everything: list[Measured] = []
    for task in settings.tasks:
        worlds = sorted(set(settings.worlds or (ON_CUDA if device.startswith("cuda") else ON_CPU)))
        batches = [Batch(task, count) for count in worlds]
        own = algorithm.paper_settings(task).num_worlds
        batches += [Batch(task, own, members) for members in sorted(set(settings.members))]
        batches += [Batch(task, worlds[-1], ranks=ranks) for ranks in sorted(set(settings.ranks))]
        measured: list[Measured] = []
        for batch in batches:
            measured.append(_measured(batch, settings, device, measured, room))
        everything += measured
        print(f"\n### {task}, {settings.algo}\n\n{scale_table(measured)}\n\n{told(measured, room)}", flush=True)
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(one) for one in everything], indent=2) + "\n")


def _measured(
    batch: Batch, settings: ScaleBenchSettings, device: str, before: Sequence[Measured], room: float
) -> Measured:  # fmt: skip
    print(f"{batch}, {settings.algo}, {device}", file=sys.stderr, flush=True)
    most = how_many_fit(before, room)
    # Each rank has a GPU of its own; on the CPU they share the memory.
    shares = batch.ranks or 1 if device.startswith("cuda") else 1
    if most is not None and batch.size > most * shares:
        # A machine whose memory runs out may end another program than this one.
        return Measured(batch, fits=False)
    asked = {**asdict(batch), "algo": settings.algo, "device": device, "iterations": settings.iterations}
    ranks = asked.pop("ranks") or 1
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *launcher, "-m", "bench.scale_child", json.dumps(asked)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode in (-signal.SIGKILL, -signal.SIGABRT):
        # What the system does to the largest process when memory runs out, and C++ to its own.
        return Measured(batch, fits=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {result.returncode}:\n{result.stderr[-2000:]}")
    found = json.loads(result.stdout.splitlines()[-1])
    if not found["fits"]:
        return Measured(batch, fits=False)
    milliseconds = sum(found["phases"].values())
    return Measured(batch, True, milliseconds, found["steps"] / milliseconds * 1e3, found["memory"])


def how_many_fit(measured: Sequence[Measured], room: float) -> int | None:
    """Worlds in all of one process, by the memory of the two largest batches; None where fewer than two tell."""
    alone = [one for one in measured if one.fits and one.batch.ranks is None]
    by_size = {one.batch.size: one.memory for one in sorted(alone, key=lambda one: one.memory)}
    known = sorted(by_size.items())
    if len(known) < 2:
        return None
    (fewer, less), (more, most) = known[-2:]
    each = (most - less) / (more - fewer)
    return int((SPARE * room - less) / each) + fewer if each > 0 else None


def scale_table(measured: Sequence[Measured]) -> str:
    """Every batch that was tried."""
    rows = []
    for one in measured:
        batch, cells = one.batch, ["does not fit", "", "", ""]
        if one.fits:
            each = one.steps_per_second / (batch.members or 1)
            cells = [
                f"{one.milliseconds:.1f}",
                f"{one.steps_per_second:,.0f}",
                f"{each:,.0f}",
                f"{one.memory / 2**30:.2f}",
            ]
        rows.append([str(batch.ranks or 1), str(batch.members or 1), f"{batch.worlds:,}", *cells])
    head = ["ranks", "members", "worlds of each", "iteration ms", "steps/s", "of each", "GiB of rank 0"]
    return markdown_table(head, rows)


def told(measured: Sequence[Measured], room: float) -> str:
    """Where more worlds stop paying, and how many would fit where some do not."""
    alone = [one for one in measured if one.fits and one.batch.members is None and one.batch.ranks is None]
    lines = []
    if len(alone) > 1:
        highest = max(one.steps_per_second for one in alone)
        enough = next(one for one in alone if one.steps_per_second >= PAYS * highest)
        also = ", and this is the most that was tried" if enough is alone[-1] else ""
        lines.append(f"{PAYS:.0%} of the highest rate is reached with {enough.batch.worlds:,} worlds{also}.")
    for one in measured:
        if not one.fits:
            most = how_many_fit(measured, room)
            would = "fewer are to be tried" if most is None else f"about {most:,} in all would"
            lines.append(f"{one.batch} do not fit into {room / 2**30:.0f} GiB; {would}.")
    return "\n".join(lines)


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_scale_bench(tyro.cli(ScaleBenchSettings, prog="python -m bench.scale", description=description))
