"""Speed beside other simulators, those that are installed: same robots, starts, controls and window.

python -m bench.peers                              the Ant, all simulators, on the GPU where there is one
python -m bench.peers --device cpu --worlds 64 --peers trot mujoco mujoco@2
python -m bench.peers --check --worlds             their gradients beside differences of their own forward pass
python -m bench.peers --python newton-mujoco older/bin/python
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from bench.peer import Case
from bench.peer_list import PEERS, TROT, TROT_ONE_THREAD
from bench.peer_tables import Checked, Measured, check_table, notes, settings_table, speed_table
from bench.peers_mujoco import Mujoco
from bench.report import describe_machine, gpu_name
from bench.robots import CONTROL_DT, ROBOTS, ROOT, Robot, draw_controls, draw_start
from trot.envs.device import existing_device
from trot.learn.train import choose_device
from trot.sim.load import load_model

HEIGHT_WORLDS = 32
"""In which MuJoCo tells how high the robot stays."""
CHECK_WORLDS, CHECK_STEPS = 16, 4


@dataclass(frozen=True)
class PeerBenchSettings:
    """What to measure."""

    robots: tuple[str, ...] = ("ant",)
    """Of hopper, ant and humanoid."""
    peers: tuple[str, ...] = tuple(PEERS)
    """By name; name@N takes N substeps in a control step, and those alone."""
    worlds: tuple[int, ...] = (64, 1024)
    """Without any, --check is all that is done."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU; MuJoCo runs on the processor's cores all the same."""
    gradient: bool = True
    """Measure it where there is one."""
    check: bool = False
    """Compare gradients with central differences too."""
    repeats: int = 7
    """Of which the median is printed."""
    seconds: float = 5.0
    """For the repetitions; fewer are taken where they take longer."""
    timeout: float = 300.0
    """Seconds after which a simulator is stopped, in each of its cases."""
    python: dict[str, Path] = field(default_factory=dict)
    """Another interpreter for a simulator: NAME PATH, where two want different versions of one package."""
    json: Path | None = None
    """Write every figure to this file too."""


def run_peer_bench(settings: PeerBenchSettings) -> None:
    """Measure and print, robot by robot."""
    robots = [_find_robot(name) for name in settings.robots]
    asked = [split_name(name) for name in settings.peers]
    for name in settings.python:
        split_name(name)
    for name, least in (("worlds", min(settings.worlds, default=1)), ("repeats", settings.repeats)):
        if least < 1:
            raise ValueError(f"{name} must be at least 1, not {least}")
    device = existing_device(choose_device(settings.device))
    if device.type == "cuda":
        asked = [(name, substeps) for name, substeps in asked if name != TROT_ONE_THREAD]
    print(describe_machine(gpu_name() if device.type == "cuda" else None), flush=True)
    everything: list[Measured | Checked] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = PeerBench(settings, device.type, Path(folder))
        for robot in robots:
            measured = [one for name, substeps in asked for one in bench.measure(robot, name, substeps)]
            if measured:
                _print_robot(robot, measured, bench.mujoco_height(robot), per_core=device.type == "cpu")
            everything += measured
        if settings.check:
            checked = [bench.check(robot, name) for robot in robots for name in _checked_names(asked)]
            _print_section("Gradients beside central differences", check_table(checked), notes(checked))
            everything += checked
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(one) for one in everything], indent=2) + "\n")


@dataclass(frozen=True)
class PeerBench:
    """Runs simulators in processes of their own."""

    settings: PeerBenchSettings
    device: str
    folder: Path
    """For cases, findings and logs."""

    def measure(self, robot: Robot, name: str, substeps: int | None) -> Iterator[Measured]:
        """With as many substeps as trot takes and with those that it stands, or with `substeps` alone."""
        equal = robot.substeps
        wanted = (equal, PEERS[name].own_substeps(equal)) if substeps is None else (substeps,)
        for steps in dict.fromkeys(wanted):
            for worlds in sorted(self.settings.worlds):
                facts = self._run(name, draw_case(robot, worlds, steps, self.device))
                one = Measured(name, robot.name, worlds, steps, **facts)
                _say(_progress(one))
                yield one
                if one.missing:
                    return

    def check(self, robot: Robot, name: str) -> Checked:
        """Its gradient through a few control steps."""
        double = PEERS[name].double
        case = draw_case(robot, CHECK_WORLDS, robot.substeps, self.device, double, control_steps=CHECK_STEPS)
        one = Checked(name, robot.name, **self._run(name, case, check=True))
        _say(f"{name}, {robot.name}: {one.failure or 'gradient checked'}")
        return one

    def mujoco_height(self, robot: Robot) -> float:
        """Where the robot ends in MuJoCo, the median over worlds."""
        peer = Mujoco(draw_case(robot, HEIGHT_WORLDS, robot.substeps, "cpu"))
        peer.forward()
        return float(np.median(peer.heights()))

    def _run(self, name: str, case: Case, check: bool = False) -> dict[str, Any]:
        """What it found, with the reason where it ended before its end."""
        case_file, findings, log = (self.folder / file for file in ("case.npz", "findings.json", "log"))
        case.save(case_file)
        findings.unlink(missing_ok=True)
        asked = {
            "peer": name, "case": str(case_file), "findings": str(findings), "gradient": self.settings.gradient,
            "check": check, "repeats": self.settings.repeats, "seconds": self.settings.seconds,
        }  # fmt: skip
        python = self.settings.python.get(name, Path(sys.executable))
        command = [str(python), "-m", "bench.peer_child", json.dumps(asked)]
        failure = ""
        with log.open("w") as lines:
            try:
                ended = subprocess.run(
                    command, cwd=ROOT, env=self._environment(), stdout=lines, stderr=subprocess.STDOUT,
                    timeout=self.settings.timeout,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                failure = f"stopped after {self.settings.timeout:.0f} s"
            else:
                failure = how_it_ended(ended.returncode, log.read_text(errors="replace"))
        facts = json.loads(findings.read_text()) if findings.exists() else {}
        return {**facts, "missing": tuple(facts.get("missing", ())), "failure": failure}

    def _environment(self) -> dict[str, str]:
        # JAX would take most of the GPU's memory at once, and a GPU where the processor is to be measured.
        chosen = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if self.device == "cpu":
            chosen |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        return {**os.environ, **chosen}


def split_name(name: str) -> tuple[str, int | None]:
    """`name@N`, or a name alone."""
    base, at, substeps = name.partition("@")
    if base not in PEERS:
        raise ValueError(f"there is no peer {base!r}; there are {', '.join(PEERS)}")
    if at and (not substeps.isdigit() or int(substeps) < 1):
        raise ValueError(f"{name!r}: substeps must be a number of at least 1")
    return base, int(substeps) if at else None


def draw_case(
    robot: Robot, worlds: int, substeps: int, device: str, double: bool = False, control_steps: int | None = None
) -> Case:  # fmt: skip
    """The window that `trot bench` measures, or its first steps."""
    model, cpu = load_model(robot.file), torch.device("cpu")
    start = draw_start(robot, model, worlds, cpu)
    controls = torch.stack(draw_controls(model, worlds, cpu)[:control_steps])
    joint_q, joint_qd, controls = (values.double() for values in (start.joint_q, start.joint_qd, controls))
    return Case(
        robot.name, str(robot.file), substeps, CONTROL_DT, device, double, robot.height_entry,
        joint_q.numpy(), joint_qd.numpy(), controls.numpy(),
    )  # fmt: skip


def how_it_ended(code: int, log: str) -> str:
    """In one line; nothing for a process that came to its end."""
    overflow = next((line for line in log.splitlines() if "overflow" in line), "")
    if code == 0:
        return f"room for contacts was too small: {overflow.strip()}" if overflow else ""
    if code < 0:
        killed = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
        return f"ended by {signal.Signals(-code).name}{killed}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"exit code {code}: {lines[-1] if lines else 'no word'}"


def _find_robot(name: str) -> Robot:
    robots = {robot.name.lower(): robot for robot in ROBOTS}
    if name.lower() not in robots:
        raise ValueError(f"there is no robot {name!r}; there are {', '.join(robots)}")
    return robots[name.lower()]


def _checked_names(asked: Sequence[tuple[str, int | None]]) -> list[str]:
    """Each once; on one thread trot computes what it does on all."""
    names = dict.fromkeys(name for name, _ in asked)
    return [name for name in names if PEERS[name].differentiable and name != TROT_ONE_THREAD]


def _print_robot(robot: Robot, measured: list[Measured], mujoco_height: float, per_core: bool) -> None:
    _print_section(f"{robot.name}: what each was set to", settings_table(measured), [])
    equal = [one for one in measured if one.substeps == robot.substeps]
    own = [one for one in measured if one.substeps != robot.substeps]
    trot = [one for one in equal if one.peer == TROT]
    _print_section(f"{robot.name}, {robot.substeps} substeps each", speed_table(equal, trot, per_core), [])
    if any(one.forward_ms is not None for one in own):
        table = speed_table([*trot, *own], trot, per_core)
        _print_section(f"{robot.name}, each at a step of its own", table, [])
    held = f"MuJoCo's root ends at {mujoco_height:.2f} m. Finite, and held by the ground, but for what is listed here:"
    lines = notes(measured, mujoco_height)
    print("\n".join(["", held, "", *lines]) if lines else f"\n{held.partition(', but')[0]}: every row.", flush=True)


def _print_section(title: str, table: str, lines: list[str]) -> None:
    print("\n".join([f"\n### {title}\n", table, *([""] if lines else []), *lines]), flush=True)


def _progress(one: Measured) -> str:
    if one.missing:
        return f"{one.peer}: not installed"
    times = [f"{ms:.1f} ms" for ms in (one.forward_ms, one.gradient_ms) if ms is not None]
    return f"{one.robot}: {one.case}: {', with gradient '.join(times)}{'; ' * bool(times and one.failure)}{one.failure}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_peer_bench(tyro.cli(PeerBenchSettings, prog="python -m bench.peers", description=description))
