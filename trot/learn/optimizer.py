"""Adam whose rate and state are tensors that stay where they are, and the clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trot.unpromised import foreach_mul_, foreach_norm


class Adam(nn.Module):
    """torch.optim.Adam for captured graphs: the rate can change without a new capture, the state is made at once.

    A module, so that rate and moments are saved with the learner that it belongs to.
    """

    rate: Tensor

    def __init__(self, parameters: Iterable[Tensor], betas: tuple[float, float]) -> None:
        super().__init__()
        self._parameters_to_move = list(parameters)
        first = self._parameters_to_move[0]
        self.register_buffer("rate", torch.zeros((), device=first.device))
        self._optimizer = torch.optim.Adam(
            self._parameters_to_move, lr=self.rate, betas=betas, fused=True, capturable=first.is_cuda
        )
        # A first step with no gradient makes the moments; then they are as before any step.
        for parameter in self._parameters_to_move:
            parameter.grad = torch.zeros_like(parameter)
        self._optimizer.step()
        for index, state in enumerate(self._optimizer.state.values()):
            for name, tensor in state.items():
                self.register_buffer(f"{name}_{index}", tensor.zero_())

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Follow these gradients, one for each parameter, at the present rate."""
        for parameter, gradient in zip(self._parameters_to_move, gradients, strict=True):
            # The fused kernel walks through memory: a gradient that is laid out in another way it would read wrongly.
            parameter.grad = gradient.contiguous()
        self._optimizer.step()


def clip_(gradients: list[Tensor], largest: float) -> Tensor:
    """Scale the gradients down in place where their common norm is larger than that; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(foreach_norm(gradients)))
    foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1))
    return norm
