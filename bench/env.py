"""Speed of the environments, and what observation, reward and reset add to the bare physics.

python -m bench.env            all tasks at 64 worlds; Markdown on stdout, progress on stderr
python -m bench.env --quick    Ant and Humanoid on one core
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor

from bench.places import Place, find_places
from bench.report import describe_machine, gpu_name, markdown_table
from bench.robots import CONTROL_STEPS
from bench.window import timed
from trot.envs.env import Env
from trot.envs.registry import TASKS, make_env
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.threads import set_num_threads


@dataclass(frozen=True)
class EnvBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks by name."""
    worlds: tuple[int, ...] = (64,)
    """World counts."""
    repeats: int = 9
    """Repetitions of each window, environment and bare physics in turn; medians are printed."""
    cpu: bool = True
    """Measure the CPU: on one thread, and on all."""
    cuda: bool = True
    """Measure CUDA where there is a GPU: as a user calls it, and replayed from CUDA graphs."""
    quick: bool = False
    """Ant and Humanoid on one core."""
    json: Path | None = None
    """Write every figure to this file too."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of one window."""

    forward: float
    """Without gradient."""
    kept: float
    """Forward, with gradient to come."""
    backward: float


@dataclass(frozen=True)
class EnvTiming:
    """An environment and its bare physics, medians of windows measured in turn."""

    task: str
    place: str
    worlds: int
    env: Times
    physics: Times

    @property
    def steps_per_second(self) -> float:
        return self.worlds * CONTROL_STEPS / self.env.forward * 1e3

    @property
    def gradient_steps_per_second(self) -> float:
        return self.worlds * CONTROL_STEPS / (self.env.kept + self.env.backward) * 1e3

    @property
    def added(self) -> float:
        """Per cent on top of the physics, without gradient."""
        return 100 * (self.env.forward / self.physics.forward - 1)

    @property
    def gradient_added(self) -> float:
        """Per cent on top of the physics, forward and backward."""
        return 100 * ((self.env.kept + self.env.backward) / (self.physics.kept + self.physics.backward) - 1)


class Window:
    """A window out of the middle of random motion, as an environment or as its physics alone."""

    def __init__(self, env: Env) -> None:
        self.env = env
        env.reset()
        generator = torch.Generator(env.device).manual_seed(1)
        shape = (CONTROL_STEPS, env.num_worlds, env.num_actions)
        self.actions = 2 * torch.rand(shape, generator=generator, device=env.device) - 1
        with torch.no_grad():
            for action in self.actions.repeat(3, 1, 1):
                env.step(action)
        self.start = env.worlds.clone()

    def rewards(self, actions: list[Tensor]) -> Tensor:
        """The sum of all rewards."""
        self.env.worlds = self.start
        self.env.detach()
        return torch.stack([self.env.step(action)[1] for action in actions]).sum()

    def physics(self, actions: list[Tensor]) -> Tensor:
        """A number that depends on the last state, by the simulator's step alone."""
        task, state = self.env.task, State(self.start.joint_q, self.start.joint_qd)
        for action in actions:
            state = step(task.model, state, action, task.control_dt, task.substeps)
        return state.joint_q.sum() + state.joint_qd.sum()

    def leaves(self, controls: bool) -> list[Tensor]:
        """Fresh actions that want a gradient; for the bare physics, mapped to controls beforehand."""
        actions = self.env.task.control(self.actions.flatten(0, 1)) if controls else self.actions.flatten(0, 1)
        return [part.clone().requires_grad_() for part in actions.view(CONTROL_STEPS, self.env.num_worlds, -1)]


def _eager(window: Window, run: Callable[[list[Tensor]], Tensor], controls: bool) -> Callable[[], Times]:
    def repetition() -> Times:
        device = window.env.device
        actions = window.leaves(controls)
        with torch.no_grad():
            forward, _ = timed(device, lambda: run([action.detach() for action in actions]))
        kept, total = timed(device, lambda: run(actions))
        backward, _ = timed(device, total.backward)
        return Times(forward, kept, backward)

    return repetition


def _graphs(window: Window, run: Callable[[list[Tensor]], Tensor], controls: bool) -> Callable[[], Times]:
    """The same from three CUDA graphs: without gradient, forward, backward."""
    device, generator = window.env.device, window.env.generator
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        actions = window.leaves(controls)
        torch.autograd.grad(run(actions), actions)
        with torch.no_grad():
            run(actions)
    torch.cuda.current_stream(device).wait_stream(side)
    actions = window.leaves(controls)
    forward, kept, backward = (torch.cuda.CUDAGraph() for _ in range(3))
    for graph in (forward, kept):
        graph.register_generator_state(generator)
    with torch.no_grad(), torch.cuda.graph(forward):
        run(actions)
    with torch.cuda.graph(kept):
        total = run(actions)
    with torch.cuda.graph(backward, pool=kept.pool()):
        gradients = torch.autograd.grad(total, actions)

    def repetition() -> Times:
        times = Times(*(timed(device, graph.replay)[0] for graph in (forward, kept, backward)))
        # A graph knows by address only what it reads: keep it alive as long as it is replayed.
        assert len(gradients) == len(actions)
        return times

    return repetition


def measure_env(task: str, worlds: int, place: Place, repeats: int) -> EnvTiming:
    """Environment and physics in turn, so that a busy machine slows both."""
    set_num_threads(place.threads)
    torch.set_num_threads(place.threads)
    window = Window(make_env(task, worlds, place.device))
    prepare = _graphs if place.graph else _eager
    env, physics = prepare(window, window.rewards, False), prepare(window, window.physics, True)
    pairs = [(env(), physics()) for _ in range(repeats + 1)][1:]
    return EnvTiming(task, place.name, worlds, *(_median(side) for side in zip(*pairs, strict=True)))


def _median(times: tuple[Times, ...]) -> Times:
    return Times(*(statistics.median(getattr(t, name) for t in times) for name in ("forward", "kept", "backward")))


def run_env_bench(settings: EnvBenchSettings) -> None:
    """Measure and print."""
    places = find_places(settings.cpu, settings.cuda, all_cores=not settings.quick)
    print(describe_machine(gpu_name()), flush=True)
    timings = []
    for task in ("ant", "humanoid") if settings.quick else settings.tasks:
        for place in places:
            for worlds in settings.worlds:
                timings.append(measure_env(task, worlds, place, settings.repeats))
                t = timings[-1]
                print(
                    f"{task}, {place.name}, {worlds} worlds: {t.env} against {t.physics}", file=sys.stderr, flush=True
                )
    print(f"\n### Environments\n\n{env_table(timings)}", flush=True)
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(t) for t in timings], indent=2) + "\n")


def env_table(timings: list[EnvTiming]) -> str:
    """Every row that was measured."""
    head = ["task", "where", "worlds", "steps/s", "with gradient", "added %", "with gradient %"]
    rows = [
        [
            t.task, t.place, str(t.worlds), f"{t.steps_per_second:,.0f}", f"{t.gradient_steps_per_second:,.0f}",
            f"{t.added:.0f}", f"{t.gradient_added:.0f}",
        ]
        for t in timings
    ]  # fmt: skip
    note = (
        f"Windows of {CONTROL_STEPS} steps. Steps/s: environment steps of all worlds per second, without gradient and\n"
        "with (forward and backward). Added: what observation, reward and reset cost on top of the physics."
    )
    return f"{note}\n\n{markdown_table(head, rows)}"


if __name__ == "__main__":
    run_env_bench(
        tyro.cli(EnvBenchSettings, prog="python -m bench.env", description=(__doc__ or "").partition("\n")[0])
    )
