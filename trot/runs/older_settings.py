"""settings.json as earlier versions wrote it, in today's form."""

from __future__ import annotations

from typing import Any

LABELS = {"shac": "SHAC", "shac-no-critic": "SHAC without critic", "bptt": "BPTT"}
"""All that the first version knew."""
LATER_OF_AGENTS = {"clip_observations": None, "squash": "tanh", "log_std_bounds": None, "mirror": None}
"""What descriptions of agents did not say at first, and how it was then."""

LATER_OF_RANDOMIZE = {
    "push_interval": 0.0,
    "push_speed": 0.0,
    "push_turning": 0.0,
    "observation_noise": [],
    "action_delay": [0, 0],
}
"""The same of what differs from world to world."""


RELATIVES = ("sapo", "rpo", "ahac", "shac-mixed")
"""Of SHAC."""
LATER_OF_RELATIVES = {"symmetric": False, "staggered": False}
"""The same of their settings."""
LATER_OF_SHAC = {"clip_worlds": 0.0, "compare_halves": False, **LATER_OF_RELATIVES}
"""The same of SHAC's own, without critic and with long windows too: it is older than they are."""


def with_later_of_shac(algo: object, settings: dict[str, Any]) -> dict[str, Any]:
    """An algorithm's settings with what SHAC has got since."""
    if algo in RELATIVES:
        return {**LATER_OF_RELATIVES, **settings}
    return {**LATER_OF_SHAC, **settings} if algo in LABELS else settings


def upgraded_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as today's version writes them, whichever version wrote these. What is broken stays as it is."""
    settings = _without_shac(settings)
    for part, later in (("agent", LATER_OF_AGENTS), ("randomize", LATER_OF_RANDOMIZE)):
        given = settings.get(part)
        if isinstance(given, dict):
            settings = {**settings, part: {**later, **given}}
    given = settings.get("settings")
    if isinstance(given, dict):
        settings = {**settings, "settings": with_later_of_shac(settings.get("algo"), given)}
    return settings


def _without_shac(settings: dict[str, Any]) -> dict[str, Any]:
    """The first version's, in which all settings were SHAC's."""
    given = settings.get("shac")
    if not isinstance(given, dict):
        return settings
    renamed = {"hidden": "actor_hidden", "kind": "policy", "initial_log_std": "initial_log_std"}
    renamed["normalize"] = "normalize_observations"
    upgraded = {name: value for name, value in settings.items() if name != "shac"}
    upgraded |= {"settings": given, "label": LABELS.get(str(settings.get("algo")), str(settings.get("algo")))}
    sizes = {name: upgraded.pop(name) for name in ("num_observations", "num_actions") if name in upgraded}
    if len(sizes) == 2 and given.keys() >= set(renamed.values()):
        described = {name: given[old] for name, old in renamed.items()}
        upgraded["agent"] = {**sizes, **described, "activation": "elu", "layer_norm": True}
    return upgraded
