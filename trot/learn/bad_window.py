"""A window whose gradient was not finite: kept when it happens, run again to find out where it began."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from trot.envs.randomize import Randomize
from trot.envs.registry import make_env
from trot.learn.agent import shac_settings_from
from trot.learn.algorithms.shac import Adjoints, Shac
from trot.runs.folder import RunFolder

MODULES = ("policy", "target_critic", "normalizer")


def save_offence(run: RunFolder, shac: Shac) -> Path:
    """Everything that the window depends on."""
    env = shac.env
    content: dict[str, Any] = {
        "offence": 1,
        "task": env.task.name,
        "shac": {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(shac.settings).items()
        },
        "randomize": None if env.randomize is None else {k: list(v) for k, v in asdict(env.randomize).items()},
        "noise": shac.offending_noise.cpu(),
        "start": {name: tensor.cpu() for name, tensor in shac.offending_start.tensors().items()},
        "modules": {
            name: {key: value.cpu() for key, value in getattr(shac, name).state_dict().items()} for name in MODULES
        },
    }
    return run.save_checkpoint("bad_gradient", content)


def explain_offence(saved: dict[str, Any]) -> str:
    """Run the window again, in the precision it happened in and in float64, and say where the gradient breaks."""
    lines = [f"{saved['task']}: a window of {len(saved['noise'])} steps in {saved['noise'].shape[1]} worlds"]
    for dtype in dict.fromkeys([saved["noise"].dtype, torch.float64]):
        lines.append(f"{str(dtype).removeprefix('torch.')}: {_run_again(saved, dtype)}")
    return "\n".join(lines)


def _run_again(saved: dict[str, Any], dtype: torch.dtype) -> str:
    given = saved["randomize"]
    randomize = None if given is None else Randomize(**{name: tuple(bounds) for name, bounds in given.items()})
    # Worlds of a task of one's own may be many; the network sizes and the window are all that matters here.
    settings = replace(shac_settings_from(saved["shac"]), num_worlds=saved["noise"].shape[1])
    env = make_env(saved["task"], settings.num_worlds, dtype=dtype, randomize=randomize)
    shac = Shac(env, settings)
    for name in MODULES:
        getattr(shac, name).load_state_dict(saved["modules"][name])
    shac.start.copy_(type(shac.start).from_saved(saved["start"]))
    shac.rollout(saved["noise"].to(dtype))
    bad_reward = ~shac.window.reward.isfinite()
    if bool(bad_reward.any()):
        step, world = bad_reward.nonzero()[0].tolist()
        return f"the reward of world {world} is not finite in step {step}"
    adjoint = Adjoints.of(shac.window).state_norms() * shac.window.reward.numel()
    bad = ~adjoint.isfinite()
    if bool(bad.any()):
        # Adjoints run backward: the last step that is bad is where it began.
        step, world = bad.nonzero()[-1].tolist()
        count = int(bad.any(dim=0).sum())
        return f"the state adjoint of world {world} stops being finite at step {step}; {count} worlds in all"
    step, world = divmod(int(adjoint.argmax()), adjoint.shape[1])
    return f"all adjoints are finite; the largest, {float(adjoint.max()):.3g}, is that of world {world} at step {step}"
