"""Adam whose rate and state are tensors that stay where they are, and the clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trot.learn.pieces import in_pieces
from trot.unpromised import foreach_add_, foreach_mul_, foreach_norm, fused_adam_

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam(nn.Module):
    """torch.optim.Adam for captured graphs: the rate can change without a new capture, the state is made at once.

    A module, so that rate and moments are saved with the learner that it belongs to.
    """

    rate: Tensor

    def __init__(self, parameters: Iterable[Tensor], betas: tuple[float, float]) -> None:
        super().__init__()
        self.betas = betas
        weights = list(parameters)
        self._count = len(weights)
        device = weights[0].device
        self.register_buffer("rate", torch.zeros((), device=device))
        for index, weight in enumerate(weights):
            self.register_buffer(f"step_{index}", torch.zeros((), device=device))
            for moment in MOMENTS:
                self.register_buffer(f"{moment}_{index}", torch.zeros_like(weight, requires_grad=False))
        self._steps = self._buffers_named("step")
        self._weights = in_pieces(weights)
        self._means, self._squares = (in_pieces(self._buffers_named(moment)) for moment in MOMENTS)
        # A weight has one count of steps, whatever the number of its pieces.
        self._step_of_piece = [
            step for step, weight in zip(self._steps, weights, strict=True) for _ in in_pieces([weight])
        ]

    def _buffers_named(self, name: str) -> list[Tensor]:
        return [self.get_buffer(f"{name}_{index}") for index in range(self._count)]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Follow these gradients, one for each parameter, at the present rate."""
        if len(gradients) != self._count:
            raise ValueError(f"there are {len(gradients)} gradients for {self._count} parameters")
        foreach_add_(self._steps, 1)
        # The fused kernel walks through memory: a gradient that is laid out in another way it would read wrongly.
        pieces = in_pieces(gradient.contiguous() for gradient in gradients)
        fused_adam_(self._weights, pieces, self._means, self._squares, self._step_of_piece, self.rate, self.betas)


def clip_(gradients: list[Tensor], largest: float) -> Tensor:
    """Scale the gradients down in place where their common norm is larger than that; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(foreach_norm(gradients)))
    foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1))
    return norm
