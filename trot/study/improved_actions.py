"""How much better than its policy a robot could act: actions of a stretch of steps, improved by exact gradients.

A policy runs until it moves steadily. From there its actions of a stretch get offsets, which gradients through the
simulation improve; then the policy goes on alone for a tail of steps, whose rewards count as well, so that a dive at
the end of the stretch gains nothing. The policy still answers what it sees during the stretch, because a robot that
acts blindly falls before its actions are any good; what comes out are plain actions, and these are played again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from trot.study.percent import percent_done
from trot.study.subject import Studied, find_subject
from trot.study.window_memory import require_window_room

CPU_WORLDS, CUDA_WORLDS = 8, 64
FIRST_STEP = 0.05
"""How far an action moves at first, of the 2 between its bounds."""
LONGER, SHORTER = 1.3, 0.4
"""What becomes of a world's step after one that raised its return, and after one that did not."""
FIRST_MOMENT, SECOND_MOMENT, LEAST_SCALE = 0.7, 0.95, 0.1
"""Of Adam, for gradients whose entries have a mean square of 1."""


@dataclass(frozen=True)
class Lengths:
    """In steps, but for the last two."""

    settle: int = 300
    """From a fresh start until the policy runs steadily."""
    stretch: int = 128
    """Whose actions are improved."""
    tail: int = 64
    """Where the policy goes on alone, and rewards count."""
    window: int = 32
    """Of the stretch, improved at a time, for as many steps and a tail behind it; the next begins half a window on."""
    sweeps: int = 2
    """Through the stretch."""
    tries: int = 16
    """Gradient steps for a window."""

    @property
    def counted(self) -> int:
        """Whose rewards count in the end."""
        return self.stretch + self.tail

    def require_sensible(self, episode_length: int) -> None:
        """Refuse what leaves nothing to improve, or does not fit into an episode."""
        for name, least in (("settle", 1), ("stretch", 2), ("tail", 0), ("window", 2), ("sweeps", 1), ("tries", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.settle + self.counted > episode_length:
            raise ValueError(
                f"settle, stretch and tail are {self.settle + self.counted} steps, but an episode has {episode_length}:"
                " shorten one of them"
            )


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


class Clamped(torch.autograd.Function):
    """Clamped to [-1, 1], with the gradient of what was clamped.

    It is asked for only where nothing lies beyond the bounds but by rounding. There it is the derivative on the inner
    side, without which an action would stay at its bound once it is there.
    """

    @staticmethod
    def forward(ctx: Any, action: Tensor) -> Tensor:
        return action.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> Tensor:
        return bar


def clamped(action: Tensor) -> Tensor:
    """As Clamped does it."""
    result: Tensor = Clamped.apply(action)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, eq=False)
class Improver:
    """Offsets to a policy's actions, (stretch, worlds, actions), window by window.

    Each world keeps a change only where it raises that world's return, first over the window and a tail behind it, then
    over all that is left of stretch and tail: so no world ends below the policy's own return.
    """

    env: Env
    act: Act
    lengths: Lengths

    @property
    def places(self) -> range:
        """Where windows begin."""
        half = max(1, self.lengths.window // 2)
        return range(0, max(1, self.lengths.stretch - half), half)

    def improved(self, begin: Worlds, tick: Callable[[float], None]) -> Tensor:
        """(stretch, worlds, actions) the actions that were found."""
        shape = (self.lengths.stretch, self.env.num_worlds, self.env.num_actions)
        offsets = begin.joint_q.new_zeros(shape)
        for _ in range(self.lengths.sweeps):
            worlds = begin
            for place, following in zip(self.places, [*self.places[1:], self.lengths.stretch], strict=True):
                offsets[place:] = self._better_of(worlds, offsets[place:], self._window(worlds, offsets[place:]))
                with torch.no_grad():
                    self._roll(worlds, offsets[place:following], following - place)
                worlds = self.env.worlds
                tick(1)
        with torch.no_grad():
            return self._roll(begin, offsets, self.lengths.stretch)[1]

    def _window(self, worlds: Worlds, offsets: Tensor) -> Tensor:
        """Raise the return of a window and the tail behind it, from these worlds, by its offsets."""
        size = min(self.lengths.window, len(offsets))
        steps = size + self.lengths.tail
        best, tried = offsets.clone(), offsets
        value = torch.full_like(offsets[0, :, 0], -torch.inf)
        slope = first = second = torch.zeros_like(offsets[:size])
        reach = torch.full_like(value, FIRST_STEP).unsqueeze(1)
        for attempt in range(self.lengths.tries + 1):
            leaf = tried[:size].detach().requires_grad_()
            returned, actions, own = self._roll(worlds, torch.cat([leaf, tried[size:]]), steps)
            (bar,) = torch.autograd.grad(returned.sum(), leaf)
            better = (returned.detach() > value).unsqueeze(1)
            value = torch.maximum(value, returned.detach())
            # As carried out, so that no offset leads beyond the bounds.
            best[:size] = torch.where(better, (actions - own)[:size], best[:size])
            slope = torch.where(better, _of_unit_mean_square(bar), slope)
            if attempt == 0:
                first, second = slope, slope.square()
            else:
                reach = reach * torch.where(better, LONGER, SHORTER)
                # After a step that was none, straight along the gradient: what came before may have led astray.
                first = torch.where(better, first.lerp(slope, 1 - FIRST_MOMENT), slope)
                second = torch.where(better, second.lerp(slope.square(), 1 - SECOND_MOMENT), second)
            tried = best.clone()
            tried[:size] += reach * first / (second.sqrt() + LEAST_SCALE)
        return best

    @torch.no_grad()
    def _better_of(self, worlds: Worlds, before: Tensor, after: Tensor) -> Tensor:
        """For each world the offsets with the higher return until the end of the tail."""
        steps = len(before) + self.lengths.tail
        old, new = (self._roll(worlds, offsets, steps)[0] for offsets in (before, after))
        return torch.where((new > old).unsqueeze(1), after, before)

    def _roll(self, worlds: Worlds, offsets: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """(worlds,) returns from there; (steps, worlds, actions) what was carried out, and the policy's own."""
        self.env.worlds = worlds.detach()
        observation, moves, own = self.env.worlds.observation, [], []
        for step in range(steps):
            own.append(self.act(observation))
            moves.append(self.env.advance(clamped(own[-1] + offsets[step]) if step < len(offsets) else own[-1]))
            observation = moves[-1].observation
        running = _running(torch.stack([move.terminated | move.truncated for move in moves]))
        returns = torch.where(running, self.env.rewards(moves), 0.0).sum(dim=0)
        return returns, torch.stack([move.action for move in moves]).detach(), torch.stack(own).detach()


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
    running = _running(torch.stack(ends))
    paid = {
        name: torch.where(running, torch.stack([step[name] for step in terms]), 0.0).double().cpu().numpy()
        for name in terms[0]
    }
    return np.sum(list(paid.values()), axis=0), {name: float(values.mean()) for name, values in paid.items()}


def _running(done: Tensor) -> Tensor:
    """(steps, worlds) whether a step belongs to the episode that was under way at first."""
    ended_before = done.cumsum(dim=0) - done.long()
    return ended_before == 0


def _of_unit_mean_square(bar: Tensor) -> Tensor:
    """Each world's gradient, (steps, worlds, actions), scaled; zeros where it is not finite."""
    # Squares of large numbers are beyond single precision.
    scale = bar.double().square().mean(dim=(0, 2), keepdim=True).sqrt()
    usable = torch.isfinite(scale) & (scale > 0)
    return torch.where(usable, bar / torch.where(usable, scale, 1.0), 0.0).to(bar.dtype)
