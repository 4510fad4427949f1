"""Which kernels compute what a network does while its weights stand still: those of the GPU, or those of the cores."""

from __future__ import annotations

from torch import nn

from trot.learn.frozen_network import FrozenNetwork
from trot.learn.shared_network import SharedNetwork

StandIn = FrozenNetwork | SharedNetwork


def stand_in(network: nn.Module, rows: int) -> StandIn | None:
    """For about so many rows of each member; None where PyTorch's operations are to do it."""
    return FrozenNetwork.of(network, rows) or SharedNetwork.of(network)
