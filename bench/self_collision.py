"""What it costs that an Ant's legs and trunk touch each other: time of a window, and cycles of each stage.

python -m bench.self_collision            on one core, and on the GPU where there is one

Three windows: the task's Ant; the same motion with all pairs of its shapes looked at, none of which touch, since its
hips do not turn far enough; and an Ant with wider hips whose legs are pressed against each other, two and two.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bench.places import Place, find_places
from bench.report import describe_machine, gpu_name, stage_table, timing_table
from bench.robots import ANT
from bench.stages import PROFILE_WORLDS, measure_stages
from bench.window import Window, measure
from trot.sim.contact_forces import contact_forces
from trot.sim.load import load_model
from trot.sim.model import Model

WORLDS = (64, 1024)
REPEATS = 15
SECONDS = 10.0
"""After which a window is not repeated again."""

PRESSED = {"hip_1": 1.0, "hip_2": -1.0, "hip_3": 1.0, "hip_4": -1.0}
"""rad at which legs 1 and 2, and 3 and 4, are about to touch."""
PRESSING = 0.15
"""Share of their motors' torque that presses them together."""


def touching_ant(hips: str = "0.6981") -> Model:
    """The task's Ant, whose file lets shapes touch the ground alone, with masks that let them touch each other."""
    text = ANT.file.read_text(encoding="utf-8")
    text = text.replace('contype="0" conaffinity="1"', 'contype="1" conaffinity="1"')
    return load_model(text.replace('range="-0.6981 0.6981"', f'range="-{hips} {hips}"'), self_collision=True)


def windows(worlds: int, device: torch.device) -> list[Window]:
    """All three, each for so many worlds."""
    apart, pressed = touching_ant(), touching_ant(hips="1.6")
    name = f"Ant, {apart.num_pairs} pairs"
    return [
        Window.draw(ANT, load_model(ANT.file), worlds, device),
        Window.draw(replace(ANT, name=name), apart, worlds, device),
        _press(Window.draw(replace(ANT, name=f"{name}, pressed"), pressed, worlds, device)),
    ]


def _press(window: Window) -> Window:
    model = window.model
    for name, angle in PRESSED.items():
        window.start.joint_q[:, model.joint_q_start[model.joint_name.index(name)]] += angle
        for control in window.controls:
            control[:, model.actuator_name.index(name)] = PRESSING if angle > 0 else -PRESSING
    return window


def touching_pairs(window: Window) -> float:
    """How many pairs push each other after the control steps of a window, on average over them and the worlds."""
    model, state, counts = window.model, window.start, list[Tensor]()
    with torch.no_grad():
        for control in window.controls:
            state = Window(window.robot, model, state, [control]).forward([control])
            force = contact_forces(model, state).force[:, model.num_points :]
            counts.append((force.norm(dim=2) > 0).sum(dim=1).double().mean())
    return float(torch.stack(counts).mean())


def main() -> None:
    """Measure all three and print what they take, side by side."""
    places: list[Place] = find_places(all_cores=False)
    print(describe_machine(gpu_name()), flush=True)
    timings = [
        measure(window, place, REPEATS, SECONDS)
        for worlds in WORLDS
        for place in places
        for window in windows(worlds, place.device)
    ]
    print("\n" + timing_table(timings), flush=True)
    for window in windows(PROFILE_WORLDS, torch.device("cpu"))[1:]:
        print(f"\n{window.robot.name}: {touching_pairs(window):.2f} pairs of a world touch.", flush=True)
    for device in dict.fromkeys(place.device for place in places):
        stages = [measure_stages(window, REPEATS) for window in windows(PROFILE_WORLDS, device)]
        print("\n" + stage_table(stages), flush=True)


if __name__ == "__main__":
    main()
