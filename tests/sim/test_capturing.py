"""One place knows whether a CUDA graph is being captured, and the CPU's work never goes into one."""

from pathlib import Path

import pytest
import torch

import trot
from trot.sim.capturing import capturing


@pytest.mark.parametrize("captured", [False, True])
def test_only_the_gpu_s_work_is_captured(monkeypatch, captured):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
    assert capturing(torch.device("cuda", 0)) is captured
    assert capturing(torch.device("cpu")) is False


def test_nobody_else_asks_torch():
    package = Path(trot.__file__).parent
    asking = [file.name for file in package.rglob("*.py") if "is_current_stream_capturing" in file.read_text()]
    assert asking == ["capturing.py"]
