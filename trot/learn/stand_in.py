"""Which kernels compute what a network does while its weights stand still: those of the GPU, or those of the cores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from trot.learn.frozen_network import FrozenNetwork, Surroundings
from trot.learn.networks import Policy
from trot.learn.shared_network import SharedNetwork
from trot.learn.shared_policy import SharedPolicy

StandIn = FrozenNetwork | SharedNetwork
Act = Callable[[Tensor, Tensor], Tensor]


def stand_in(network: nn.Module, rows: int) -> StandIn | None:
    """For about so many rows of each member; None where PyTorch's operations are to do it."""
    return FrozenNetwork.of(network, rows) or SharedNetwork.of(network)


def act_by_one_kernel(policy: Policy, network: StandIn, shift: Tensor, scale: Tensor) -> Act | None:
    """From observations and noise to actions in a window, where a kernel knows the whole way; else None."""
    if isinstance(network, SharedNetwork):
        return SharedPolicy.of(policy, network, shift, scale)
    around = Surroundings.of(policy, shift, scale)
    return None if around is None else partial(network.act, around=around)
