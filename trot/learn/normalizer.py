"""Running mean and variance of observations, and the normalisation by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PRIOR_COUNT = 1e-4
"""Weight of mean 0 and variance 1, with which the statistics begin."""
EPSILON = 1e-5
"""Added to the variance."""


class Normalizer(nn.Module):
    """Statistics as buffers, so that they travel with a policy's state dict. They are constants to gradients."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        # Means over millions of observations: float64 keeps adding where float32 would stop.
        self.register_buffer("count", torch.tensor(PRIOR_COUNT, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(width, dtype=torch.float64))

    def forward(self, observation: Tensor) -> Tensor:
        shift, scale = self.affine(observation.dtype)
        return (observation - shift) * scale

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What to subtract and then to multiply by: constants of a window."""
        return self.mean.to(dtype), (self.variance + EPSILON).rsqrt().to(dtype)

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Merge the statistics of these rows, (..., width), into the running ones."""
        rows = observations.reshape(-1, observations.shape[-1]).double()
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        total = self.count + len(rows)
        old, share = self.count / total, len(rows) / total
        shift = mean - self.mean
        # Two groups' variances, and that of their means.
        self.variance.copy_(old * self.variance + share * variance + share * old * shift.square())
        self.mean.add_(share * shift)
        self.count.copy_(total)
