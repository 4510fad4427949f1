"""How much better than its policy a robot could act: actions of a stretch of steps, improved by exact gradients.

A policy runs until it moves steadily. From there its actions of a stretch get offsets, which gradients through the
simulation improve; then the policy goes on alone for a tail of steps, whose rewards count as well, so that a dive at
the end of the stretch gains nothing. The policy still answers what it sees during the stretch, so that a robot stays
in its gait where an earlier action changes; what comes out are plain actions, and these are played again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trot.envs.device import existing_device
from trot.envs.env import Env
from trot.envs.worlds import Worlds
from trot.learn.mean_interval import mean_interval
from trot.learn.play import Act, agent_acts, play
from trot.learn.torch_threads import one_torch_thread
from trot.learn.train import choose_device
from trot.study.improver import Improver, Lengths, in_first_episode
from trot.study.percent import percent_done
from trot.study.subject import Studied, find_subject
from trot.study.window_memory import require_window_room

CPU_WORLDS, CUDA_WORLDS = 8, 64


@dataclass(frozen=True, eq=False)
class Bound:
    """What the policy was paid, and what its improved actions were, in the same worlds from the same states."""

    name: str
    lengths: Lengths
    policy: NDArray[np.float64]
    """(stretch + tail, worlds) rewards; 0 after a fall."""
    improved: NDArray[np.float64]
    terms: dict[str, tuple[float, float]]
    """Reward terms per step, of the policy and of the improved actions."""
    fell: int
    """Worlds left out because the policy fell in them before the stretch."""

    @property
    def gains(self) -> NDArray[np.float64]:
        """(worlds,) of reward, in stretch and tail."""
        gains: NDArray[np.float64] = self.improved.sum(axis=0) - self.policy.sum(axis=0)
        return gains

    @property
    def per_thousand(self) -> float:
        """The policy's reward in 1000 steps."""
        return 1000 * float(self.policy.mean())

    @property
    def gain_per_thousand(self) -> tuple[float, float, float]:
        """Its mean over worlds, and the 95 % interval of that: what 1000 steps with improved actions would add.

        Only those of the stretch are improved, so its steps alone have brought the gain.
        """
        values = (1000 / self.lengths.stretch * self.gains).tolist()
        low, high = mean_interval(values) if len(values) > 1 else (values[0], values[0])
        return float(np.mean(values)), low, high


def bound(
    studied: Studied,
    lengths: Lengths | None = None,
    num_worlds: int | None = None,
    checkpoint: str = "best",
    device: str = "auto",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> Bound:
    """How much improved actions gain on the policy of a run, once that runs steadily.

    8 worlds on the CPU, 64 on CUDA unless given; those in which the policy falls before are left out.
    """
    subject, lengths = find_subject(studied), lengths or Lengths()
    agent = subject.agent(checkpoint)
    agent.policy.to(dtype)
    place = existing_device(choose_device(device))
    lengths.require_sensible(subject.task.episode_length)
    settled = Env(subject.task, num_worlds or (CUDA_WORLDS if place.type == "cuda" else CPU_WORLDS), place, seed, dtype)
    require_window_room(settled, min(lengths.window, lengths.stretch) + lengths.tail)
    with one_torch_thread():
        for _ in play(settled, agent_acts(agent, settled, False, seed), lengths.settle):
            pass
        steady = (settled.worlds.clock.squeeze(1) == lengths.settle).nonzero().squeeze(1)
        if not len(steady):
            raise ValueError(
                f"the policy of '{subject.name}' fell in all worlds before step {lengths.settle}: choose another "
                "checkpoint, or a smaller settle"
            )
        env = Env(subject.task, len(steady), place, seed, dtype)
        begin = settled.worlds.map(lambda rows: rows[steady])
        improver = Improver(env, agent_acts(agent, env, False, seed), lengths)
        with percent_done(lengths.sweeps * len(improver.places), show_progress) as tick:
            actions = improver.improved(begin, tick)
        own, own_terms = played_rewards(env, improver.act, begin, actions[:0], lengths.counted)
        best, best_terms = played_rewards(env, improver.act, begin, actions, lengths.counted)
    terms = {name: (value, best_terms[name]) for name, value in own_terms.items()}
    return Bound(subject.name, lengths, own, best, terms, settled.num_worlds - env.num_worlds)


@torch.no_grad()
def played_rewards(
    env: Env, act: Act, begin: Worlds, actions: Tensor, steps: int
) -> tuple[NDArray[np.float64], dict[str, float]]:  # fmt: skip
    """(steps, worlds) rewards of these actions from there, then of whoever acts; and each reward term's mean."""
    env.worlds = begin
    observation, ends, terms = env.worlds.observation, [], []
    for step in range(steps):
        action = actions[step] if step < len(actions) else act(observation)
        observation, _, terminated, truncated, info = env.step(action)
        ends.append(terminated | truncated)
        terms.append(info["reward_terms"])
    running = in_first_episode(torch.stack(ends))
    paid = {
        name: torch.where(running, torch.stack([step[name] for step in terms]), 0.0).double().cpu().numpy()
        for name in terms[0]
    }
    return np.sum(list(paid.values()), axis=0), {name: float(values.mean()) for name, values in paid.items()}
