"""Whether a CUDA graph is being captured: then nothing on the GPU may be looked at."""

from __future__ import annotations

import torch


def capturing(device: torch.device) -> bool:
    """Whether the device's work of this moment goes into a CUDA graph. On the CPU it never does."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
