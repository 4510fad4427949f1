"""Speed of the simulation on this machine, forward and backward, beside MuJoCo's.

python -m bench.step            about a minute on two cores; Markdown on stdout, progress on stderr
python -m bench.step --quick    the Ant alone
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro

from bench import report as tables
from bench.mujoco_rate import measure_mujoco
from bench.places import Place, find_places
from bench.report import Report, describe_machine, gpu_name
from bench.robots import ANT, CONTROL_STEPS, HUMANOID, ROBOTS, Robot
from bench.stages import PROFILE_WORLDS, kept_memory, measure_stages
from bench.start import measure_start
from bench.window import Timing, Window, measure
from trot.sim.load import load_model
from trot.sim.model import Model

CPU_WORLDS = (1, 16, 64, 256, 1024)
CUDA_WORLDS = (1, 16, 64, 256, 1024, 4096, 16384)
QUICK_WORLDS = (16, 64, 1024)

Loaded = list[tuple[Robot, Model]]


@dataclass(frozen=True)
class BenchSettings:
    """What to measure."""

    worlds: tuple[int, ...] = ()
    """World counts. Without any: 1 to 1024 on the CPU, 1 to 16384 on CUDA."""
    repeats: int = 5
    """Repetitions of each window; the median is printed. Windows of more than 2 s in all are repeated less."""
    cpu: bool = True
    """Measure the CPU: on one thread, and on all."""
    cuda: bool = True
    """Measure CUDA where there is a GPU: as a user calls it, and replayed from CUDA graphs."""
    quick: bool = False
    """The Ant alone, with fewer world counts."""
    json: Path | None = None
    """Write every figure to this file too."""


def run_bench(settings: BenchSettings) -> None:
    """Measure and print, one table after the other, so that an interrupted run has printed what it measured."""
    if settings.repeats < 1:
        raise SystemExit(f"--repeats must be at least 1, not {settings.repeats}")
    if settings.json is not None and not settings.json.parent.is_dir():
        raise SystemExit(f"--json: no such folder: {settings.json.parent}")
    places = find_places(settings.cpu, settings.cuda)
    devices = list(dict.fromkeys(place.device for place in places))
    gpu = gpu_name() if any(device.type == "cuda" for device in devices) else None
    report = Report(describe_machine(gpu), gpu)
    print(report.machine, flush=True)
    robots = [(robot, load_model(robot.file)) for robot in ((ANT,) if settings.quick else ROBOTS)]

    for robot, model in robots:
        report.timings += _timings(settings, robot, model, places)
    _print_section("Windows", tables.timing_table(report.timings))
    if any(timing.worlds == tables.REFERENCE_WORLDS for timing in report.timings):
        _print_section("Ratios", tables.ratio_table(report))
    _measure_mujoco(report, robots)
    _measure_kernels(report, robots, devices, settings.repeats)
    _measure_starts(report, devices)

    if settings.json is not None:
        settings.json.write_text(json.dumps(asdict(report), indent=2) + "\n")


def _world_counts(settings: BenchSettings, device: torch.device) -> tuple[int, ...]:
    if settings.worlds:
        return settings.worlds
    if settings.quick:
        return QUICK_WORLDS
    return CUDA_WORLDS if device.type == "cuda" else CPU_WORLDS


def _timings(settings: BenchSettings, robot: Robot, model: Model, places: list[Place]) -> Iterator[Timing]:
    for place in places:
        for worlds in _world_counts(settings, place.device):
            if not _fits(robot, model, worlds, place.device):
                _say(f"{robot.name}, {place.name}, worlds {worlds}: left out, the trajectory is too large for this GPU")
                continue
            timing = measure(Window.draw(robot, model, worlds, place.device), place, settings.repeats)
            lost = worlds - timing.finite_worlds
            _say(
                f"{robot.name}, {place.name}, worlds {worlds}: forward {timing.forward_ms:.2f} ms, kept "
                f"{timing.kept_ms:.2f} ms, backward {timing.backward_ms:.2f} ms"
                + (f"; NOT FINITE in {lost} worlds" if lost else "")
            )
            yield timing


def _fits(robot: Robot, model: Model, worlds: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    # A graph's pool and the stream that warmed it up may each hold a trajectory for a moment.
    return 2.5 * worlds * CONTROL_STEPS * kept_memory(robot, model, device, worlds).bytes_per_control_step < free


def _measure_mujoco(report: Report, robots: Loaded) -> None:
    for robot, model in robots:
        _say(f"{robot.name}: mj_step on one core")
        report.mujoco.append(measure_mujoco(robot, model))
    _print_section("MuJoCo", tables.mujoco_table(report))


def _measure_kernels(report: Report, robots: Loaded, devices: list[torch.device], repeats: int) -> None:
    for device in devices:
        stages = []
        for robot, model in robots:
            _say(f"{robot.name}, {device.type}: cycles of each stage")
            stages.append(measure_stages(Window.draw(robot, model, PROFILE_WORLDS, device), repeats))
            report.memory.append(kept_memory(robot, model, device))
        report.stages += stages
        _print_section(f"Stages, {device.type.upper()}", tables.stage_table(stages))
    _print_section("Memory kept for the backward pass", tables.memory_table(report.memory))


def _measure_starts(report: Report, devices: list[torch.device]) -> None:
    for device in devices:
        _say(f"{HUMANOID.name}, {device.type}: first build and cached start")
        report.starts.append(measure_start(HUMANOID, device.type))
    _print_section("Start of a fresh process", tables.start_table(report.starts))


def _print_section(title: str, text: str) -> None:
    print(f"\n### {title}\n\n{text}", flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_bench(tyro.cli(BenchSettings, prog="python -m bench.step", description=(__doc__ or "").partition("\n")[0]))
