"""What Env.place() makes of a state from outside: checked against the worlds, and copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from trot.envs.situation import Situation, as_columns, joined
from trot.envs.worlds import Worlds
from trot.sim.manifold import with_unit_quaternions
from trot.sim.model import Model
from trot.sim.state import State


def placed_worlds(
    model: Model, worlds: Worlds, remembered: Mapping[str, Tensor], state: State, previous_action: Tensor | None
) -> tuple[Situation, Worlds]:  # fmt: skip
    """The situation that worlds with this memory are put into, and these worlds, still with their old observation.

    What is left out stays as it is, but for the previous action: zeros.
    """
    given = as_columns(state.memory) if isinstance(state, Situation) else {}
    if unknown := given.keys() - remembered.keys():
        raise ValueError(f"this task has no memory '{min(unknown)}'; it has: {', '.join(remembered) or 'none'}")
    placed = {"joint_q": (state.joint_q, worlds.joint_q), "joint_qd": (state.joint_qd, worlds.joint_qd)}
    placed |= {f"memory '{name}'": (part, remembered[name]) for name, part in given.items()}
    if previous_action is None:
        previous_action = torch.zeros_like(worlds.previous_action)
    placed["previous_action"] = (previous_action, worlds.previous_action)
    activation = worlds.activation if state.activation is None else state.activation
    placed["activation"] = (activation, worlds.activation)
    for name, (tensor, like) in placed.items():
        if tensor.shape != like.shape or tensor.dtype != like.dtype or tensor.device != like.device:
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}; this environment needs "
                f"{tuple(like.shape)} {like.dtype} on {like.device}"
            )
    # The caller may fill the same tensors with something else.
    joint_q, joint_qd = with_unit_quaternions(model, state.joint_q).clone(), state.joint_qd.clone()
    activation, previous_action = activation.clone(), previous_action.clone()
    of_muscles = activation if model.num_acts > 0 else None
    situation = Situation(joint_q, joint_qd, {**remembered, **given}, activation=of_muscles)
    memory = joined(situation.memory) if given else worlds.memory
    return situation, replace(
        worlds,
        joint_q=joint_q,
        joint_qd=joint_qd,
        previous_action=previous_action,
        memory=memory,
        activation=activation,
    )
