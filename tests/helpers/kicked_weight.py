"""An algorithm whose best rate is known: one weight is kicked to 1 and takes one step down the slope of a parabola.

It stands at 1 - rate * CURVATURE then, and its square is what an episode costs. From three times the best rate on,
learning counts as failed.
"""

from dataclasses import dataclass

import torch

from trot.learn.agent import AgentDescription
from trot.learn.learner import Algorithm, Learner, LearnerSettings, Phase

CURVATURE = 40.0
BEST_RATE = 1 / CURVATURE


def cost(rate):
    return (1 - rate * CURVATURE) ** 2


@dataclass(frozen=True)
class KickedSettings(LearnerSettings):
    num_worlds: int = 100
    """Each ends an episode in every iteration: the mean over a hundred episodes is that of one iteration."""
    iterations: int = 8
    horizon: int = 24
    offset: float = 0.0
    """Added to every return."""
    rate: float = 0.001

    def __post_init__(self):
        super().__post_init__()
        if self.rate <= 0:
            raise ValueError(f"rate must be above 0, not {self.rate}")


class Kicked(Learner):
    takes_members = True
    own_settings = ("rate",)

    def __init__(self, env, settings, seed=0):
        super().__init__(env, settings, seed)
        self.settings = settings
        with self.seeded():
            self.make_agent(AgentDescription(env.num_observations, env.num_actions, (4,)))
        self.rates = torch.full((self.members or 1,), settings.rate)

    def set_member_settings(self, settings):
        self.rates = torch.tensor([one.rate for one in settings])

    def phases(self):
        return (Phase("all", self.learn),)

    def learn(self):
        self.stopped |= self.rates > 3 * BEST_RATE
        reward = self.settings.offset - cost(self.rates).view(-1, 1, 1).expand(-1, 1, self.settings.num_worlds)
        self.conclude(reward, torch.ones_like(reward, dtype=torch.bool), {}, simulated=self.settings.num_worlds)


KICKED = Algorithm("kicked", "Kicked", "a parabola", KickedSettings, Kicked, {"only": lambda task: KickedSettings()})
