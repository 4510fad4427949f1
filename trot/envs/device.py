"""Where an environment runs."""

from __future__ import annotations

import torch


def capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured, so that nothing may be looked at."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


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
