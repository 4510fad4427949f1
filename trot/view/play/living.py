"""One world that lives: it is acted in, pushed, changed and reset, step by step. Knows no browser."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.envs.situation import Situation
from trot.envs.task import Task
from trot.learn.agent import Agent
from trot.learn.learner import NOISE_STREAM
from trot.learn.play import Act, agent_acts, chance_acts, nothing_acts, play
from trot.sim.model import Floats
from trot.sim.state import State
from trot.view.play.changed_robot import Factors, changed_env
from trot.view.play.inertia import Inertia
from trot.view.play.pushes import DIRECTIONS, Pull, directions_of, pull_jump, push_jump

AgentKind = Literal["policy", "random", "zero"]
HISTORY_SECONDS = 10.0


@dataclass
class Episode:
    """What the episode that is under way has brought so far."""

    steps: int = 0
    total: float = 0.0
    """The return."""
    terms: dict[str, float] = field(default_factory=dict)
    """The reward of the last step, by term."""


@dataclass(frozen=True)
class Ended:
    """How the episode before ended."""

    seconds: float
    total: float
    how: str
    """It fell, blew up or was reset, or its time was up."""


@dataclass(frozen=True)
class Moment:
    """A step, to draw curves of."""

    seconds: float
    """Since the beginning of all."""
    total: float
    terms: dict[str, float]


def ways_to_act(env: Env, agent: Agent | None, seed: int) -> dict[str, Act]:
    """By name: the policy, where there is one, chance, and nothing."""
    acts = {} if agent is None else {"policy": agent_acts(agent, env, stochastic=False, seed=0)}
    return acts | {"random": chance_acts(env, seed + NOISE_STREAM), "zero": nothing_acts(env)}


class Living:
    """A world of a task, and who acts in it."""

    def __init__(self, task: str | Task[Any], agent: Agent | None, kind: AgentKind, seed: int = 0) -> None:
        self.env = make_env(task, 1, "cpu", seed)
        self.robot = self.env.task.model
        """As its file says, whatever the factors are."""
        self.acts = ways_to_act(self.env, agent, seed)
        if kind not in self.acts:
            raise ValueError(f"there is no policy for the task '{self.env.task.name}'")
        self.kind, self._agent, self._seed = str(kind), agent, seed
        self.factors = Factors()
        self._commands = tuple(command.initial for command in self.env.task.commands) or None
        self.inertia = Inertia(self.robot.source)
        self.episodes, self.steps = 0, 0
        self.ended: Ended | None = None
        self.history: deque[Moment] = deque(maxlen=max(2, round(HISTORY_SECONDS / self.dt)))
        self._begin()
        body = int(self.inertia.bodies[0])
        self.pushed_body = body
        """The first that moves, by custom the torso."""
        self.directions = directions_of(self.inertia.at(self.joint_q), body)

    @property
    def pushed_name(self) -> str:
        return str(self.robot.source.body(self.pushed_body).name) or "the first body"

    @property
    def dt(self) -> float:
        """Seconds that a step takes in the world."""
        return float(self.env.task.control_dt)

    @property
    def joint_q(self) -> Floats:
        """Where the robot is, (num_q,)."""
        return self.env.worlds.joint_q[0].double().numpy()

    @property
    def joint_qd(self) -> Floats:
        """How it moves, (num_dofs,)."""
        return self.env.worlds.joint_qd[0].double().numpy()

    @property
    def commands(self) -> tuple[float, ...] | None:
        """What the robot is told, in the order of the task's commands; None where each episode draws its own."""
        return self._commands

    @property
    def seconds(self) -> float:
        """Since the episode began."""
        return self.episode.steps * self.dt

    @property
    def act(self) -> Act:
        return self.acts[self.kind]

    @torch.no_grad()
    def step(self, pulls: Iterable[Pull] = ()) -> None:
        """One action, after what pulls did to the velocities in this time."""
        jumps = [pull_jump(self.inertia.at(self.joint_q), self.joint_qd, pull, self.dt) for pull in pulls]
        if jumps:
            self._jump(np.sum(jumps, axis=0))
        self.before = self.joint_q
        action = self.act(self.env.worlds.observation).clamp(-1, 1)
        _, reward, terminated, truncated, info = self.env.step(action)
        self.control = info["control"][0].double().numpy()
        self.steps += 1
        episode = self.episode
        episode.steps += 1
        episode.total += float(reward)
        episode.terms = {name: float(value) for name, value in info["reward_terms"].items()}
        self.history.append(Moment(self.steps * self.dt, episode.total, episode.terms))
        if bool(terminated | truncated):
            fell = "blew up" if bool(info["fault"]) else "fell"
            self.ended = Ended(self.seconds, episode.total, fell if bool(terminated) else "time was up")
            self._new_episode()

    @torch.no_grad()
    def reset(self) -> None:
        """Begin a new episode at once."""
        self.ended = Ended(self.seconds, self.episode.total, "was reset")
        self._begin()

    def take_policy(self, agent: Agent) -> None:
        """Let this agent act from now on, wherever the policy does."""
        self._agent = agent
        self.acts["policy"] = agent_acts(agent, self.env, stochastic=False, seed=0)

    def foreseen(self, seconds: float, starts: int) -> Floats:
        """(frames, starts, num_q) what the robot does in its first seconds, from several starts; nobody pushes it."""
        # The kernels share a vector of worlds among as many, so that this costs little more than one start.
        env = make_env(copy.deepcopy(self.env.task, {id(self.robot): self.robot}), starts, "cpu", self._seed)
        act, steps = ways_to_act(env, self._agent, self._seed)[self.kind], max(1, round(seconds / self.dt))
        return np.stack([env.worlds.joint_q.double().numpy() for _ in play(env, act, steps)])

    def push(self, direction: str, speed: float) -> None:
        """Push the torso by what would give the whole robot, were it one point, this speed in m/s."""
        impulse = speed * self.inertia.total_mass * np.array(DIRECTIONS[direction])
        self._jump(push_jump(self.inertia.at(self.joint_q), self.pushed_body, impulse))

    def steer(self, commands: Sequence[float] | None) -> None:
        """Tell the robot this from now on, in every episode; None: from the next one on what that draws."""
        wanted = None if commands is None else tuple(commands)
        if wanted != self._commands:
            self._commands = wanted
            self._tell()

    def change(self, factors: Factors) -> None:
        """Go on with another friction, gravity and mass."""
        if factors != self.factors:
            self.env = changed_env(self.env, self.robot, factors)
            self.inertia = Inertia(self.robot.source, factors.mass)
            self.factors = factors

    def _begin(self) -> None:
        with torch.no_grad():
            self.env.reset()
        self._new_episode()

    def _new_episode(self) -> None:
        self.episodes += 1
        self.episode = Episode()
        self.control = np.zeros(self.robot.num_controls)
        # Between the end of an episode and the start of the next nothing is to be seen.
        self.before = self.joint_q
        self._tell()

    @torch.no_grad()
    def _tell(self) -> None:
        """Put the commands into the memory of the world."""
        if self._commands is None:
            return
        worlds = self.env.worlds
        memory = self.env.task.commanded(torch.tensor([self._commands]).to(worlds.joint_q))
        self.env.place(Situation(worlds.joint_q, worlds.joint_qd, memory), worlds.previous_action)

    @torch.no_grad()
    def _jump(self, change: Floats) -> None:
        worlds = self.env.worlds
        jumped = worlds.joint_qd + torch.from_numpy(change).to(worlds.joint_qd)
        if bool(jumped.isfinite().all()):
            self.env.place(State(worlds.joint_q, jumped), worlds.previous_action)
