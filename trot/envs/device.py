"""Where an environment runs."""

from __future__ import annotations

import os

import torch

from trot.envs.cgroup_memory import cgroup_limit


def existing_device(device: str | torch.device) -> torch.device:
    """The device with its number; raises ValueError where there is none such."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be cpu or cuda, not {device}") from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, not {found}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA device here. Use device='cpu'.")
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


class TooManyWorldsError(ValueError):
    """There is not enough memory for so many worlds, whatever is done with them."""


def require_room(
    num_worlds: int, bytes_per_world: int, device: torch.device, what: str = "the worlds' states alone",
    way: str = "Use fewer worlds",
) -> None:  # fmt: skip
    """Refuse more worlds than the device has memory for, before anything is allocated."""
    there = memory_bytes(device)
    if num_worlds * bytes_per_world > there:
        raise TooManyWorldsError(
            f"num_worlds {num_worlds} takes {num_worlds * bytes_per_world / 1e9:,.0f} GB for {what}; "
            f"{device} has {there / 1e9:,.0f} GB. {way}"
        )


def memory_bytes(device: torch.device) -> float:
    """Bytes in all that this process may have; infinite where the system does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        built_in = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        built_in = float("inf")
    return min(built_in, cgroup_limit())
