"""Critics, rows and targets for the fit by kernels, and the same fit by PyTorch."""

import torch
from torch import nn

from trot.learn.networks import Critic

BETAS = (0.7, 0.95)


def critic_of(inputs, hidden, seed=0, dtype=torch.float64, members=None):
    torch.manual_seed(seed)
    network = Critic(inputs, hidden, members=members).to(dtype).network
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network


def window(inputs, rows, *members, dtype=torch.float64):
    return torch.randn(*members, rows, inputs, dtype=dtype), 3 * torch.randn(*members, rows, dtype=dtype)


def by_pytorch(network, adam, inputs, targets, batches, passes, largest):
    """The same with autograd, PyTorch's clipping and PyTorch's Adam; the losses of the last pass."""
    losses = []
    for _ in range(passes):
        losses.clear()
        for some, wanted in zip(inputs.chunk(batches), targets.chunk(batches), strict=True):
            adam.zero_grad()
            loss = nn.functional.mse_loss(network(some).squeeze(-1), wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), largest)
            adam.step()
            losses.append(loss.item())
    return sum(losses) / batches


def assert_same(ours, adam, theirs, reference):
    """Weights and moments after the same fits, ours by Adam and theirs by PyTorch's."""
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12, msg=name)
    for index, parameter in enumerate(theirs.parameters()):
        state = reference.state[parameter]
        for moment in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(adam.get_buffer(f"{moment}_{index}"), state[moment], rtol=1e-9, atol=1e-14)
