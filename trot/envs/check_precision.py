"""`trot check TASK` in single precision, which trains: do rewards and gradients say what they say in double?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.window_rewards import Inputs, WindowRewards, Windows
from trot.sim.gradient_check import gradients

REWARD_SHARE = 1e-2
"""Of a term's largest value: more than rounding does to the rewards of a few steps, in the world in the middle."""

GRADIENT_SHARE = 0.1
"""Of a gradient, likewise. Contacts that begin a moment later change single worlds by more than this."""

NOTHING = 1e-5
"""What is below this share of the largest reward is as good as zero, and no measure for errors."""


@dataclass(frozen=True, eq=False)
class _Found:
    terms: Tensor
    """(worlds, terms of all steps)"""
    gradients: Inputs
    sound: Tensor
    """(worlds,) where no world blew up."""
    rewards: WindowRewards

    @property
    def nothing(self) -> float:
        """A reward, or a slope, that is as good as zero."""
        largest = float(self.terms[self.sound].abs().max())
        return max(NOTHING * largest, torch.finfo(torch.float32).tiny)


def check_in_single(single: Env, double: Env, windows: Windows) -> bool:
    """Print one line about rewards and gradients in single precision; True when they agree with double."""
    there = _run(double, windows)
    single.set_state(_rounded(there.rewards.saved))
    here = _run(single, Windows(windows.begin.map(_to_single), windows.actions.float()))
    both = here.sound & there.sound
    if not bool(both.any()):
        print("float32: every world blows up. Raise substeps")
        return False
    problems = [*_not_finite(here, there, both), *_apart(here, there, both)]
    for problem in problems:
        print(f"FAILS in float32, which trains: {problem}")
    if not problems:
        shares = ", ".join(f"{share:.0e} by {name}" for name, share in _gradients_apart(here, there, both).items())
        print(
            f"float32, which trains: rewards within {max(_terms_apart(here, there, both).values()):.0e} of float64 in "
            f"the world in the middle, gradients within {shares}"
        )
    return not problems


def _run(env: Env, windows: Windows) -> _Found:
    rewards = WindowRewards(env, windows)
    leaves = {name: value.clone().requires_grad_() for name, value in rewards.zeros.items()}
    terms = rewards(leaves)
    sound = (env.worlds.faults == windows.begin.faults).squeeze(1)
    total = torch.where(sound.unsqueeze(1), terms, torch.zeros_like(terms)).sum()
    return _Found(terms.detach(), gradients(total, leaves), sound, rewards)


def _not_finite(here: _Found, there: _Found, sound: Tensor) -> list[str]:
    """What is finite in double only."""
    problems = []
    for k, name in enumerate(here.rewards.names):
        columns = here.rewards.columns(k)
        bad = _broken(here.terms[:, columns], there.terms[:, columns]) & sound
        if bool(bad.any()):
            problems.append(f"reward term '{name}' is not finite in {int(bad.sum())} worlds, though it is in float64")
    for name, gradient in here.gradients.items():
        bad = _broken(_rows(gradient), _rows(there.gradients[name])) & sound
        if bool(bad.any()):
            problems.append(
                f"the gradient by {name} is not finite in {int(bad.sum())} worlds, though it is in float64. Look for "
                "a small number that keeps a root or a division from zero: below 1e-38 it is zero, and beside 1 "
                "anything below 1e-7 is lost"
            )
    return problems


def _broken(here: Tensor, there: Tensor) -> Tensor:
    return (~here.isfinite() & there.isfinite()).any(dim=1)


def _apart(here: _Found, there: _Found, sound: Tensor) -> list[str]:
    problems = [
        f"reward term '{name}' is {share:.0%} of its largest value from what it is in float64, in the world in the "
        "middle. Look for a difference of large numbers"
        for name, share in _terms_apart(here, there, sound).items()
        if share > REWARD_SHARE
    ]
    problems += [
        f"the gradient by {name} is {share:.0%} of its length from what it is in float64, in the world in the middle. "
        "Look for a difference of large numbers"
        for name, share in _gradients_apart(here, there, sound).items()
        if share > GRADIENT_SHARE
    ]
    return problems


def _terms_apart(here: _Found, there: _Found, sound: Tensor) -> dict[str, float]:
    """The error of each reward term in the world in the middle, as a share of the term's largest value."""
    shares = {}
    for k, name in enumerate(here.rewards.names):
        columns = here.rewards.columns(k)
        true = there.terms[sound, columns]
        error = (here.terms[sound, columns].double() - true).abs().amax(dim=1)
        shares[name] = float(error.median() / true.abs().max().clamp(min=there.nothing))
    return shares


def _gradients_apart(here: _Found, there: _Found, sound: Tensor) -> dict[str, float]:
    """The error of the gradient by each input in the world in the middle, as a share of its length."""
    shares = {}
    for name, gradient in here.gradients.items():
        true = _rows(there.gradients[name])[sound]
        error, length = (_rows(gradient)[sound].double() - true).norm(dim=1), true.norm(dim=1)
        # Where a world's own gradient happens to be short, rounding is measured by what is usual.
        usual = length.median().clamp(min=there.nothing)
        shares[name] = float((error / length.clamp(min=usual)).median())
    return shares


def _rows(gradient: Tensor) -> Tensor:
    """One per world, which are the last dimension but one."""
    return gradient.movedim(-2, 0).flatten(1)


def _to_single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _rounded(saved: dict[str, Any]) -> dict[str, Any]:
    """A saved state in single precision: worlds that end begin anew from the same starts."""
    tensors = {
        group: {name: _to_single(tensor) for name, tensor in saved[group].items()} for group in ("worlds", "starts")
    }
    return {**saved, **tensors}
