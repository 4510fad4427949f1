"""Running returns and lengths of episodes, and the best agent so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trot.envs.ranks import Ranks
from trot.learn.agent import Agent
from trot.learn.members import widened
from trot.learn.returns import finished_returns

RETURN_WINDOW = 100
"""Finished episodes that the reported return is a mean of, about."""


class Episodes(nn.Module):
    """What the episodes of all worlds have collected so far, and running means over the finished ones.

    With members, num_worlds are those of each, and every tensor has a leading axis of members.
    """

    collected: Tensor
    """(worlds,) reward of the episode that runs."""
    age: Tensor
    """(worlds,) its steps."""
    mean_return: Tensor
    mean_length: Tensor
    finished: Tensor
    """How many have ended so far."""

    def __init__(self, num_worlds: int, like: Tensor, members: int | None = None) -> None:
        super().__init__()
        each = () if members is None else (members,)
        for name, shape in (
            ("collected", (num_worlds,)), ("age", (num_worlds,)), ("mean_return", ()), ("mean_length", ()),
            ("finished", ()),
        ):  # fmt: skip
            self.register_buffer(name, like.new_zeros(each + shape))

    @torch.no_grad()
    def count(
        self, reward: Tensor, done: Tensor, ranks: Ranks | None = None, truncated: Tensor | None = None,
        full_length: int = 0,
    ) -> None:  # fmt: skip
        """Add a window of steps, (steps, worlds). About the last hundred episodes, of all ranks, make the means.

        Where it is told when time was up, episodes that were then shorter than a full one began in the middle: they
        end too, but are no part of the means.
        """
        returns, collected = finished_returns(reward, done, self.collected)
        lengths, age = finished_returns(torch.ones_like(reward), done, self.age)
        self.collected.copy_(collected)
        self.age.copy_(age)
        whole = done if truncated is None else done & ~(truncated & (lengths < full_length))
        count = whole.sum(dim=(-2, -1)).to(reward.dtype)
        sums = [torch.where(whole, values, 0.0).sum(dim=(-2, -1)) for values in (returns, lengths)]
        if ranks is not None:
            count, *sums = ranks.sum([count, *sums])
        new = count.clamp(max=RETURN_WINDOW)
        old = torch.minimum(RETURN_WINDOW - new, self.finished)
        for mean, total in zip((self.mean_return, self.mean_length), sums, strict=True):
            batch_mean = total / count.clamp(min=1)
            mean.copy_(torch.where(count > 0, (old * mean + new * batch_mean) / (old + new).clamp(min=1), mean))
        self.finished += count

    def forget_running(self) -> None:
        """Episodes that are under way are given up, and never count."""
        self.collected.zero_()
        self.age.zero_()


class BestAgent(nn.Module):
    """A copy of the agent as it was when the mean return was highest."""

    mean_return: Tensor

    def __init__(self, agent: Agent, like: Tensor) -> None:
        super().__init__()
        self.agent = agent
        self.register_buffer("mean_return", torch.full_like(like, -torch.inf))

    @torch.no_grad()
    def keep_if_better(self, agent: Agent, episodes: Episodes, allowed: Tensor) -> None:
        """Copy the agent where its return is the highest so far, by masks, so that a GPU is not asked."""
        improved = (episodes.mean_return > self.mean_return) & (episodes.finished > 0) & allowed
        self.mean_return.copy_(torch.where(improved, episodes.mean_return, self.mean_return))
        kept, now = (list(one.state_dict(keep_vars=True).values()) for one in (self.agent, agent))
        for old, new in zip(kept, now, strict=True):
            old.copy_(torch.where(widened(improved, old), new, old))
