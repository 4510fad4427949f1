"""Adam whose rate and state are tensors that stay where they are, and the clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trot.learn.members import views_into
from trot.learn.pieces import in_pieces
from trot.unpromised import foreach_add_, foreach_mul_, foreach_norm, fused_adam_

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam(nn.Module):
    """torch.optim.Adam for captured graphs: the rate can change without a new capture, the state is made at once.

    A module, so that rate and moments are saved with the learner that it belongs to.
    """

    rate: Tensor

    def __init__(self, parameters: Iterable[Tensor], betas: tuple[float, float], decay: float = 0.0) -> None:
        """With a decay it is AdamW: each step first takes rate times decay of every weight away."""
        super().__init__()
        self.betas, self.decay = betas, decay
        weights = list(parameters)
        self._count = len(weights)
        device = weights[0].device
        self.register_buffer("rate", torch.zeros((), device=device))
        for index, weight in enumerate(weights):
            self.register_buffer(f"step_{index}", torch.zeros((), device=device))
            for moment in MOMENTS:
                self.register_buffer(f"{moment}_{index}", torch.zeros_like(weight, requires_grad=False))
        self._steps = [self.get_buffer(f"step_{index}") for index in range(self._count)]
        self._weights = in_pieces(weights)
        self._means, self._squares = (in_pieces(moments) for moments in self.moments())
        # A weight has one count of steps, whatever the number of its pieces.
        self._step_of_piece = [
            step for step, weight in zip(self._steps, weights, strict=True) for _ in in_pieces([weight])
        ]

    @property
    def steps(self) -> Tensor:
        """How many were taken: the same for all weights."""
        return self._steps[0]

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        """Running means of gradients and of their squares, one for each parameter."""
        return _moments(self, self._count)

    def count(self, steps: int) -> None:
        """That so many steps were taken elsewhere, on the moments and the weights."""
        foreach_add_(self._steps, steps)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Follow these gradients, one for each parameter, at the present rate."""
        if len(gradients) != self._count:
            raise ValueError(f"there are {len(gradients)} gradients for {self._count} parameters")
        foreach_add_(self._steps, 1)
        # The fused kernel walks through memory: a gradient that is laid out in another way it would read wrongly.
        pieces = in_pieces(gradient.contiguous() for gradient in gradients)
        if self.decay:
            # In float32 the rate's own small share of 1 would be rounded.
            foreach_mul_(self._weights, (1 - self.rate.double() * self.decay).to(self._weights[0].dtype))
        fused_adam_(self._weights, pieces, self._means, self._squares, self._step_of_piece, self.rate, self.betas)


class MemberAdam(nn.Module):
    """Adam for many members at once, each with a rate of its own.

    What it saves has the names of Adam's, and a leading axis of members.
    """

    rate: Tensor
    """(members,)"""

    def __init__(
        self, weights: Tensor, like: Sequence[Tensor], betas: tuple[float, float], decay: float = 0.0
    ) -> None:  # fmt: skip
        """For weights (members, weights of each), which hold the parameters `like`, (members, ...), side by side."""
        super().__init__()
        self.betas, self.decay, self._flat = betas, decay, weights.detach()
        self._one = torch.ones((), device=weights.device)
        self._steps = torch.zeros(len(weights), device=weights.device)
        self._moves, means, squares = (torch.zeros_like(self._flat) for _ in range(3))
        self.register_buffer("rate", torch.zeros_like(self._steps))
        named = zip(views_into(means, like), views_into(squares, like), strict=True)
        for index, moments in enumerate(named):
            self.register_buffer(f"step_{index}", self._steps)
            for name, moment in zip(MOMENTS, moments, strict=True):
                self.register_buffer(f"{name}_{index}", moment)
        self._move_pieces, self._means, self._squares = (
            in_pieces(part.unbind()) for part in (self._moves, means, squares)
        )
        self._step_of_piece = [
            step for step, row in zip(self._steps.unbind(), self._flat, strict=True) for _ in in_pieces([row])
        ]
        self._count = len(like)

    @property
    def steps(self) -> Tensor:
        """(members,) how many were taken."""
        return self._steps

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        """Running means of gradients and of their squares, one (members, ...) for each parameter."""
        return _moments(self, self._count)

    def count(self, steps: int) -> None:
        """That so many steps were taken elsewhere, on the moments and the weights."""
        self._steps += steps

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Follow this one gradient, (members, weights of each), at the present rates."""
        (gradient,) = gradients
        self._steps += 1
        # The fused kernel has one rate for all: it moves nothing by a rate of 1, and the members' rates come after it.
        self._moves.zero_()
        pieces = in_pieces(gradient.unbind())
        fused_adam_(
            self._move_pieces, pieces, self._means, self._squares, self._step_of_piece, self._one, self.betas
        )  # fmt: skip
        rate = self.rate.unsqueeze(1).to(self._flat.dtype)
        if self.decay:
            self._flat.mul_((1 - self.rate.double() * self.decay).unsqueeze(1).to(self._flat.dtype))
        self._flat.addcmul_(self._moves, rate)


def _moments(optimizer: nn.Module, count: int) -> tuple[list[Tensor], list[Tensor]]:
    means, squares = ([optimizer.get_buffer(f"{name}_{index}") for index in range(count)] for name in MOMENTS)
    return means, squares


def clip_(gradients: list[Tensor], largest: float) -> Tensor:
    """Scale the gradients down in place where their common norm is larger than that; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(foreach_norm(gradients)))
    foreach_mul_(gradients, _clipping(norm, largest))
    return norm


def clip_members_(gradient: Tensor, largest: float | Tensor) -> Tensor:
    """The same for each member of (members, weights of each), by one norm or (members,); returns the norms before."""
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=1)
    gradient.mul_(_clipping(norm, largest).unsqueeze(1))
    return norm


def _clipping(norm: Tensor, largest: float | Tensor) -> Tensor:
    return (largest / (norm + 1e-6)).clamp(max=1)
