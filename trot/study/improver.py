"""Better actions than a policy's, by gradients through the simulation: offsets to what the policy does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.worlds import Worlds
from trot.learn.play import Act

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
    over all that is left of stretch and tail: so, but for rounding, none ends below the policy's own return.
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
        running = in_first_episode(torch.stack([move.terminated | move.truncated for move in moves]))
        returns = torch.where(running, self.env.rewards(moves), 0.0).sum(dim=0)
        return returns, torch.stack([move.action for move in moves]).detach(), torch.stack(own).detach()


def in_first_episode(done: Tensor) -> Tensor:
    """(steps, worlds) whether a step belongs to the episode that was under way at first."""
    ended_before = done.cumsum(dim=0) - done.long()
    return ended_before == 0


def _of_unit_mean_square(bar: Tensor) -> Tensor:
    """Each world's gradient, (steps, worlds, actions), scaled; zeros where it is not finite."""
    # Squares of large numbers are beyond single precision.
    scale = bar.double().square().mean(dim=(0, 2), keepdim=True).sqrt()
    usable = torch.isfinite(scale) & (scale > 0)
    return torch.where(usable, bar / torch.where(usable, scale, 1.0), 0.0).to(bar.dtype)
