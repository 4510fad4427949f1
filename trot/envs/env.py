"""The environment: many worlds of one task, differentiable from action to reward and next observation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trot.envs.device import existing_device, require_room
from trot.envs.disturbances import Disturbances
from trot.envs.dry_run import dry_run
from trot.envs.fault import Fault, remembered_faults
from trot.envs.move import Move
from trot.envs.placed_worlds import placed_worlds
from trot.envs.randomize import Randomize
from trot.envs.saved_env import SavedEnv, upright
from trot.envs.situation import Situation, as_columns, joined, situation_of
from trot.envs.start_store import StartSource, StartStore
from trot.envs.step_end import Ending, StepEnd
from trot.envs.step_end_kernel import RECORDED
from trot.envs.task import Task, control_sees_state, require_new_names, require_sensible_times
from trot.envs.worlds import Worlds, require_columns, world_columns
from trot.sim.build import SCALARS, Variant
from trot.sim.guard import Guard, Guarded
from trot.sim.launch import launcher_for
from trot.sim.state import State
from trot.sim.step import Physics, guarded_step

Info = dict[str, Any]

LARGEST_SEED = 2**64 - 2**20
"""PyTorch's, less what is added for streams of random numbers beside the starts."""


class Env:
    """Worlds that step together and start anew by themselves when an episode ends.

    step() never asks the GPU for an answer and has no branch on data, so that windows of steps can be captured in a
    CUDA graph; docs/environments.md shows how.
    """

    members: int | None = None
    """How many learn here side by side, each in as many worlds, one member's after the other's; None: one alone."""

    def __init__(
        self,
        task: Task[Any],
        num_worlds: int,
        device: str | torch.device = "cpu",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        stochastic_start: bool = True,
        randomize: Randomize | None = None,
    ) -> None:
        if not isinstance(num_worlds, int) or num_worlds < 1:
            raise ValueError(f"num_worlds must be a whole number of at least 1, not {num_worlds!r}")
        if dtype not in SCALARS:
            raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
        require_new_names(task, type(task).__name__)
        require_sensible_times(task)
        self.task, self.num_worlds, self.dtype = task, num_worlds, dtype
        self.device = existing_device(device)
        self.stochastic_start, self.randomize = stochastic_start, randomize
        self.generator = self._seeded(seed)
        self._zero = torch.zeros((), dtype=dtype, device=self.device)
        nominal = task.start.draw(task.model, 1, None, self._zero)
        self._physics = self._make_physics(Guard(nominal.joint_q, self._zero))
        self._control_sees_state = control_sees_state(task)
        self._has_activation = task.model.num_acts > 0
        layout = dry_run(task, nominal, self._zero)
        self.observation_layout = layout.observation
        self._memory_widths, self._nominal_memory = layout.memory, layout.nominal_memory
        self._disturbances: Disturbances | None = None
        if randomize is not None and randomize.disturbs:
            self._disturbances = Disturbances(randomize, task, layout.observation, self._zero)
        self._columns = world_columns(
            task.model,
            self.num_observations,
            self.num_actions,
            self._memory_widths,
            self.physics_differ,
            self._disturbances,
            self._zero,
        )
        self._step_end = StepEnd(self._columns, task.episode_length, self._zero)
        require_room(num_worlds, sum(one.width * one.dtype.itemsize for one in self._columns.values()), self.device)
        source = StartSource(task, self._zero, stochastic_start, randomize, self._memory_widths, self._disturbances)
        self._store = StartStore(source, num_worlds, self.generator)
        self._saving = SavedEnv(task.model, self._columns, self._memory_widths, self.device)
        self._worlds: Worlds | None = None
        self._window_start: Worlds | None = None

    def _seeded(self, seed: int) -> torch.Generator:
        if not isinstance(seed, int) or not -(2**63) <= seed < LARGEST_SEED:
            raise ValueError(f"seed must be a whole number of at least -2^63 and below 2^64 - 2^20, not {seed!r}")
        return torch.Generator(self.device).manual_seed(seed)

    def _make_physics(self, guard: Guard) -> Physics:
        variant = Variant(self.dtype, per_world_parameters=self.physics_differ)
        run = launcher_for(self.task.model, variant, self._zero.device, self.num_worlds, self.task.substeps)
        return Physics(run, self.task.control_dt, self.task.substeps, guard)

    def __getstate__(self) -> dict[str, Any]:
        """All but the compiled kernels, for pickles and deep copies, cut off from gradients as get_state() is."""
        worlds, physics = self._worlds, self._physics
        kept = {**vars(self), "_worlds": None if worlds is None else worlds.detach()}
        return {**kept, "_physics": physics.guard}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._physics = self._make_physics(kept["_physics"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Env:
        # A model never changes, and its kernels are kept by it.
        memo[id(self.task.model)] = self.task.model
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def __repr__(self) -> str:
        worlds = f"{self.num_worlds} world{'s' if self.num_worlds > 1 else ''}"
        dtype = str(self.dtype).removeprefix("torch.")
        # Of a file's class, the name without the way to the file.
        task = self.task.name.rpartition(":")[2]
        return f"{type(self).__name__}({task}, {worlds}, {self.device}, {dtype})"

    @property
    def generators(self) -> list[torch.Generator]:
        """All that starts are drawn from."""
        return [self.generator]

    @property
    def physics_differ(self) -> bool:
        """Whether each world has masses, friction and strength of its own."""
        return self.randomize is not None and self.randomize.changes_physics

    @property
    def num_observations(self) -> int:
        return sum(columns.stop - columns.start for columns in self.observation_layout.values())

    @property
    def num_actions(self) -> int:
        return self.task.num_actions

    @property
    def episode_length(self) -> int:
        return self.task.episode_length

    @property
    def state(self) -> Situation:
        """The simulator's state of every world, and what its task remembers."""
        worlds = self.worlds
        return self._situation(worlds.joint_q, worlds.joint_qd, worlds.memory, worlds.activation)

    @property
    def worlds(self) -> Worlds:
        """All that the next step begins from. Assign to go on from somewhere else.

        What is assigned must have the fields of this environment's own; quaternions in it are scaled to length 1.
        """
        if self._worlds is None:
            raise RuntimeError("the environment has no state yet: call env.reset() first")
        return self._worlds

    @worlds.setter
    def worlds(self, worlds: Worlds) -> None:
        if not isinstance(worlds, Worlds):
            raise TypeError(f"worlds must be Worlds, as env.worlds gives them, not {type(worlds).__name__}")
        for name, tensor in worlds.tensors().items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"worlds.{name} must be a tensor, not {type(tensor).__name__}")
            if tensor.device != self._zero.device:
                raise ValueError(f"worlds.{name} is on {tensor.device}, the environment on {self._zero.device}")
        require_columns("the assigned", worlds.tensors(), self._columns, self.num_worlds)
        # Kernels read rows that lie one after the other.
        worlds = upright(self.task.model, worlds.map(Tensor.contiguous))
        self._store.draw_if_empty()
        self._worlds = worlds

    def reset(self, seed: int | None = None) -> tuple[Tensor, Info]:
        """Begin a new episode in every world; with a seed, from the first number of its stream."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self._store.draw()
        start = self._store.fresh(torch.ones(self.num_worlds, 1, dtype=torch.bool, device=self.device))
        rows = self.num_worlds
        activation = self._zero.new_zeros(rows, self.task.model.num_acts)
        kept = (start.joint_q, start.joint_qd, start.parameter, start.strength, activation, start.memory)
        record = sum(part.shape[1] for part in kept)
        worlds = Worlds(
            start.joint_q,
            start.joint_qd,
            start.observation,
            previous_action=self._zero.new_zeros(rows, self.num_actions),
            clock=torch.zeros(rows, 1, dtype=torch.int64, device=self.device),
            parameter=start.parameter,
            strength=start.strength,
            memory=start.memory,
            faults=torch.zeros(rows, 1, dtype=torch.int64, device=self.device),
            last_fault=self._zero.new_zeros(rows, record + self.num_actions),
            activation=activation,
            disturbance=start.disturbance,
            past_actions=self._zero.new_zeros(rows, self._columns["past_actions"].width),
        )
        self._settle(worlds)
        return start.observation, {}

    def stagger(self) -> None:
        """Spread the worlds evenly over the times of an episode, right after reset(): the first of them end early.

        From then on a window sees every part of an episode, also where none ends by a fall and all would begin at once.
        """
        number, count = self._places_in_line()
        self._settle(replace(self.worlds, clock=(number * self.episode_length // count).unsqueeze(1)))

    def _places_in_line(self) -> tuple[Tensor, int]:
        """The number of every world among those that one policy learns from, and how many these are."""
        return torch.arange(self.num_worlds, device=self.device), self.num_worlds

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Info]:
        """Act in every world: observation, reward, terminated, truncated, info.

        Worlds whose episode ended start anew at once; `observation` is then the new episode's first, and
        info["final_obs"] and info["final_state"] are the old one's last. Gradients flow through everything that came
        before, but not from a new episode into the old one. info["reward_terms"] holds the named terms, info["fault"]
        which worlds blew up in this step (reward 0, terminated, no gradient), info["faults"] how often each has so far,
        info["control"] what the task's control() made of the action.
        """
        move = self._advance(self._checked(action).clamp(-1, 1))
        names, terms = self._reward_terms(move.measured, move.action, move.sound, move.all_sound)
        info = {
            "final_obs": move.final_obs,
            "final_state": move.final_state,
            "reward_terms": dict(zip(names, terms.unbind(dim=1), strict=True)),
            "fault": ~move.sound.squeeze(1),
            "faults": self.worlds.faults.squeeze(1),
            "control": move.control,
        }
        return move.observation, terms.sum(dim=1), move.terminated, move.truncated, info

    def advance(self, action: Tensor, own: bool = False) -> Move:
        """All of step() but the reward, for actions that lie in [-1, 1]: they are not clamped.

        With `own` the action's tensor is the environment's from here on, and must not be filled with another one. The
        rewards of many moves come from rewards(), at the price of one.
        """
        # Moves and worlds keep the action, and the caller may fill the same tensor with the next one.
        return self._advance(self._checked(action) if own else self._checked(action).clone())

    def _advance(self, action: Tensor) -> Move:
        before, carried_out, past_actions = self._disturbed(self.worlds, action)
        control = self._control(before, carried_out)
        joint_q, joint_qd, next_activation, sound, all_sound, taken = self._simulate(before, control, action)
        assert taken is not None, "the guard gives back what it is given"
        activation = before.activation if next_activation is None else next_activation
        memory = before.memory
        if self._memory_widths and not all_sound:
            memory = torch.where(sound, memory, self._nominal_memory)

        judged = self._situation(joint_q, joint_qd, memory, activation)
        measured = self.task.measure(judged)
        final_state, final_obs, next_memory = self._look_ahead(judged, measured, taken, memory)
        left = Worlds(
            joint_q,
            joint_qd,
            final_obs,
            taken,
            before.clock,
            before.parameter,
            before.strength,
            next_memory,
            before.faults,
            before.last_fault,
            activation,
            before.disturbance,
            past_actions,
        )
        began = {name: getattr(before, name) for name in RECORDED if name != "action"}
        ending = Ending(left, {**began, "action": carried_out}, sound, all_sound, self.task.fallen(measured))
        ended = self._step_end(ending, self._store)
        self._worlds = ended.worlds
        return Move(
            self._worlds.observation,
            taken,
            control,
            sound,
            all_sound,
            memory,
            final_state,
            ended.observation,
            measured,
            ended.terminated.squeeze(1),
            ended.truncated.squeeze(1),
            ended.joint_q,
            ended.joint_qd,
        )

    def _disturbed(self, worlds: Worlds, action: Tensor) -> tuple[Worlds, Tensor, Tensor]:
        """What the step begins from, what is carried out in it, and the past actions for the next one."""
        if self._disturbances is None:
            return worlds, action, worlds.past_actions
        joint_qd = self._disturbances.pushed(worlds.joint_qd, worlds.clock, worlds.disturbance)
        carried_out, past = self._disturbances.delayed(action, worlds.past_actions, worlds.disturbance)
        return replace(worlds, joint_qd=joint_qd), carried_out, past

    def _shown(self, observation: dict[str, Tensor]) -> Tensor:
        """The parts of an observation side by side, with the noise that was asked for."""
        clean = joined(observation)
        return clean if self._disturbances is None else self._disturbances.noisy(clean, self.generators)

    def _simulate(self, before: Worlds, control: Tensor, action: Tensor) -> Guarded:
        """The next state, where the simulation held, and what was done there."""
        return guarded_step(
            self._physics,
            before.joint_q,
            before.joint_qd,
            control * before.strength if self.physics_differ else control,
            before.parameter if self.physics_differ else None,
            before.activation if self._has_activation else None,
            action,
        )

    def _control(self, before: Worlds, action: Tensor) -> Tensor:
        if self._control_sees_state:
            state = self._situation(before.joint_q, before.joint_qd, before.memory, before.activation)
            return self.task.control(action, self.task.measure(state))
        return self.task.control(action)

    def _look_ahead(
        self, judged: Situation, measured: Any, action: Tensor, memory: Tensor
    ) -> tuple[Situation, Tensor, Tensor]:  # fmt: skip
        """The situation that the next action is to answer, its observation, and its memory, part beside part."""
        changes = self.task.next_memory(measured, action) if self._memory_widths else {}
        if changes:
            memory_parts = {**judged.memory, **as_columns(changes)}
            judged = Situation(judged.joint_q, judged.joint_qd, memory_parts, activation=judged.activation)
            memory, measured = joined(judged.memory), self.task.measure(judged)
        return judged, self._shown(self.task.observation(measured, action)), memory

    def rewards(self, moves: Sequence[Move]) -> Tensor:
        """(steps, worlds) what step() would have paid for each of these moves."""
        joint_q, joint_qd = (torch.cat([getattr(move, f"judged_{name}") for move in moves]) for name in ("q", "qd"))
        memory = torch.cat([move.memory for move in moves]) if self._memory_widths else self._nominal_memory
        activation = self._zero
        if self._has_activation:
            activation = torch.cat([part for move in moves if (part := move.final_state.activation) is not None])
        state = self._situation(joint_q, joint_qd, memory, activation)
        action, sound = (torch.cat([getattr(move, name) for move in moves]) for name in ("action", "sound"))
        all_sound = all(move.all_sound for move in moves)
        _, terms = self._reward_terms(self.task.measure(state), action, sound, all_sound)
        return terms.sum(dim=1).view(len(moves), self.num_worlds)

    def _reward_terms(
        self, measured: Any, action: Tensor, sound: Tensor, all_sound: bool
    ) -> tuple[list[str], Tensor]:  # fmt: skip
        """Names, and a column each; zeros where a world blew up."""
        terms = self.task.reward_terms(measured, action)
        values = joined(terms)
        return list(terms), values if all_sound else torch.where(sound, values, self._zero)

    def end_episodes(self) -> Tensor:
        """Begin a new episode wherever one is under way, as if its time were up. Returns the observation, cut off."""
        worlds = self.worlds.detach()
        self._worlds = self._step_end.begin(self._step_end.under_way(worlds), worlds, self._store)
        return self._worlds.observation

    def begin_window(self) -> Tensor:
        """Go on from where end_window() left the worlds, cut off from all before. Returns the observation.

        Until the next end_window() every window begins there again, also one that was captured in a CUDA graph.
        """
        self._worlds = self.window_start
        return self.detach()

    def end_window(self) -> None:
        """The next window begins where the worlds are now."""
        if self._window_start is None:
            self._window_start = self.worlds.clone()
        else:
            self._window_start.copy_(self.worlds)
        self._worlds = self._window_start

    @property
    def window_start(self) -> Worlds:
        """Where windows begin: tensors that stay where they are in memory, and only change their numbers."""
        if self._window_start is None:
            raise RuntimeError("no window can begin yet: call env.reset() and env.end_window() first")
        return self._window_start

    def _settle(self, worlds: Worlds) -> None:
        """Go on from here, windows included."""
        self._worlds = worlds
        if self._window_start is not None:
            self._window_start.copy_(worlds)

    def detach(self) -> Tensor:
        """Begin a new window: what follows has no gradient to what came before. Returns the observation, cut off.

        Inside a CUDA graph's capture this comes first, so that every replay draws starts of its own.
        """
        self._worlds = self.worlds.detach()
        if self.device.type == "cuda":
            self._store.draw()
        return self._worlds.observation

    def place(self, state: State, previous_action: Tensor | None = None) -> Tensor:
        """Put every world into this state, clocks as they are; gradients flow to it. Returns the observation.

        A Situation brings its memory along; parts of it that are left out stay as they are, and so do an activation and
        actions that are still to be carried out.
        Quaternions are scaled to length 1.
        """
        worlds, remembered = self.worlds, self.state.memory
        situation, placed = placed_worlds(self.task.model, worlds, remembered, state, previous_action)
        observation = self._shown(self.task.observation(self.task.measure(situation), placed.previous_action))
        self._worlds = replace(placed, observation=observation)
        return observation

    def get_state(self) -> dict[str, Any]:
        """A copy of everything, for set_state(): tensors and a number, safe to save with torch.save()."""
        worlds = self.worlds
        assert self._store.starts is not None
        return self._saving.write(worlds, self._store.starts, self._store.used, self.generator)

    def set_state(self, saved: dict[str, Any]) -> Tensor:
        """Go on exactly where get_state() was called. Returns the observation."""
        worlds, starts = self._saving.read(saved, self.num_worlds)
        # What can still fail comes before the first change.
        self.generator.set_state(saved["generator"].cpu())
        self._settle(worlds)
        self._store.go_on(starts, saved["used"])
        return worlds.observation

    def saved_worlds(self, tensors: dict[str, Any]) -> Worlds:
        """A copy of what Worlds.tensors() gave, on this device. Raises ValueError where it does not fit in here."""
        return self._saving.read_worlds(tensors, self.num_worlds)

    def last_faults(self) -> list[Fault]:
        """For every world that ever blew up: the good state it last did so from, and the action. Waits for the GPU."""
        return remembered_faults(self.task.name, self.worlds, self._memory_widths)

    def _checked(self, action: Tensor) -> Tensor:
        if not isinstance(action, Tensor):
            raise TypeError(f"action must be a tensor, not {type(action).__name__}")
        expected = (self.num_worlds, self.num_actions)
        if tuple(action.shape) != expected:
            raise ValueError(f"action must be {expected}, one row per world, not {tuple(action.shape)}")
        if action.dtype != self.dtype or action.device != self._zero.device:
            raise ValueError(
                f"action is {action.dtype} on {action.device}, the environment {self.dtype} on {self._zero.device}; "
                "convert it with .to(...)"
            )
        return action

    def _situation(self, joint_q: Tensor, joint_qd: Tensor, memory: Tensor, activation: Tensor) -> Situation:
        of_muscles = activation if self._has_activation else None
        return situation_of(joint_q, joint_qd, memory, of_muscles, self._memory_widths)
