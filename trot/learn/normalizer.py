"""Running mean and variance of observations, and the normalisation by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trot.envs.ranks import Ranks

PRIOR_COUNT = 1e-4
"""Weight of mean 0 and variance 1, with which the statistics begin."""
EPSILON = 1e-5
"""Added to the variance."""


class Normalizer(nn.Module):
    """Statistics as buffers, so that they travel with a policy's state dict. They are constants to gradients.

    With members, each has its own: observations are (members, rows, width).
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, members: int | None = None) -> None:
        super().__init__()
        self.members = members
        each = () if members is None else (members,)
        # Means over millions of observations: float64 keeps adding where float32 would stop.
        self.register_buffer("count", torch.full(each, PRIOR_COUNT, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(*each, width, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(*each, width, dtype=torch.float64))

    def forward(self, observation: Tensor) -> Tensor:
        shift, scale = self.affine(observation.dtype)
        return (observation - shift) * scale

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What to subtract and then to multiply by: constants of a window."""
        shift, scale = self.mean.to(dtype), (self.variance + EPSILON).rsqrt().to(dtype)
        return (shift, scale) if self.members is None else (shift.unsqueeze(1), scale.unsqueeze(1))

    @torch.no_grad()
    def update(self, observations: Tensor, ranks: Ranks | None = None) -> None:
        """Merge the statistics of these rows, (..., width) behind any axis of members, into the running ones.

        With ranks, the statistics of all ranks' rows: each has as many.
        """
        rows = observations.flatten(0 if self.members is None else 1, -2).double()
        variance, mean = torch.var_mean(rows, dim=-2, correction=0)
        count = rows.shape[-2]
        if ranks is not None:
            (everyone,) = ranks.mean([mean])
            (variance,) = ranks.mean([variance + (mean - everyone).square()])
            mean, count = everyone, count * ranks.size
        total = self.count + count
        old, share = (self.count / total).unsqueeze(-1), (count / total).unsqueeze(-1)
        shift = mean - self.mean
        # Two groups' variances, and that of their means.
        self.variance.copy_(old * self.variance + share * variance + share * old * shift.square())
        self.mean.add_(share * shift)
        self.count.copy_(total)
