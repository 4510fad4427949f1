"""Pieces of tensors: the same numbers in the same memory, and Adam's steps are the same with them."""

import pytest
import torch

from trot.learn.optimizer import Adam
from trot.learn.pieces import PIECE, in_pieces

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(3, 100, 100), (7,), (), (2, PIECE)]


def test_on_the_cpu_tensors_stay_whole():
    tensors = [torch.zeros(shape) for shape in SHAPES]
    assert [piece.data_ptr() for piece in in_pieces(tensors)] == [tensor.data_ptr() for tensor in tensors]


@pytest.mark.gpu
def test_on_a_gpu_they_are_views_of_at_most_a_piece():
    tensors = [
        torch.arange(10 * PIECE, device="cuda").float()[: torch.Size(shape).numel()].view(shape) for shape in SHAPES
    ]
    pieces = in_pieces(tensors)
    assert [len(piece) for piece in pieces] == [PIECE, 30_000 - PIECE, 7, 1, PIECE, PIECE]
    assert torch.cat(pieces).equal(torch.cat([tensor.flatten() for tensor in tensors]))
    for piece in pieces:
        piece.fill_(-1)
    assert all((tensor == -1).all() for tensor in tensors)


@pytest.mark.parametrize("device", DEVICES)
def test_adam_takes_pytorchs_steps(device):
    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator).to(device) for shape in SHAPES]

    ours, theirs = ([tensor.requires_grad_() for tensor in drawn(0)] for _ in range(2))
    adam = Adam(ours, (0.9, 0.999))
    adam.rate.fill_(1e-2)
    expected = torch.optim.Adam(theirs, lr=torch.tensor(1e-2), fused=True, capturable=device == "cuda")
    for step in range(1, 5):
        gradients = drawn(step)
        adam.step(gradients)
        for weight, gradient in zip(theirs, gradients, strict=True):
            weight.grad = gradient
        expected.step()
    for found, wanted in zip(ours, theirs, strict=True):
        assert found.equal(wanted)
    assert [float(adam.get_buffer(f"step_{index}")) for index in range(4)] == [4] * 4
