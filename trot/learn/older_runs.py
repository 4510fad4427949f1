"""Checkpoints that earlier versions wrote, in today's form. Their settings are brought up to date by trot.runs.

The first version knew one family of algorithms, and kept its tensors under other names.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from trot.envs.worlds import LATER
from trot.runs.older_settings import LATER_OF_SHAC, with_later_of_shac

_RENAMED = (
    (r"^policy\.", "agent.policy."),
    (r"^normalizer\.", "agent.normalizer."),
    (r"^best_policy\.", "best.agent.policy."),
    (r"^best_normalizer\.", "best.agent.normalizer."),
    (r"^best_return$", "best.mean_return"),
    (r"^(policy|critic)_optimizer\.(\d+)\.(\w+)$", r"\1_optimizer.\3_\2"),
    (r"^(collected|age|mean_return|mean_length)$", r"episodes.\1"),
    (r"^episodes$", "episodes.finished"),
    (r"^offending_noise$", "bad_window.noise"),
    (r"^offending_start\.", "bad_window.start_"),
)


def upgraded_checkpoint(saved: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint as today's version writes it, whichever version wrote this one."""
    agent = saved.get("agent")
    if isinstance(agent, dict) and {"policy", "normalizer"} <= agent.keys():
        flat = {f"{part}.{name}": tensor for part in agent for name, tensor in agent[part].items()}
        saved = {**saved, "agent": flat}
    learner = saved.get("learner")
    if isinstance(learner, dict) and "tensors" in learner:
        tensors = {_renamed(name): tensor for name, tensor in learner["tensors"].items()}
        # What is new since. Rates are worked out anew in every iteration.
        rate = torch.zeros(())
        horizon, num_worlds = tensors["bad_window.noise"].shape[:2]
        tensors |= {"policy_optimizer.rate": rate, "critic_optimizer.rate": rate}
        tensors["bad_window.kept"] = tensors["stopped"]
        tensors["steps"] = tensors["iteration"] * (horizon * num_worlds)
        others = {"env": learner["env"], "generator": learner["generator"]}
        saved = {**saved, "learner": {**tensors, "_extra_state": others}}
    return _with_later_fields(saved)


def _with_later_fields(saved: dict[str, Any]) -> dict[str, Any]:
    """Versions that knew no activation of muscles, delays or pushes had none."""
    learner, began = saved.get("learner"), "bad_window.start_joint_q"
    if not isinstance(learner, dict) or began not in learner:
        return saved
    nothing = learner[began][:, :0]
    return {**saved, "learner": {**{f"bad_window.start_{name}": nothing for name in LATER}, **learner}}


def upgraded_bad_window(saved: dict[str, Any]) -> dict[str, Any]:
    """A window whose gradient failed, in today's form."""
    if "offence" not in saved:
        return {**saved, "settings": with_later_of_shac(saved["algo"], saved["settings"])}
    tensors = {
        _renamed(f"{module}.{name}"): tensor
        for module, content in saved["modules"].items()
        for name, tensor in content.items()
    }
    kept = {name: saved[name] for name in ("task", "randomize", "noise", "start")}
    return {"bad_window": 1, "algo": "shac", "settings": {**LATER_OF_SHAC, **saved["shac"]}, "learner": tensors, **kept}


def _renamed(name: str) -> str:
    for pattern, replacement in _RENAMED:
        if re.search(pattern, name):
            return re.sub(pattern, replacement, name)
    return name
