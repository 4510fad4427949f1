"""`trot replay-fault`: what a fault file holds, run again, and where it went wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import torch

from trot.envs.explain_fault import explain_fault
from trot.envs.fault import fault_from, read_fault_file
from trot.envs.randomize import Randomize
from trot.envs.registry import make_env
from trot.learn.algorithms import find_algorithm
from trot.learn.bad_window import OWN, Trace
from trot.learn.older_runs import upgraded_bad_window
from trot.learn.saved_settings import settings_from


def replay_fault(path: str | os.PathLike[str]) -> str:
    """A world that blew up, or a window whose gradient failed, in words."""
    content = read_fault_file(path)
    saved = _bad_window(content)
    return explain_fault(fault_from(content, path)) if saved is None else explain_bad_window(saved)


def _bad_window(content: Any) -> dict[str, Any] | None:
    try:
        saved = upgraded_bad_window(content)
        return saved if saved["bad_window"] in (1, 2) else None
    except (KeyError, TypeError):
        # No window; fault_from() says whether it is anything else.
        return None


def explain_bad_window(saved: dict[str, Any]) -> str:
    """Run the window again, in the precision it happened in and in float64, and say where the gradient breaks."""
    lines = [f"{saved['task']}: a window of {len(saved['noise'])} steps in {saved['noise'].shape[1]} worlds"]
    for dtype in dict.fromkeys([saved["noise"].dtype, torch.float64]):
        lines.append(f"{str(dtype).removeprefix('torch.')}: {_explanation(_run_again(saved, dtype))}")
    if (saved["randomize"] or {}).get("observation_noise"):
        lines.append("The noise on its observations is another one than it was: only the policy's own is kept.")
    return "\n".join(lines)


def _run_again(saved: dict[str, Any], dtype: torch.dtype) -> Trace:
    given = saved["randomize"]
    randomize = None if given is None else Randomize.from_saved(given)
    algorithm = find_algorithm(saved["algo"])
    settings = settings_from(saved["settings"], algorithm.settings, algorithm.label)
    settings = replace(settings, num_worlds=saved["noise"].shape[1])
    env = make_env(saved["task"], settings.num_worlds, dtype=dtype, randomize=randomize)
    learner = algorithm.learner(env, settings, 0)
    missing, unknown = learner.load_state_dict(saved["learner"], strict=False)
    # The window depends on neither the worlds nor the random numbers of now; the first version kept the networks alone.
    required = ("agent.",) if saved["bad_window"] == 1 else ("",)
    lacks = [name for name in missing if name.startswith(required) and not name.startswith((OWN, "_extra_state"))]
    if lacks or unknown:
        raise ValueError(f"the file does not fit {algorithm.label} as it is now: {', '.join([*lacks, *unknown][:3])}")
    start = {name: part.to(dtype) if part.is_floating_point() else part for name, part in saved["start"].items()}
    env.window_start.copy_(env.saved_worlds(start))
    return learner.run_again(saved["noise"].to(dtype))


def _explanation(trace: Trace) -> str:
    bad_reward = ~trace.reward.isfinite()
    if bool(bad_reward.any()):
        step, world = bad_reward.nonzero()[0].tolist()
        return f"the reward of world {world} is not finite in step {step}"
    adjoint = trace.adjoint
    bad = ~adjoint.isfinite()
    if bool(bad.any()):
        # Adjoints run backward: the last step that is bad is where it began.
        step, world = bad.nonzero()[-1].tolist()
        count = int(bad.any(dim=0).sum())
        return f"the state adjoint of world {world} stops being finite at step {step}; {count} worlds in all"
    step, world = divmod(int(adjoint.argmax()), adjoint.shape[1])
    return f"all adjoints are finite; the largest, {float(adjoint.max()):.3g}, is that of world {world} at step {step}"
