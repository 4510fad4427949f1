"""What the planar tasks measure: a torso that slides along x and z and pitches, and hinges behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.entry import Entries, Entry, coordinates, rates
from trot.sim.model import Model
from trot.sim.state import State


@dataclass(frozen=True)
class Planar:
    """One row per world; heights are relative to where the robot file puts the torso."""

    height: Tensor
    pitch: Tensor
    """Positive tips the top towards +x, rad."""
    joints: Tensor
    forward_speed: Tensor
    vertical_speed: Tensor
    pitch_rate: Tensor
    joint_rates: Tensor


def measure_planar(state: State) -> Planar:
    """From joint_q = x, z, pitch, hinges."""
    hinges = state.joint_q.shape[1] - 3
    _, height, pitch, joints = torch.split_with_sizes(state.joint_q, [1, 1, 1, hinges], dim=1)
    forward_speed, vertical_speed, pitch_rate, joint_rates = torch.split_with_sizes(
        state.joint_qd, [1, 1, 1, hinges], dim=1
    )
    return Planar(height, pitch, joints, forward_speed, vertical_speed, pitch_rate, joint_rates)


def planar_observation(measured: Planar) -> dict[str, Tensor]:
    """Everything but x, which does not matter to a runner."""
    return {
        "height": measured.height,
        "pitch": measured.pitch,
        "joints": measured.joints,
        "forward_speed": measured.forward_speed,
        "vertical_speed": measured.vertical_speed,
        "pitch_rate": measured.pitch_rate,
        "joint_rates": measured.joint_rates,
    }


def planar_entries(model: Model) -> Entries:
    """What planar_observation() is made of."""
    body, places, speeds = model.body_name[0], coordinates(model), rates(model)
    return {
        "height": [Entry(f"{body} position z", "m", "world", offset=float(model.body_pos[0, 2]))],
        "pitch": [Entry(f"{body} pitch, positive tips its top towards +x", "rad", "world")],
        "joints": places[3:],
        "forward_speed": [Entry(f"{body} velocity x", "m/s", "world")],
        "vertical_speed": [Entry(f"{body} velocity z", "m/s", "world")],
        "pitch_rate": [Entry(f"{body} pitch rate", "rad/s", "world")],
        "joint_rates": speeds[3:],
    }
