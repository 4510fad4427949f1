"""What an algorithm is to the rest of trot: settings, a learner, and the phases of its iterations.

docs/add_algorithm.md walks through writing one. The trainer, CUDA graphs, checkpoints, benches and plots know this
contract and no algorithm.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.member_env import MemberEnv, split_axis
from trot.envs.rank_env import RankEnv
from trot.envs.ranks import Ranks
from trot.learn.agent import Agent, AgentDescription
from trot.learn.bad_window import BadWindow, Trace
from trot.learn.episodes import BestAgent, Episodes
from trot.learn.members import member_of, put_member, side_by_side
from trot.learn.rank_state import joined, own_part
from trot.learn.torch_threads import one_torch_thread
from trot.unpromised import foreach_norm

NOISE_STREAM = 1_000_003
"""Added to the seed for what a learner draws: the starts of episodes come from the seed itself."""

TimeOuts = Literal["bootstrap", "end"]
"""What a step is worth that ends an episode by the clock: what would have come, or nothing more, as after a fall."""

COMMON_COLUMNS = ("episode_return", "episode_length", "episodes", "reward", "faults", "best_return", "stopped")
"""Of metrics.csv, whatever learns; `iteration`, `steps` and `seconds` stand before them."""


@dataclass(frozen=True)
class LearnerSettings:
    """What every algorithm has; its own settings come on top, in a dataclass that inherits from this one."""

    num_worlds: WorldCount = 64
    """Worlds in parallel."""
    iterations: int = 2000
    """Of the whole training."""

    def __post_init__(self) -> None:
        require_at_least_one(self, "num_worlds", "iterations")

    def going_on_from(self, form: AgentDescription) -> Self:
        """For --start-from: with the options that give a policy this form, and what serves one that has learned."""
        return self


def require_at_least_one(settings: LearnerSettings, *names: str) -> None:
    """Raise where one of these settings is below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(settings, name)}")


def require_share(settings: LearnerSettings, *names: str) -> None:
    """Raise where one of these settings is not between 0 and 1."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise ValueError(f"{name} must be between 0 and 1, not {getattr(settings, name)}")


def require_positive(settings: LearnerSettings, *names: str) -> None:
    """Raise where one of these settings is not above 0 and finite."""
    for name in names:
        if not 0 < getattr(settings, name) < math.inf:
            raise ValueError(f"{name} must be above 0, not {getattr(settings, name)}")


def require_widths(settings: LearnerSettings, *names: str) -> None:
    """Raise where one of these settings is not the widths of layers."""
    for name in names:
        if not all(width >= 1 for width in getattr(settings, name)):
            raise ValueError(f"{name} must be widths of at least 1, not {getattr(settings, name)}")


def require_time_outs(time_outs: TimeOuts) -> None:
    """Raise where it is none of them."""
    if time_outs not in get_args(TimeOuts):
        raise ValueError(f"time_outs must be one of {', '.join(get_args(TimeOuts))}, not '{time_outs}'")


@dataclass(frozen=True)
class Phase:
    """A part of an iteration."""

    name: str
    run: Callable[[], None]
    beside_last: bool = False
    """Neither needs the other: it runs beside the phase before it, on a GPU, and on the CPU in a thread of its own."""
    captured: bool = True
    """Whether it asks the GPU for no answer and has no branch on data, so that a CUDA graph can replay it.

    What a phase that is not captured leaves for captured ones must be written into the same tensors every time."""
    times: int = 1
    """How often it runs before the next phase begins; captured once, it is replayed as often."""
    due: Callable[[int], bool] | None = None
    """Tells by the number of an iteration, counted from 0, whether the phase takes part in it; always unless given."""

    def takes_part(self, iteration: int) -> bool:
        return self.due is None or self.due(iteration)


class Learner(nn.Module, ABC):
    """An agent and all that its learning takes.

    What lasts from one iteration to the next are parameters, buffers and modules of this module: they are saved and
    resumed without another word. They are changed in place only, because captured graphs know them by their address.

    In an environment with members it is as many learners side by side, if its class takes members: all that lasts has a
    leading axis of members, and a member's part of it is what a learner of that member alone would have.
    """

    takes_members: ClassVar[bool] = False
    """Whether it learns in environments with members."""
    own_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that each member may have of its own: set_member_settings() takes them."""
    takes_ranks: ClassVar[bool] = False
    """Whether it learns on several ranks: what it steps by is reduced over them."""

    columns: ClassVar[tuple[str, ...]] = ()
    """Of metrics.csv, behind the common ones."""
    shown: ClassVar[Mapping[str, str]] = {}
    """Columns for the line of progress: label to column."""

    agent: Agent
    """As it is now."""
    best: BestAgent
    """As it was when its episodes returned most."""
    bad_window: BadWindow | None
    """The first window whose gradient was not finite, of learners that differentiate through windows."""
    iteration: Tensor
    steps: Tensor
    """Environment steps taken so far."""
    stopped: Tensor
    """Whether learning has failed: something was not finite, and from there on nothing is learned."""

    def __init__(self, env: Env, settings: LearnerSettings, seed: int = 0) -> None:
        super().__init__()
        self.members = env.members
        if self.members is not None and not self.takes_members:
            raise ValueError(
                f"{type(self).__name__} cannot learn with several seeds at once, as shac, shac-no-critic and bptt can: "
                "train them one by one"
            )
        self.ranks: Ranks | None = env.ranks if isinstance(env, RankEnv) else None
        if self.ranks is not None and not self.takes_ranks:
            raise ValueError(
                f"{type(self).__name__} cannot learn on several ranks, as shac, shac-no-critic and bptt can: "
                "train it without torchrun"
            )
        shares = 1 if self.ranks is None else self.ranks.size
        if env.num_worlds * shares != settings.num_worlds * (self.members or 1):
            raise ValueError(f"the environment has {env.num_worlds} worlds, the settings say {settings.num_worlds}")
        self.env, self.device, self.seed = env, env.device, seed
        self.bad_window = None
        self.generators = [
            torch.Generator(self.device).manual_seed(seed + NOISE_STREAM) for _ in range(self.members or 1)
        ]
        each = () if self.members is None else (self.members,)
        nothing = torch.zeros((), dtype=env.dtype, device=self.device)
        self.register_buffer("iteration", torch.zeros(each, dtype=torch.int64, device=self.device))
        self.register_buffer("steps", torch.zeros(each, dtype=torch.int64, device=self.device))
        self.register_buffer("stopped", torch.zeros(each, dtype=torch.bool, device=self.device))
        self.num_worlds = settings.num_worlds
        """Of each member, and of all ranks together."""
        self.episodes = Episodes(settings.num_worlds // shares, nothing, self.members)
        self._check_columns()
        self.metrics = nothing.new_zeros(*each, len(self.all_columns()))
        """The last iteration's row, or one of each member, in the order of all_columns()."""
        env.reset()
        env.end_window()

    @property
    def generator(self) -> torch.Generator:
        """What it draws from; that of the first, where there are members."""
        return self.generators[0]

    def set_member_settings(self, settings: Sequence[Any]) -> None:
        """Let each member learn by settings of its own from here on; they may differ in own_settings alone.

        Called first before phases are captured: they read what is changed later where it lies.
        """
        raise ValueError(f"{type(self).__name__} has no settings that differ between members")

    def make_agent(self, description: AgentDescription) -> None:
        """A new agent, and the copy that keeps its best form. Inside seeded(), for weights that the seed decides."""
        self.agent, best = (description.build(self.device, self.env.dtype, self.members) for _ in range(2))
        best.load_state_dict(self.agent.state_dict())
        self.best = BestAgent(best.requires_grad_(False), self.episodes.mean_return)

    def start_from(self, agent: Agent) -> None:
        """Let the agent begin as this one. ValueError where it is one of another form."""
        agent.require_fit(self.env)
        theirs, ours = agent.described(), self.agent.described()
        # Only what a new agent begins with.
        differ = [name for name in ours if ours[name] != theirs[name] and name != "initial_log_std"]
        if differ:
            gaps = ", ".join(f"{name} is {theirs[name]} there and {ours[name]} here" for name in differ)
            raise ValueError(f"its policy has another form than {type(self).__name__}'s: {gaps}")
        for own in (self.agent, self.best.agent):
            own.load_state_dict(agent.state_dict())

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The parts of an iteration, in their order; the last one that is due calls conclude()."""

    def iterate(self) -> None:
        """One iteration, part by part."""
        phases = self.phases()
        # A GPU is asked only where the answer matters.
        number = int(self.iteration) if any(phase.due for phase in phases) else 0
        for phase in phases:
            for _ in range(phase.times if phase.takes_part(number) else 0):
                phase.run()

    @torch.no_grad()
    def conclude(
        self, reward: Tensor, done: Tensor, columns: Mapping[str, Tensor], simulated: int | None = None,
        truncated: Tensor | None = None,
    ) -> None:  # fmt: skip
        """End an iteration in which the worlds took these steps, (steps, worlds), or by_member() of them.

        This is all that learners have in common.

        Episodes are counted, the best agent is kept, the next window begins where this one ended, and the metrics get
        their numbers, the learner's own from `columns`. A learner that simulates more than what it tells of here says
        how many environment steps it took, all worlds together; one whose worlds are staggered, when time was up, so
        that episodes which began in the middle do not count.
        """
        if columns.keys() != set(self.columns):
            raise ValueError(
                f"conclude() was given the columns {sorted(columns)}; `columns` says {sorted(self.columns)}"
            )
        self.episodes.count(reward, done, self.ranks, truncated, self.env.episode_length)
        # Whatever went wrong, an agent that can only answer NaN is neither kept nor trained on.
        self.stopped |= ~self._size_of_weights().isfinite()
        self.best.keep_if_better(self.agent, self.episodes, allowed=~self.stopped)
        (mean_reward,) = self.mean_over_ranks([reward.mean(dim=(-2, -1))])
        faults = self.split(self.env.worlds.faults).sum(dim=(-2, -1))
        if self.ranks is not None:
            (faults,) = self.ranks.sum([faults])
        row = {
            "episode_return": self.episodes.mean_return,
            "episode_length": self.episodes.mean_length,
            "episodes": self.episodes.finished,
            "reward": mean_reward,
            "faults": faults,
            "best_return": self.best.mean_return,
            "stopped": self.stopped,
            **columns,
        }
        for name, value in columns.items():
            if not isinstance(value, Tensor) or value.shape != self.stopped.shape:
                shape = "without dimensions, one number" if self.members is None else "with a number for each member"
                raise ValueError(f"the column '{name}' must be a tensor {shape}")
        values = [row[name].detach().to(self.metrics.dtype) for name in self.all_columns()]
        self.metrics.copy_(torch.stack(values, dim=-1))
        self.iteration += 1
        steps = reward.shape[-2:].numel() if simulated is None else simulated
        self.steps += steps if self.ranks is None else steps * self.ranks.size
        self.env.end_window()

    def mean_over_ranks(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Of means over this rank's worlds, those over all ranks' worlds; as they are where there are no ranks."""
        return list(tensors) if self.ranks is None else self.ranks.mean(tensors)

    def _size_of_weights(self) -> Tensor:
        """Of the agent's, or of each member's; not finite where one of them is not."""
        weights: list[Tensor] = list(self.agent.parameters())
        if self.members is None:
            return torch.stack(foreach_norm(weights)).sum()
        size: Tensor = torch.linalg.vector_norm(side_by_side(weights), dim=1)
        return size

    def split(self, rows: Tensor, dim: int = 0) -> Tensor:
        """The axis of all worlds in two, members and the worlds of each; as it is where there are no members."""
        return rows if self.members is None else split_axis(rows, dim, self.members)

    def members_first(self, steps: Tensor) -> Tensor:
        """(steps, members, ...) to (members, steps, ...); as it is where there are no members."""
        return steps if self.members is None else steps.transpose(0, 1)

    def by_member(self, steps: Tensor) -> Tensor:
        """(steps, worlds, ...) to (members, steps, worlds of each, ...); as it is where there are no members."""
        return self.members_first(self.split(steps, dim=1))

    def _check_columns(self) -> None:
        names = self.all_columns()
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{type(self).__name__}.columns: there is a column '{min(twice)}' already")
        unknown = set(self.shown.values()) - set(names)
        if unknown:
            raise ValueError(f"{type(self).__name__}.shown: there is no column '{min(unknown)}'")

    @classmethod
    def all_columns(cls) -> tuple[str, ...]:
        return (*COMMON_COLUMNS, *cls.columns)

    @property
    def updates_per_iteration(self) -> int:
        """Steps of an optimiser, where their number is what a user would compare; 0 elsewhere."""
        return 0

    def warning(self, row: Mapping[str, float]) -> str | None:
        """What a user should know about this row of the metrics while it trains."""
        return None

    def run_again(self, noise: Tensor) -> Trace:
        """Run a window with this noise from where the environment's windows begin, and leave no trace of it.

        Only learners with a bad_window are asked for it.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no windows")

    def forget(self) -> None:
        """Drop what one phase left for the next ones, and with it what autograd remembers."""

    @contextlib.contextmanager
    def seeded(self) -> Iterator[None]:
        """Inside, new networks get weights that depend on the seed alone."""
        with torch.random.fork_rng(devices=[]), one_torch_thread():
            torch.default_generator.manual_seed(self.seed)
            yield

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """A copy of everything, on the CPU: with it a run goes on bit for bit, whatever happens here meanwhile.

        With ranks, of all of them: each is to ask for it at the same time.
        """
        if self.ranks is not None:
            self.ranks.ask_for_state()
        state = {name: _copied(value) for name, value in super().state_dict(*args, **kwargs).items()}
        return state if self.ranks is None else joined(state, self.ranks)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Go on from what state_dict() gave, here or on another number of ranks."""
        own = state_dict if self.ranks is None else own_part(state_dict, self.ranks)
        return super().load_state_dict(own, *args, **kwargs)

    def get_extra_state(self) -> dict[str, Any] | list[dict[str, Any]]:
        """What state_dict() holds besides tensors of this module: the worlds, and where random numbers stand.

        With members, a list of what each has.
        """
        if isinstance(self.env, MemberEnv):
            return [
                {"env": self.env.member_state(member), "generator": generator.get_state()}
                for member, generator in enumerate(self.generators)
            ]
        return {"env": self.env.get_state(), "generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """The way back, for load_state_dict()."""
        if isinstance(state, list):
            self.env.set_state({"members": [own["env"] for own in state]})
        else:
            self.env.set_state(state["env"])
        for generator, own in zip(self.generators, state if isinstance(state, list) else [state], strict=True):
            generator.set_state(own["generator"].cpu())

    def member_states(self) -> list[dict[str, Any]]:
        """What state_dict() of each member alone would give; a single one where there are no members."""
        return self.of_members(self.state_dict())

    def of_members(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """A part of the state, cut into what the members alone would have; a single one where there are no members."""
        return [state] if self.members is None else [member_of(state, member) for member in range(self.members)]

    def load_member(self, member: int, saved: Mapping[str, Any]) -> None:
        """Let a member go on from what a learner of it alone, or member_states(), saved; the others stay."""
        own = {**dict(self.named_parameters()), **dict(self.named_buffers(remove_duplicate=False))}
        put_member(own, member, saved)
        assert isinstance(self.env, MemberEnv)
        self.env.set_member_state(member, saved["_extra_state"]["env"])
        self.generators[member].set_state(saved["_extra_state"]["generator"].cpu())


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return {name: _copied(part) for name, part in value.items()} if isinstance(value, dict) else value


PAPER = "paper"
"""The preset of what an algorithm's authors chose, where the default is another."""


@dataclass(frozen=True)
class Algorithm:
    """All that trot knows of an algorithm. One line in trot.learn.algorithms makes it known by name."""

    name: str
    """As in the names of run folders."""
    label: str
    """As papers write it."""
    summary: str
    """One line for help texts."""
    settings: type[LearnerSettings]
    learner: Callable[[Env, Any, int], Learner]
    """Environment, settings and seed to a learner."""
    presets: Mapping[str, Callable[[str], LearnerSettings]]
    """Name to what gives the settings for a task by its name; the first is the default."""
    candidates: Mapping[str, int] = field(default_factory=dict)
    """By task: how many serve it best on a GPU, with the preset that it has there; one where nothing is said."""
    gpu_presets: Mapping[str, str] = field(default_factory=dict)
    """By task: the preset that serves it best on a GPU, where that is not the first."""

    def __post_init__(self) -> None:
        if not self.presets:
            raise ValueError(f"the algorithm '{self.name}' has no preset: give one, a function from a task to settings")

    @property
    def default_preset(self) -> str:
        return next(iter(self.presets))

    def preset_for(self, task: str, on_cuda: bool) -> str:
        """Unless one is named."""
        return self.gpu_presets.get(task, self.default_preset) if on_cuda else self.default_preset

    def paper_settings(self, task: str) -> Any:
        """What measurements are made with, so that they stay comparable: the preset `paper`, the default without."""
        return self.resolve(task, PAPER if PAPER in self.presets else None)

    def resolve(self, task: str, preset: str | None = None) -> Any:
        """The settings for a task, by default those of the first preset."""
        preset = preset or self.default_preset
        if preset not in self.presets:
            raise ValueError(f"preset must be one of {', '.join(self.presets)}, not '{preset}'")
        try:
            return self.presets[preset](task)
        except TypeError as error:
            raise ValueError(
                f"the preset '{preset}' of '{self.name}' gives no settings for '{task}': {error}"
            ) from None
