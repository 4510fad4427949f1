"""What a step did, but for its reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trot.envs.situation import Situation


@dataclass(frozen=True, eq=False)
class Move:
    """What a step did in every world, but for its reward."""

    observation: Tensor
    """What the next action is to answer: a new episode's first where this step ended one."""
    action: Tensor
    """As it was carried out."""
    control: Tensor
    """What the task made of the action."""
    sound: Tensor
    """(num_worlds, 1) False where a world blew up."""
    all_sound: bool
    """Whether that is known to hold everywhere; the GPU is never asked."""
    memory: Tensor
    """What the task remembered during the step, part beside part: the reward sees it, final_obs what came after."""
    final_state: Situation
    """Before any reset, as are the following."""
    final_obs: Tensor
    measured: Any
    """What the task measured of final_state, with the memory of the step."""
    terminated: Tensor
    truncated: Tensor
    judged_q: Tensor
    """joint_q and joint_qd of final_state once more, for what is worked out from many moves at once."""
    judged_qd: Tensor
