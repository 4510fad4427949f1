"""What the kernels gain on this machine by keeping more for the backward pass, and by summing over the tree together.

python -m bench.kept                                          all kinds on the GPU, in one run
python -m bench.kept --device cpu --robots ant --worlds 16    the same switches on the CPU

Every robot and kind is built first, in processes side by side. Then each kind runs the same window, and what it gives
is compared with the first.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Literal

import torch
import tyro
from torch import Tensor

from bench.report import describe_machine, gpu_name, markdown_table, stage_table
from bench.robots import ANT, CONTROL_DT, CONTROL_STEPS, HOPPER, HUMANOID, ROOT, Robot
from bench.stages import PROFILE_WORLDS, stages_of
from bench.window import Window, timed
from trot.sim.build import Variant
from trot.sim.launch import Launcher, launcher
from trot.sim.load import load_model
from trot.sim.step import Pass, Physics
from trot.sim.threads import set_num_threads

MUSCLE_HUMANOID = Robot("muscle Humanoid", ROOT / "trot/envs/assets/muscle_humanoid.xml", 48, 2, height=1.0)
ROBOTS = {"hopper": HOPPER, "ant": ANT, "humanoid": HUMANOID, "muscle_humanoid": MUSCLE_HUMANOID}

KINDS = {
    "factor kept": Variant(torch.float32, store_factor=True, sums_in_lanes=False),
    "and motion": Variant(torch.float32, store_factor=True, store_motion=True, sums_in_lanes=False),
    "and sums in lanes": Variant(torch.float32, store_factor=True, store_motion=True),
    "sums, no motion": Variant(torch.float32, store_factor=True),
}


@dataclass(frozen=True)
class KeptSettings:
    """What to compare."""

    robots: tuple[Literal["hopper", "ant", "humanoid", "muscle_humanoid"], ...] = (
        "humanoid", "ant", "hopper", "muscle_humanoid",
    )  # fmt: skip
    worlds: tuple[int, ...] = (64, 1024, 4096)
    device: Literal["cuda", "cpu"] = "cuda"
    repeats: int = 3
    """Repetitions of each window; the median is printed."""


def build(name: str, variant: Variant, device: str) -> None:
    """Leave a kernel in Warp's cache."""
    launcher(load_model(ROBOTS[name].file), variant, torch.zeros(0, device=device).device)


def needed(device: str) -> list[Variant]:
    """All that may be asked for."""
    kinds = list(KINDS.values())
    few = [replace(kind, model_in_shared=False) for kind in kinds if device == "cuda"]
    return [*kinds, *few, *(replace(kind, profile=True) for kind in kinds)]


@dataclass(frozen=True)
class Ran:
    """One kind's window."""

    kept_ms: float
    backward_ms: float
    bytes_kept: int
    results: list[Tensor]


def run_window(window: Window, run: Launcher, repeats: int) -> Ran:
    """Medians of a window, on CUDA replayed from two graphs, and its last state and first gradients."""
    device = window.start.joint_q.device
    physics = Physics(run, CONTROL_DT, window.robot.substeps)

    def kept() -> list[Pass]:
        joint_q, joint_qd, passes = window.start.joint_q, window.start.joint_qd, []
        for control in window.controls:
            passes.append(Pass(physics, joint_q, joint_qd, control, None))
            joint_q, joint_qd, _ = passes[-1].forward(keep=True)
        ends.append([joint_q, joint_qd])
        return passes

    def backward(passes: list[Pass]) -> list[Tensor]:
        q_bar, qd_bar = (torch.ones_like(end) for end in ends[-1])
        for ran in reversed(passes):
            q_bar, qd_bar, *_ = ran.backward(q_bar, qd_bar, tangent=False)
        return [q_bar, qd_bar]

    ends: list[list[Tensor]] = []
    # Loads the kernels, which a capture must not.
    first = Pass(physics, window.start.joint_q, window.start.joint_qd, window.controls[0], None)
    q, qd, _ = first.forward(keep=True)
    first.backward(q, qd, tangent=False)
    first.trajectory = None
    times: list[tuple[float, float]] = []
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        forwards, backwards = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(forwards):
            passes = kept()
        with torch.cuda.graph(backwards, pool=forwards.pool()):
            bars = backward(passes)
        for _ in range(repeats + 1):
            times.append((timed(device, forwards.replay)[0], timed(device, backwards.replay)[0]))
    else:
        for _ in range(repeats + 1):
            forward_ms, passes = timed(device, kept)
            backward_ms, bars = timed(device, functools.partial(backward, passes))
            times.append((forward_ms, backward_ms))
    forward_ms, backward_ms = (statistics.median(column) for column in zip(*times[1:], strict=True))
    bytes_kept = CONTROL_STEPS * window.start.num_worlds * run.kept_bytes(window.robot.substeps)
    return Ran(forward_ms, backward_ms, bytes_kept, [tensor.clone() for tensor in (*ends[-1], *bars)])


def compare(settings: KeptSettings, name: str, device: torch.device) -> None:
    """Print a robot's windows and stages."""
    robot, model = ROBOTS[name], load_model(ROBOTS[name].file)
    rows: list[list[str]] = []
    for worlds in settings.worlds:
        window, first = Window.draw(robot, model, worlds, device), None
        for kind, variant in KINDS.items():
            run = launcher(model, variant, device)
            if device.type == "cuda":
                torch.cuda.empty_cache()
                shared_too = run.rounds(worlds, True) == run.rounds(worlds, False)
                run = launcher(model, replace(variant, model_in_shared=shared_too), device)
            ran = run_window(window, run, settings.repeats)
            first = first or ran
            rows.append(
                [kind, str(worlds), f"{ran.kept_ms:.2f}", f"{ran.backward_ms:.2f}", f"{ran.bytes_kept / 1e9:.2f}",
                 *_difference(ran, first)]
            )  # fmt: skip
    print(f"\n### {robot.name}\n")
    print(markdown_table(["kind", "worlds", "kept ms", "backward ms", "GB kept", "state differs", "gradient"], rows))
    window = Window.draw(robot, model, PROFILE_WORLDS, device)
    stages = [
        replace(
            stages_of(window, launcher(model, replace(variant, profile=True), device), settings.repeats), robot=kind
        )
        for kind, variant in KINDS.items()
    ]
    print("\n" + stage_table(stages), flush=True)


def _difference(ran: Ran, first: Ran) -> tuple[str, str]:
    """How far apart, as a share of the largest number: the last state, then the gradients; worlds that are finite."""
    said = []
    for pair in (slice(0, 2), slice(2, 4)):
        ours, theirs = (torch.cat(one.results[pair], dim=1) for one in (ran, first))
        sound = ours.isfinite().all(dim=1) & theirs.isfinite().all(dim=1)
        scale = theirs[sound].abs().amax(dim=1)
        apart = ((ours - theirs)[sound].abs().amax(dim=1) / scale).median()
        lost = f", {int((~sound).sum())} worlds not finite" if not sound.all() else ""
        said.append(("the same bits" if torch.equal(ours[sound], theirs[sound]) else f"{apart:.1e} median") + lost)
    return said[0], said[1]


def main(settings: KeptSettings) -> None:
    """Build everything, then measure."""
    device = torch.zeros(0, device=settings.device).device
    print(describe_machine(gpu_name() if device.type == "cuda" else None), flush=True)
    set_num_threads(1)
    wanted = [(name, variant) for name in settings.robots for variant in needed(settings.device)]
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), get_context("spawn")) as processes:
        for done in [processes.submit(build, *one, settings.device) for one in wanted]:
            done.result()
    print(f"{len(wanted)} kernels are built", file=sys.stderr, flush=True)
    for name in settings.robots:
        compare(settings, name, device)


if __name__ == "__main__":
    main(tyro.cli(KeptSettings, prog="python -m bench.kept", description=(__doc__ or "").partition("\n")[0]))
