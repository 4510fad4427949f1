"""Every kernel once, in a small case: what NVIDIA's compute-sanitizer is to look at.

compute-sanitizer --tool racecheck python -m bench.every_kernel
compute-sanitizer --tool memcheck python -m bench.every_kernel --robots ant tests/robots/every_joint.xml --tasks
python -m bench.every_kernel --robots tests/robots/every_pair.xml --self-collision --tasks
python -m bench.every_kernel --device cpu          the same calls, to see that they run
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro

from bench.robots import CONTROL_DT
from trot.envs.device import existing_device
from trot.envs.registry import make_env
from trot.envs.task import ASSETS
from trot.learn.algorithms import find_algorithm
from trot.learn.train import choose_device
from trot.sim.load import load_model
from trot.sim.step import step


@dataclass(frozen=True)
class EveryKernelSettings:
    """What is to run. An option without anything behind it leaves its part out."""

    robots: tuple[str, ...] = ("hopper", "ant", "humanoid", "muscle_humanoid", "quadruped")
    """Names of trot's own, or robot files: two worlds, a control step there and back."""
    tasks: tuple[str, ...] = ("ant", "humanoid")
    """One iteration of SHAC each, in short windows and without graphs: policy, critic and what ends a step."""
    self_collision: bool = False
    """The robots' own shapes touch each other too."""
    substeps: int = 4
    worlds: int = 2
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""


def run_every_kernel(settings: EveryKernelSettings) -> None:
    """Run them; raises where a result is not finite."""
    device = choose_device(settings.device)
    existing_device(device)
    for robot in settings.robots:
        _step_there_and_back(robot, settings, device)
    for task in settings.tasks:
        _learn_once(task, device)
    print(f"{len(settings.robots)} robots and {len(settings.tasks)} tasks ran on {device}")


def _step_there_and_back(robot: str, settings: EveryKernelSettings, device: str) -> None:
    print(robot, file=sys.stderr, flush=True)
    file = Path(robot) if robot.endswith((".xml", ".urdf")) else ASSETS / f"{robot}.xml"
    model = load_model(file, self_collision=settings.self_collision)
    state = model.default_state(settings.worlds, device=device)
    draw = torch.Generator(device).manual_seed(0)
    speed = torch.randn(state.joint_qd.shape, generator=draw, device=device, requires_grad=True)
    control = torch.rand(settings.worlds, model.num_controls, generator=draw, device=device, requires_grad=True)
    after = step(model, replace(state, joint_qd=speed), control, control_dt=CONTROL_DT, substeps=settings.substeps)
    (after.joint_q.sum() + after.joint_qd.square().sum()).backward()  # type: ignore[no-untyped-call]
    assert speed.grad is not None
    assert control.grad is not None
    for name, found in (("state", after.joint_qd), ("gradient", speed.grad), ("gradient", control.grad)):
        if not bool(found.isfinite().all()):
            raise RuntimeError(f"{robot}: its {name} is not finite")


def _learn_once(task: str, device: str) -> None:
    print(f"{task}, SHAC", file=sys.stderr, flush=True)
    algorithm = find_algorithm("shac")
    chosen = algorithm.paper_settings(task)
    settings = replace(chosen, num_worlds=16, horizon=4, critic_passes=1)
    learner = algorithm.learner(make_env(task, settings.num_worlds, device), settings, 0)
    learner.iterate()
    if bool(learner.stopped.any()):
        raise RuntimeError(f"{task}: SHAC's gradient is not finite")


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_every_kernel(tyro.cli(EveryKernelSettings, prog="python -m bench.every_kernel", description=description))
