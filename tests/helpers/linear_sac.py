"""SAC on the toy task in float64, with critics and a policy that are linear and whose weights a test gives."""

from dataclasses import replace

import docking
import torch

from trot.envs.registry import make_env
from trot.learn.algorithms.sac import Sac, SacSettings

TASK = f"{docking.__file__}:Docking"
SMALL = {
    "num_worlds": 4,
    "horizon": 3,
    "batch": 16,
    "memory": 1000,
    "random_iterations": 2,
    "iterations": 20,
    "hidden": (8,),
}


def learner(task=TASK, seed=0, settings=None, **changes):
    settings = replace(settings or SacSettings(), **(SMALL | changes))
    return Sac(make_env(task, settings.num_worlds, seed=seed, dtype=torch.float64), settings, seed)


def linear(critics, **changes):
    """One row (by offset, by speed, by action, constant) for each critic; their targets expect half of it.

    The policy's samples are 1/2 and half the noise, whatever it sees.
    """
    form = {"hidden": (), "critics": len(critics), "normalize_observations": False, "initial_temperature": 0.5}
    sac = learner(**(form | changes))
    with torch.no_grad():
        for network, factor in ((sac.critics, 1), (sac.target_critics, 0.5)):
            rows = factor * torch.tensor(critics, dtype=torch.float64)
            network[0].weight.copy_(rows[:, None, :3])
            network[0].bias.copy_(rows[:, 3:])
        (layer,) = sac.agent.policy.network
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.5, 0.5]).double())
        layer.bias[1].log_()
    return sac


def batch(rewards, ends, observation=(1.0, 2.0), next_observation=(3.0, 4.0), action=0.5):
    """Rows that differ in reward and end."""
    rows = len(rewards)
    return {
        "observation": torch.tensor([observation] * rows).double(),
        "action": torch.full((rows, 1), action).double(),
        "reward": torch.tensor(rewards).double(),
        "next_observation": torch.tensor([next_observation] * rows).double(),
        "end": torch.tensor(ends).double(),
    }


def fixed_noise(sac, monkeypatch, value=1.0):
    monkeypatch.setattr(sac, "_noise", lambda rows: torch.full((rows, 1), value).double())
