"""What a step will do, learned: an ensemble of networks that each give a Gaussian for the reward and the change seen.

Every network learns from a bootstrap of its own, so that they agree where there is data and disagree where there is
none; those that predict best, the elites, are asked. As in MBPO (Janner et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from trot.learn.networks import MemberLinear, perceptron, zero_biases_
from trot.learn.optimizer import Adam
from trot.unpromised import foreach_copy_

HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 5000
"""Rows that judge the networks and that none of them learns from."""
LEAST_GAIN = 0.01
"""Share of its best error by which a network must become better for it to count."""
PATIENCE = 6
"""Passes in a row without such a gain that end a training."""
FIRST_BOUNDS = (-10.0, 0.5)
"""Of the log-variances, before any training."""
BOUND_WEIGHT = 0.01
"""Of the distance between the bounds, in the loss."""
FIRST_DECAYS, MIDDLE_DECAY, LAST_DECAY = (2.5e-5, 5e-5), 7.5e-5, 1e-4
"""Weights of half the squared weights, by layer."""
LEAST_DEVIATION = 1e-12
"""Inputs that vary less are not scaled."""


@dataclass(frozen=True)
class Ensemble:
    """How a model is built and trained."""

    hidden: tuple[int, ...] = (200, 200, 200, 200)
    members: int = 7
    elites: int = 5
    lr: float = 1e-3
    batch: int = 256
    """Rows of a network's step."""
    most_passes: int = 1000
    """Over the data in one training, where it does not end by itself."""


class DynamicsModel(nn.Module):
    """(observation, action) to a Gaussian for (reward, next observation - observation), once per network."""

    shift: Tensor
    scale: Tensor
    """Of inputs: mean and deviation of the last training's."""
    elites: Tensor
    """The networks that predicted best, the best first."""
    error: Tensor
    """The elites' mean squared error on rows that they did not learn from."""
    passes: Tensor
    """Over the data in the last training."""

    def __init__(
        self, observations: int, actions: int, ensemble: Ensemble, device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        """Its weights come from PyTorch's global generator."""
        super().__init__()
        self.ensemble = ensemble
        inputs, outputs = observations + actions, 1 + observations
        self.network = perceptron(
            inputs, ensemble.hidden, 2 * outputs, activation="silu", layer_norm=False, members=ensemble.members
        )
        zero_biases_(self.network)
        self.lower, self.upper = (nn.Parameter(torch.full((outputs,), bound)) for bound in FIRST_BOUNDS)
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("error", torch.zeros(()))
        self.register_buffer("passes", torch.zeros(()))
        self.to(device, dtype)
        self.register_buffer("elites", torch.arange(ensemble.elites, device=device))
        self._layers = [layer.weight for layer in self.network if isinstance(layer, MemberLinear)]
        self._decays = layer_decays(len(self._layers))
        self._of_members: list[Tensor] = list(self.network.parameters())
        self._weights = [*self._of_members, self.lower, self.upper]
        self.optimizer = Adam(self._weights, betas=(0.9, 0.999))
        self.optimizer.rate.fill_(ensemble.lr)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance, (members, rows, 1 + observations) each; inputs may have a member axis too."""
        mean, log_variance = self.network((inputs - self.shift) / self.scale).chunk(2, dim=-1)
        return mean, softly_bounded(log_variance, self.lower, self.upper)

    @torch.no_grad()
    def imagine(self, observation: Tensor, action: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Next observation and reward, drawn for each row from the Gaussian of an elite that is drawn too."""
        rows, device = len(observation), observation.device
        mean, log_variance = self.forward(torch.cat([observation, action], dim=1))
        lots = torch.randint(len(self.elites), (rows,), generator=generator, device=device)
        asked = self.elites[lots], torch.arange(rows, device=device)
        mean, deviation = mean[asked], (log_variance[asked] / 2).exp()
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=device)
        reward, change = torch.split_with_sizes(mean + deviation * noise, [1, observation.shape[1]], dim=1)
        return observation + change, reward.squeeze(1)

    @torch.no_grad()
    def fit(self, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        """Train on these rows, from the present weights, until no network becomes better. Asks a GPU for answers.

        Every network ends with the weights that had its least held-out error. Returns whether each found some: a
        network whose errors are not finite keeps the weights that it had.
        """
        device = inputs.device
        order = torch.randperm(len(inputs), generator=generator, device=device)
        inputs, targets = inputs[order], targets[order]
        held_out = num_held_out(len(inputs))
        judges, inputs, targets = (inputs[:held_out], targets[:held_out]), inputs[held_out:], targets[held_out:]
        self._standardise(inputs)
        shape = (self.ensemble.members, len(inputs))
        bootstrap = torch.randint(len(inputs), shape, generator=generator, device=device)
        best = [weight.detach().clone() for weight in self._of_members]
        least = torch.full((self.ensemble.members,), torch.inf, dtype=inputs.dtype, device=device)
        idle = passes = 0
        while idle < PATIENCE and passes < self.ensemble.most_passes:
            for batch in torch.split(bootstrap, self.ensemble.batch, dim=1):
                self._learn(inputs[batch], targets[batch])
            lots = torch.rand(shape, generator=generator, device=device)
            bootstrap = bootstrap.gather(1, lots.argsort(dim=1))
            error = self.errors(*judges)
            better = error < (1 - LEAST_GAIN) * least
            least = torch.where(better, error, least)
            _keep(best, self._of_members, better)
            passes += 1
            idle = 0 if bool(better.any()) else idle + 1
        foreach_copy_(self._of_members, best)
        error, ranked = least.sort()
        self.elites.copy_(ranked[: len(self.elites)])
        self.error.copy_(error[: len(self.elites)].mean())
        self.passes.fill_(passes)
        return least.isfinite()

    @torch.no_grad()
    def errors(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Each network's mean squared error, (members,)."""
        mean, _ = self.forward(inputs)
        return (mean - targets).square().mean(dim=(1, 2))

    def _standardise(self, inputs: Tensor) -> None:
        deviation, mean = torch.std_mean(inputs, dim=0, correction=0)
        self.shift.copy_(mean)
        self.scale.copy_(torch.where(deviation < LEAST_DEVIATION, 1.0, deviation))

    def _learn(self, inputs: Tensor, targets: Tensor) -> None:
        """One step of Adam for every network, on rows of its own, (members, rows, ...)."""
        with torch.enable_grad():
            loss = self.loss(inputs, targets)
            gradients = torch.autograd.grad(loss, self._weights)
        self.optimizer.step(gradients)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Twice the negative log-likelihood, summed over networks, and what keeps weights and bounds small."""
        mean, log_variance = self.forward(inputs)
        likelihood = negative_log_likelihood(mean, log_variance, targets).sum()
        decayed = [decay / 2 * weight.square().sum() for decay, weight in zip(self._decays, self._layers, strict=True)]
        return likelihood + torch.stack(decayed).sum() + BOUND_WEIGHT * (self.upper - self.lower).sum()


def negative_log_likelihood(mean: Tensor, log_variance: Tensor, targets: Tensor) -> Tensor:
    """Of Gaussians, without its constant and twice: each network's mean over rows and outputs, (members,)."""
    return ((mean - targets).square() * (-log_variance).exp() + log_variance).mean(dim=(1, 2))


def softly_bounded(value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Nearly the value inside the bounds, nearly a bound outside, and never flat."""
    value = upper - softplus(upper - value)
    return lower + softplus(value - lower)


def num_held_out(rows: int) -> int:
    """Of so many rows."""
    if rows < 2:
        raise ValueError(f"a model learns from some rows and is judged by others: it takes at least 2, not {rows}")
    return max(1, min(int(HELD_OUT_SHARE * rows), MOST_HELD_OUT))


def layer_decays(layers: int) -> list[float]:
    """From the first to the last."""
    before_last = [*FIRST_DECAYS, *[MIDDLE_DECAY] * layers][: layers - 1]
    return [*before_last, LAST_DECAY]


def _keep(kept: list[Tensor], now: list[Tensor], members: Tensor) -> None:
    """Overwrite what is kept of these members, (members,) yes or no."""
    for old, new in zip(kept, now, strict=True):
        old.copy_(torch.where(members.view(-1, *[1] * (old.dim() - 1)), new, old))
