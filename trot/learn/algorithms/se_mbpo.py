"""MBPO with sample enhancement (Qiao et al. 2021): each real step brings neighbours that its gradient tells of.

To first order, a slightly other action, from a slightly other state, leads to

    reward + gradient * change        next observation + Jacobian * change

and such steps go into the memory beside the real one, which alone counts as a sample. `released` does what the authors'
program does: only actions change, and of the Jacobian one random row is taken for all of them. `full` changes states
too and takes every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.move import Move
from trot.envs.situation import Situation, joined
from trot.learn.algorithms import mbpo
from trot.learn.algorithms.mbpo import Mbpo, MbpoSettings
from trot.learn.algorithms.sac import Batch
from trot.learn.learner import Algorithm
from trot.sim.manifold import retract


@dataclass(frozen=True)
class SeMbpoSettings(MbpoSettings):
    """As MBPO's, and where the neighbours of a step lie."""

    neighbours: Literal["released", "full"] = "released"
    """released: other actions, and one random row of the Jacobian for all; full: other states too, and every row."""
    num_neighbours: int = 9
    """Of each real step."""
    reach: float = 0.01
    """How far an action, and a coordinate of a state (m, rad, m/s, rad/s), changes at most."""
    steepest: float = 10.0
    """Slopes are cut at this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_neighbours < 0:
            raise ValueError(f"num_neighbours must be 0 or more, not {self.num_neighbours}")
        for name in ("reach", "steepest"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.neighbours not in ("released", "full"):
            raise ValueError(f"neighbours must be released or full, not '{self.neighbours}'")
        if self.memory < (rows := self.num_worlds * (1 + self.num_neighbours)):
            raise ValueError(f"memory {self.memory} holds not even one step of all worlds and its neighbours, {rows}")


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a step began from, and what would have changed it."""

    here: Situation
    previous_action: Tensor
    slopes: Tensor
    """(worlds, 1 + observations, coordinates): of the reward, then of the next observation; by the coordinates of a
    state that change, then by the actions."""


class SeMbpo(Mbpo):
    """MBPO whose memory holds the neighbours of real steps too."""

    columns = (*Mbpo.columns, "left_out", "slopes_cut")
    settings: SeMbpoSettings

    def __init__(self, env: Env, settings: SeMbpoSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        self.state_width = 2 * env.task.model.num_dofs if settings.neighbours == "full" else 0
        """Coordinates of a state that change: the tangent of joint_q, then joint_qd."""

    def advance(self, action: Tensor) -> Move:
        """A step of all worlds, and how its reward and next observation change with state and action."""
        env = self.env
        here, previous_action = env.state, env.worlds.previous_action
        change = action.new_zeros(env.num_worlds, self.state_width + env.num_actions).requires_grad_()
        with torch.enable_grad():
            of_state, of_action = change.split_with_sizes([self.state_width, env.num_actions], dim=1)
            if self.state_width:
                env.place(moved(env, here, of_state), previous_action)
            move = env.advance(action + of_action)
            outputs = torch.cat([env.rewards([move])[0].unsqueeze(1), move.final_obs], dim=1)
            slopes = self.slopes(outputs, change)
        env.worlds = env.worlds.detach()
        self.around = Surroundings(here, previous_action, slopes)
        return replace(move, observation=move.observation.detach(), final_obs=move.final_obs.detach())

    def slopes(self, outputs: Tensor, change: Tensor) -> Tensor:
        """Jacobian of the outputs, (worlds, outputs, coordinates), by as many backward passes as its variant takes."""

        def row(column: Tensor) -> Tensor:
            return torch.autograd.grad(column.sum(), change, retain_graph=True)[0]

        if self.settings.neighbours == "full":
            return torch.stack([row(column) for column in outputs.unbind(dim=1)], dim=1)
        reward, seen = outputs[:, 0], outputs[:, 1:]
        count = seen.shape[1]
        lot = torch.randint(count, (len(seen), 1), generator=self.generator, device=self.device)
        # One row stands for all: on average over the lots, times their number, it is the whole Jacobian.
        of_lot = count * row(seen.gather(1, lot))
        slopes = change.new_zeros(*outputs.shape, change.shape[1])
        slopes[:, 0] = row(reward)
        return slopes.scatter(1, (1 + lot).unsqueeze(2).expand(-1, -1, change.shape[1]), of_lot.unsqueeze(1))

    def rows(self, action: Tensor, move: Move, reward: Tensor) -> Batch:
        """What is remembered of a step, its neighbours behind it."""
        rows, count, slopes = super().rows(action, move, reward), self.settings.num_neighbours, self.around.slopes
        usable = slopes.isfinite().all(dim=(1, 2)) & move.sound.squeeze(1)
        self.left_out.append((~usable).sum() * count)
        self.slopes_cut.append((slopes.abs() > self.settings.steepest).to(reward.dtype).mean())
        near = self.neighbours(rows)
        # Shapes do not depend on data: in place of what cannot be used comes the step itself once more.
        keep = usable.repeat_interleave(count)
        for name, real in rows.items():
            same = real.repeat_interleave(count, dim=0)
            chosen = torch.where(keep if real.dim() == 1 else keep.unsqueeze(1), near[name], same)
            rows[name] = torch.cat([real, chosen])
        return rows

    def neighbours(self, rows: Batch) -> Batch:
        """Steps from nearby, those of one world after those of another."""
        steepest = self.settings.steepest
        slopes = self.around.slopes.clamp(-steepest, steepest)
        count, reach = self.settings.num_neighbours, self.settings.reach
        same = {name: part.repeat_interleave(count, dim=0) for name, part in rows.items()}
        shape = (len(same["reward"]), slopes.shape[2])
        chance = torch.rand(shape, generator=self.generator, dtype=slopes.dtype, device=self.device)
        of_state, of_action = (reach * (2 * chance - 1)).split_with_sizes(
            [self.state_width, self.env.num_actions], dim=1
        )
        action = (same["action"] + of_action).clamp(-1, 1)
        change = torch.cat([of_state, action - same["action"]], dim=1)
        following = torch.einsum("woc,wnc->wno", slopes, change.view(len(slopes), count, -1)).flatten(0, 1)
        near = {
            **same,
            "action": action,
            "reward": same["reward"] + following[:, 0],
            "next_observation": same["next_observation"] + following[:, 1:],
        }
        if self.state_width:
            near["observation"] = observed(self.env, self.around, of_state, count)
        return near

    def begin(self) -> None:
        super().begin()
        self.left_out: list[Tensor] = []
        self.slopes_cut: list[Tensor] = []

    def finish(self, columns: dict[str, Tensor]) -> None:
        ours = {"left_out": torch.stack(self.left_out).sum(), "slopes_cut": torch.stack(self.slopes_cut).mean()}
        super().finish(columns | ours)

    def warning(self, row: Mapping[str, float]) -> str | None:
        if row["left_out"]:
            return f"{row['left_out']:.0f} neighbours of the last steps had no finite gradient, and were left out"
        return super().warning(row)


def moved(env: Env, state: Situation, change: Tensor) -> Situation:
    """A state moved by a tangent of joint_q and a change of joint_qd, side by side."""
    of_q, of_qd = change.chunk(2, dim=1)
    joint_q = retract(env.task.model, state.joint_q, of_q)
    return Situation(joint_q, state.joint_qd + of_qd, state.memory, activation=state.activation)


def observed(env: Env, around: Surroundings, change: Tensor, count: int) -> Tensor:
    """What is seen in states that lie around those, `count` each."""
    state = around.here

    def repeated(part: Tensor) -> Tensor:
        return part.repeat_interleave(count, dim=0)

    memory = {name: repeated(part) for name, part in state.memory.items()}
    activation = None if state.activation is None else repeated(state.activation)
    here = Situation(repeated(state.joint_q), repeated(state.joint_qd), memory, activation=activation)
    near = moved(env, here, change)
    return joined(env.task.observation(env.task.measure(near), repeated(around.previous_action)))


def enhanced(settings: MbpoSettings, **changes: Any) -> SeMbpoSettings:
    """MBPO's settings, and the neighbours' defaults."""
    return SeMbpoSettings(**vars(settings), **changes)


SE_MBPO = Algorithm(
    name="se-mbpo",
    label="SE-MBPO",
    summary="MBPO whose real steps bring neighbours along, by the simulation's gradient",
    settings=SeMbpoSettings,
    learner=SeMbpo,
    presets={"tuned": lambda task: enhanced(mbpo.tuned(task)), "paper": lambda task: enhanced(mbpo.paper(task))},
)
