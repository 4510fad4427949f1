"""A differentiable operation made from a header of a few lines, against the same in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck

from trot.sim.arguments import Argument
from trot.sim.native_operation import RowOperation

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

# result[k] = scale * (a[k] + shift) * b[k % b_width]
HEADER = """#pragma once
CUDA_CALLABLE inline void spread(const Settings& s, const Scalar* a, const Scalar* b, Scalar* result, int lane,
                                 int lanes) {
    for (int k = lane; k < s.a_width; k += lanes) result[k] = s.scale * (a[k] + s.shift) * b[k % s.b_width];
}
CUDA_CALLABLE inline void spread_adjoint(const Settings& s, const Scalar* a, const Scalar* b, const Scalar* result_bar,
                                         Scalar* a_bar, Scalar* b_bar, int lane, int lanes) {
    for (int k = lane; k < s.a_width; k += lanes) a_bar[k] = s.scale * b[k % s.b_width] * result_bar[k];
    for (int i = lane; i < s.b_width; i += lanes) {
        b_bar[i] = 0;
        for (int k = i; k < s.result_width; k += s.b_width) b_bar[i] += s.scale * (a[k] + s.shift) * result_bar[k];
    }
}
"""
SETTINGS = {"shift": 2, "scale": 0.5}


@pytest.fixture(scope="module")
def spread(tmp_path_factory) -> RowOperation:
    header = Path(tmp_path_factory.mktemp("header")) / "spread.h"
    header.write_text(HEADER)
    settings = (Argument("shift", "int", "added"), Argument("scale", "Scalar", "times"))
    return RowOperation(header, "spread", ("a", "b"), settings)


def drawn(worlds: int, dtype=torch.float64, device="cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(worlds, width, dtype=dtype, generator=generator).to(device) for width in (7, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values(spread: RowOperation, dtype: torch.dtype, device: str) -> None:
    a, b = drawn(50, dtype, device)
    expected = 0.5 * (a + 2) * b[:, torch.arange(7) % 3]
    torch.testing.assert_close(spread((a, b), 7, SETTINGS), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives(spread: RowOperation, device: str) -> None:
    inputs = [part.requires_grad_() for part in drawn(4, device=device)]
    assert gradcheck(lambda a, b: spread((a, b), 7, SETTINGS), inputs)


def test_derivatives_of_some_inputs(spread: RowOperation) -> None:
    a, b = drawn(4)
    b.requires_grad_()
    spread((a, b), 7, SETTINGS).sum().backward()
    expected = (0.5 * (a + 2)) @ torch.eye(3, dtype=a.dtype)[torch.arange(7) % 3]
    torch.testing.assert_close(b.grad, expected)


def test_rows_apart_in_memory_are_brought_together(spread: RowOperation) -> None:
    a, b = drawn(6)
    apart = (a.T.contiguous().T, b.repeat(1, 2)[:, :3])
    assert not apart[0].is_contiguous() and not apart[1].is_contiguous()
    assert spread(apart, 7, SETTINGS).equal(spread((a, b), 7, SETTINGS))


def test_first_derivatives_only(spread: RowOperation) -> None:
    a, b = (part.requires_grad_() for part in drawn(3))
    (gradient,) = torch.autograd.grad(spread((a, b), 7, SETTINGS).square().sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (torch.zeros(3, 7), torch.zeros(2, 3), r"one row per world: a is \(3, 7\), b is \(2, 3\)"),
        (torch.zeros(3, 7), torch.zeros(3), "one row per world"),
        (torch.zeros(3, 7), torch.zeros(3, 3).double(), "both float64, on one device: a is torch.float32 on cpu"),
        (torch.zeros(3, 7).half(), torch.zeros(3, 3).half(), "both must be float32 or both float64"),
        (torch.zeros(3, 7), torch.zeros(3, 3, device="meta"), "b is torch.float32 on meta"),
    ],
)
def test_what_does_not_fit_is_told(spread: RowOperation, a: torch.Tensor, b: torch.Tensor, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        spread((a, b), 7, SETTINGS)


def test_a_setting_that_is_missing_is_told(spread: RowOperation) -> None:
    with pytest.raises(KeyError, match="scale"):
        spread(drawn(3), 7, {"shift": 2})
