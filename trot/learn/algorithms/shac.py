"""Short-Horizon Actor-Critic: a policy learns from gradients through short windows of simulation.

One iteration, top to bottom in this file:

    rollout         h steps in every world from where the last window ended, with gradients through physics, observation
                    and policy; the target critic values what lies beyond the window
    improve_policy  one backward pass, clip, one step of Adam
    fit_critic      TD(lambda) targets from the window's rewards; some passes of mini-batches
    finish          normaliser, target critic, one row of metrics

Without the critic, and with long windows, it is back-propagation through time (bptt.py). No part asks the device for an
answer, so that on CUDA each is captured in a graph once and then replayed.

In an environment with members, as many policies learn side by side, each what it would learn alone. What is said of
steps and worlds below is then of each member's, behind a leading axis of members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.move import Move
from trot.learn.algorithms.shac_settings import CANDIDATES, GPU_PRESETS, PRESETS, ShacSettings
from trot.learn.bad_window import BadWindow, Trace
from trot.learn.critic_fit import CriticFit
from trot.learn.critic_fit_cuda import CudaCriticFit
from trot.learn.gradient_health import STEEP, WORLD_COLUMNS
from trot.learn.learner import Algorithm, Learner, Phase
from trot.learn.member_settings import Numbers, put_numbers, require_own
from trot.learn.members import cosine, in_rows, side_by_side, weights_of
from trot.learn.networks import Critic, Critics, Policy, move_weights_towards
from trot.learn.optimizer import Adam, MemberAdam, clip_, clip_members_
from trot.learn.returns import policy_loss, td_lambda
from trot.learn.saturation import SATURATION_COLUMNS, saturation
from trot.learn.shared_network import SharedNetwork
from trot.learn.shared_rows import Work, mean_over_rows, sum_over_rows
from trot.learn.short_window import Adjoints, Window
from trot.learn.stand_in import Act, StandIn, act_by_one_kernel, stand_in
from trot.sim.state import State
from trot.unpromised import foreach_copy_

RATES = ("actor_lr", "actor_lr_change", "critic_lr", "critic_lr_change")


def _numbers(settings: ShacSettings) -> dict[str, float]:
    """What an iteration computes with of those settings that members may have each of their own."""
    return {
        "gamma": settings.gamma,
        "td_lambda": settings.td_lambda,
        "max_grad_norm": settings.max_grad_norm,
        "target_step": 1 - settings.target_keep,
        "actor_lr": settings.actor_lr,
        "actor_lr_change": settings.final_lr - settings.actor_lr,
        "critic_lr": settings.critic_lr,
        "critic_lr_change": settings.final_lr - settings.critic_lr,
    }


class Shac(Learner):
    """Policy, value functions and the worlds they learn in."""

    columns: ClassVar[tuple[str, ...]] = (
        "policy_loss",
        "value_loss",
        "gradient_norm",
        "adjoint_first",
        "adjoint_median",
        "adjoint_last",
        "steep_worlds",
        *WORLD_COLUMNS,
        *SATURATION_COLUMNS,
    )
    shown = {"value loss": "value_loss", "gradient": "gradient_norm"}  # noqa: RUF012
    takes_members = True
    takes_ranks = True
    own_settings = ("gamma", "actor_lr", "critic_lr", "final_lr", "max_grad_norm", "td_lambda", "target_keep")
    bad_window: BadWindow

    def __init__(self, env: Env, settings: ShacSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        if settings.staggered:
            env.stagger()
        self.settings = settings
        self._numbers: Numbers = {**_numbers(settings)}
        with self.seeded():
            self.make_agent(settings.agent(env))
            self.critic, self.target_critic = (self.make_critic().to(self.device, env.dtype) for _ in range(2))
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.target_critic.requires_grad_(False)
        self._policy_parameters: list[Tensor] = list(self.policy.parameters())
        self._critic_parameters: list[Tensor] = list(self.critic.parameters())
        self._critic_weights, self._target_weights = (
            weights_of(network, self.members) for network in (self.critic, self.target_critic)
        )
        self._critic_before = [weight.detach().clone() for weight in self._critic_weights]
        self.policy_optimizer = self._adam(weights_of(self.policy, self.members), self._policy_parameters)
        self.critic_optimizer = self._adam(self._critic_weights, self._critic_parameters)
        self.bad_window = BadWindow(env, settings.horizon)
        self.native_fit = self._native_fit()
        self.frozen_policy, self.frozen_target = self._frozen_networks()

    def _native_fit(self) -> CriticFit | CudaCriticFit | None:
        """What fits the critic in place of PyTorch's operations; None where these do it."""
        if type(self).critic_loss is not Shac.critic_loss or not isinstance(self.critic, Critic):
            return None
        return self._fit_by_kernels(self.critic)

    def _fit_by_kernels(self, critic: Critic) -> CriticFit | CudaCriticFit | None:
        network, optimizer = critic.network, self.critic_optimizer
        if self.device.type == "cpu":
            return CriticFit.of(network, optimizer, self.ranks)
        if self.ranks is not None:
            return None
        batch_rows = self.settings.horizon * self.num_worlds // self.settings.critic_batches
        return CudaCriticFit.of(network, optimizer, batch_rows)

    def _frozen_networks(self) -> tuple[StandIn | None, StandIn | None]:
        """What takes the policy's and the target critic's place in a rollout; None where PyTorch's operations do it."""
        rows, target = self.env.num_worlds // (self.members or 1), self.target_critic
        values = stand_in(target.network, self.settings.horizon * rows) if type(target) is Critic else None
        return stand_in(self.policy.network, rows if self.policy.mirror is None else 2 * rows), values

    def make_critic(self) -> Critic | Critics:
        return Critic(self.env.num_observations, self.settings.critic_hidden, members=self.members)

    def _adam(self, weights: list[Tensor], parameters: list[Tensor]) -> Adam | MemberAdam:
        betas = self.settings.adam_betas
        return Adam(parameters, betas) if self.members is None else MemberAdam(weights[0], parameters, betas)

    def set_member_settings(self, settings: Sequence[ShacSettings]) -> None:
        require_own(settings, self.settings, self.own_settings, self.members)
        # Rates are in the optimiser's precision, the others in that of the rewards.
        rate, other = self.policy_optimizer.rate, self.episodes.mean_return
        like = {name: rate if name in RATES else other for name in self._numbers}
        put_numbers(self._numbers, [_numbers(one) for one in settings], like)

    @property
    def policy(self) -> Policy:
        return self.agent.policy

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("rollout", self.rollout),
            Phase("backward", self.improve_policy),
            Phase("critic", self.fit_critic, beside_last=self._critic_beside()),
            Phase("other", self.finish),
        )

    def _critic_beside(self) -> bool:
        """Whether the critic learns beside the backward pass."""
        if self.ranks is not None:
            # Two streams, or threads, would send messages between ranks in an order that is not the same on all.
            return False
        # On the CPU, Python's threads would only wait for each other; a kernel runs beside them.
        return self.device.type == "cuda" or self.native_fit is not None

    def rollout(self, noise: Tensor | None = None) -> None:
        """Act through a window, and work out what the policy is to minimise. Noise is drawn unless it is given."""
        env, settings = self.env, self.settings
        # Gradients run along states, observations and actions. The weights join in policy_gradient().
        self.policy.requires_grad_(False)
        observation = env.begin_window().requires_grad_()
        self.noise = noise = self._draw_noise() if noise is None else noise
        shift, scale = self.agent.normalization(env.dtype)
        answers, seen, moves = [], [observation], []
        if self.frozen_policy is not None:
            self.frozen_policy.refresh()
        act = self._act_by_one_kernel(shift, scale)
        with self.policy.standing_in(self.frozen_policy):
            for sample in noise.unbind(dim=-3):
                rows = self.split(observation)
                answer = self.answer((rows - shift) * scale, sample) if act is None else act(rows, sample)
                answers.append(answer.view(env.num_worlds, -1))
                moves.append(self.advance(answers[-1]))
                observation = moves[-1].observation
                seen.append(observation)
        states: list[State] = [move.final_state for move in moves]
        # Rewards, and values too, of all steps at once: many times fewer operations than step by step.
        reward, fell = self.by_member(env.rewards(moves)), self._over_steps([move.terminated for move in moves])
        truncated = self._over_steps([move.truncated for move in moves])
        done = fell | truncated
        next_value = cautious_value = torch.zeros_like(reward)
        if settings.critic:
            last = (self.split(torch.stack([move.final_obs for move in moves]), dim=1) - shift) * scale
            trusted, cautious = self.values(self.members_first(last))
            next_value = cautious_value = torch.where(fell, 0.0, trusted)
            if cautious is not trusted:
                cautious_value = torch.where(fell, 0.0, cautious)
        paid = self.paid(reward, answers)
        loss = self.window_loss(paid, next_value, done, moves)
        inputs = (self.split(torch.stack(seen[:-1]).detach(), dim=1) - shift) * scale
        joined, actions = self.members_first(inputs).contiguous(), [self.action_of(answer) for answer in answers]
        self.window = Window(
            joined, answers, actions, seen, states, reward, paid, next_value, cautious_value, done, truncated, loss
        )  # fmt: skip

    def _act_by_one_kernel(self, shift: Tensor, scale: Tensor) -> Act | None:
        if self.frozen_policy is None or type(self).answer is not Shac.answer:
            return None
        return act_by_one_kernel(self.policy, self.frozen_policy, shift, scale)

    # What relatives of SHAC do in another way.

    def answer(self, inputs: Tensor, noise: Tensor) -> Tensor:
        """What the loss takes from the policy in a step: its action, and numbers behind it where a relative has some.

        The gradient by it is cached, and all that weights do goes through it.
        """
        action: Tensor = self.policy(inputs, noise)
        return action

    def action_of(self, answer: Tensor) -> Tensor:
        return answer

    def advance(self, answer: Tensor) -> Move:
        """A step of all worlds."""
        return self.env.advance(self.action_of(answer), own=True)

    def values(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """By the target critic: what the policy trusts, and what the critic's own targets are built on."""
        if self.frozen_target is None:
            value = in_rows(self.target_critic, self.members, inputs)
        else:
            self.frozen_target.refresh()
            value = in_rows(self.frozen_target, self.members, inputs).squeeze(-1)
        return value, value

    def paid(self, reward: Tensor, answers: list[Tensor]) -> Tensor:
        """What is learned from."""
        return reward

    def window_loss(self, paid: Tensor, next_value: Tensor, done: Tensor, moves: list[Move]) -> Tensor:
        """What the policy is to minimise."""
        return policy_loss(paid, next_value, done, self._numbers["gamma"])

    def more_columns(self) -> dict[str, Tensor]:
        """Of the metrics, behind SHAC's."""
        return {}

    # And what they share.

    def _draw_noise(self) -> Tensor:
        *_, horizon, each, num_actions = self.bad_window.noise.shape
        num_worlds = self.num_worlds
        drawn = [
            torch.randn(
                (horizon, num_worlds, num_actions), generator=generator, dtype=self.env.dtype, device=self.device
            )
            for generator in self.generators
        ]
        if self.ranks is not None:
            # All ranks draw for all worlds, so that each has the noise that it would have in a single process.
            return drawn[0][:, self.ranks.rows(each)]
        return drawn[0] if self.members is None else torch.stack(drawn)

    def _over_steps(self, of_each: list[Tensor]) -> Tensor:
        return self.by_member(torch.stack(of_each))

    def policy_gradient(self) -> list[Tensor]:
        """Differentiate the loss: by the actions through the window, and by the weights through the actions.

        A weight acts through the actions alone, so its gradient is a sum over steps. One pass over all of them at once
        takes far fewer operations than adding it up step by step.
        """
        self.adjoints = Adjoints.of(self.window)
        return self._by_weights(self.answer, self._without_steep_worlds(self.by_member(self.adjoints.answers)))

    def _without_steep_worlds(self, by_answers: Tensor) -> Tensor:
        """The loss's gradient by the answers, scaled down in worlds where it is far above the others'."""
        norm = torch.linalg.vector_norm(by_answers, dim=(-3, -1), keepdim=True)
        everyone = self._of_all_ranks(norm)
        if self.settings.clip_worlds:
            largest = self.settings.clip_worlds * everyone.median(dim=-2, keepdim=True).values
            by_answers = by_answers * torch.where(norm > largest, largest / norm, 1.0)
            everyone = torch.where(everyone > largest, largest, everyone)
        tiny = torch.finfo(norm.dtype).tiny
        self.largest_world = everyone.amax(dim=(-3, -2, -1)) / everyone.sum(dim=(-3, -2, -1)).clamp(min=tiny)
        return by_answers

    def _of_all_ranks(self, worlds: Tensor) -> Tensor:
        """(1, worlds, 1) of this rank's worlds to that of all ranks'; as it is where there are no ranks."""
        if self.ranks is None:
            return worlds
        everyone = worlds.new_zeros(1, self.num_worlds, 1)
        everyone[:, self.ranks.rows(worlds.shape[-2])] = worlds
        (everyone,) = self.ranks.sum([everyone])
        return everyone

    def _by_weights(self, function: Callable[[Tensor, Tensor], Tensor], by_output: Tensor) -> list[Tensor]:
        """From the loss's gradient by what `function` makes of all inputs and their noise, that by the weights."""
        self.policy.requires_grad_(True)

        def by_weights(inputs: Tensor, noise: Tensor, by_output: Tensor) -> list[Tensor]:
            output = in_rows(function, self.members, inputs, noise)
            return self._gathered(torch.autograd.grad(output, self._policy_parameters, by_output))

        gradients = self._over_window(by_weights, self.noise, by_output)
        self.half_cosine = torch.zeros_like(self.episodes.mean_return)
        if self.settings.compare_halves:
            half = self._over_window(by_weights, self.noise, by_output, num_worlds=by_output.shape[-2] // 2)
            rest = [whole - part for whole, part in zip(gradients, half, strict=True)]
            self.half_cosine = cosine(half, rest, self.members)
        return gradients

    def _over_window(self, work: Work, *beside: Tensor, num_worlds: int | None = None) -> list[Tensor]:
        """What `work` sums up over all inputs of the policy and what lies beside them, or over those of some worlds."""
        window = [part[..., :num_worlds, :] for part in (self.window.inputs, *beside)]
        if isinstance(self.frozen_policy, SharedNetwork):
            # It shares the rows itself.
            with self.policy.standing_in(self.frozen_policy):
                return self.mean_over_ranks(work(*window))
        widths = self._widths_to_share(self.settings.actor_hidden)
        return self.mean_over_ranks(sum_over_rows(work, *window, widths=widths))

    def distribution(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's means and logarithms of deviations before the tanh, for inputs with any number of axes."""

        def both(rows: Tensor) -> Tensor:
            mean, log_std = self.policy.distribution(rows)
            assert log_std is not None
            return torch.cat([mean, log_std.expand_as(mean)], dim=-1)

        mean, log_std = in_rows(both, self.members, inputs).chunk(2, dim=-1)
        return mean, log_std

    def by_samples(self) -> Tensor:
        """The loss's gradient by the samples that tanh makes actions of."""
        self.adjoints = Adjoints.of(self.window)
        by_actions = self._without_steep_worlds(self.by_member(self.adjoints.answers))
        return by_actions * (1 - self._over_steps(self.window.actions).detach().square())

    def _gathered(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """One for each parameter; with members a single one, (members, weights of each)."""
        return list(gradients) if self.members is None else [side_by_side(gradients)]

    def _widths_to_share(self, hidden: tuple[int, ...]) -> tuple[int, ...]:
        """Of layers whose rows CPU threads share: blocks of rows would cut through the members."""
        return hidden if self.members is None else ()

    def _clip(self, gradients: list[Tensor]) -> Tensor:
        largest = self._numbers["max_grad_norm"]
        return clip_members_(gradients[0], largest) if self.members is not None else clip_(gradients, float(largest))

    def improve_policy(self) -> None:
        """Follow the gradient of the window's return."""
        self.gradient_norm = self._follow(self.policy_gradient())

    def _follow(self, gradients: list[Tensor]) -> Tensor:
        """A step of the policy, unless learning has stopped or stops here. Returns the gradient's norm."""
        norm = self._clip(gradients)
        # A gradient that is not finite stops the run: the policy keeps its weights, and in finish() the critic does.
        first_bad = ~norm.isfinite() & ~self.stopped
        self.stopped |= first_bad
        self.bad_window.remember(first_bad, self.noise, self.env.window_start)
        self.policy_optimizer.rate.copy_(torch.where(self.stopped, 0.0, self._learning_rate("actor")))
        stopped = self.stopped.unsqueeze(-1)
        self.policy_optimizer.step([gradient.masked_fill_(stopped, 0.0) for gradient in gradients])
        return norm

    def fit_critic(self) -> None:
        """Regress the value function on targets that the window's rewards and the target critic give.

        Nothing here depends on improve_policy() or the other way round.
        """
        settings, numbers, window = self.settings, self._numbers, self.window
        self.value_loss = torch.zeros_like(self.episodes.mean_return)
        if not settings.critic:
            return
        with torch.no_grad():
            gamma, lam = numbers["gamma"], numbers["td_lambda"]
            targets = td_lambda(window.paid, window.cautious_value, window.done, gamma, lam)
            foreach_copy_(self._critic_before, self._critic_weights)
        self.critic_optimizer.rate.copy_(self._learning_rate("critic"))
        count = settings.critic_batches
        if self.native_fit is not None:
            largest = numbers["max_grad_norm"]
            self.value_loss = self.native_fit(window.inputs, targets, count, settings.critic_passes, largest)
            return
        batches = list(zip(window.inputs.chunk(count, dim=-3), targets.chunk(count, dim=-2), strict=True))
        for last in [False] * (settings.critic_passes - 1) + [True]:
            losses = [self._critic_step(inputs, target) for inputs, target in batches]
            if last:
                self.value_loss = torch.stack(losses).mean(dim=0)

    def _critic_step(self, inputs: Tensor, target: Tensor) -> Tensor:
        def loss_and_gradient(inputs: Tensor, target: Tensor) -> list[Tensor]:
            loss = self.critic_loss(inputs, target)
            gradients = torch.autograd.grad(loss, self._critic_parameters, torch.ones_like(loss))
            return [loss.detach(), *self._gathered(gradients)]

        widths = self._widths_to_share(self.settings.critic_hidden)
        found = mean_over_rows(loss_and_gradient, inputs, target, widths=widths)
        loss, *gradients = self.mean_over_ranks(found)
        self._clip(gradients)
        self.critic_optimizer.step(gradients)
        return loss

    def critic_loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self._error(in_rows(self.critic, self.members, inputs), target)

    def _error(self, value: Tensor, target: Tensor) -> Tensor:
        """The mean squared one, or each member's."""
        if self.members is None:
            return torch.nn.functional.mse_loss(value, target)
        return torch.nn.functional.mse_loss(value, target, reduction="none").mean(dim=(-2, -1))

    @torch.no_grad()
    def finish(self) -> None:
        """Learn what observations look like, move the target critic, and write down how it went."""
        window = self.window
        self.agent.normalizer.update(self._over_steps(window.seen), self.ranks)
        if self.settings.critic:
            for before, after in zip(self._critic_before, self._critic_weights, strict=True):
                after.copy_(torch.where(self.stopped.unsqueeze(-1), before, after))
            self._move_target()
        adjoint = self.adjoint_norms()
        steep = (adjoint > STEEP).any(dim=-2).to(adjoint.dtype).mean(dim=-1)
        shares = saturation(self.by_member(torch.stack(window.actions)))
        means = [adjoint.mean(dim=-1), steep, window.loss, *shares.values()]
        steps, steep, loss, *of_actions = self.mean_over_ranks(means)
        columns = {
            "policy_loss": loss,
            "value_loss": self.value_loss,
            "gradient_norm": self.gradient_norm,
            "adjoint_first": steps[..., 0],
            "adjoint_median": steps.median() if self.members is None else steps.median(dim=-1).values,
            "adjoint_last": steps[..., -1],
            "steep_worlds": steep,
            "largest_world": self.largest_world,
            "half_cosine": self.half_cosine,
            **dict(zip(shares, of_actions, strict=True)),
            **self.more_columns(),
        }
        truncated = window.truncated if self.settings.staggered else None
        self.conclude(window.reward, window.done, columns, truncated=truncated)

    def adjoint_norms(self) -> Tensor:
        """(steps, worlds) how much a world's own return changes with its state."""
        return self.by_member(self.adjoints.state_norms(self.window.reward))

    def _move_target(self) -> None:
        step = self._numbers["target_step"]
        if isinstance(step, Tensor):
            self._target_weights[0].lerp_(self._critic_weights[0], step.unsqueeze(1))
        else:
            move_weights_towards(self._target_weights, self._critic_weights, self.settings.target_keep)

    def _learning_rate(self, of: str) -> Tensor:
        return self._falling(self._numbers[f"{of}_lr"], self._numbers[f"{of}_lr_change"])

    def _falling(self, initial: float | Tensor, fall: float | Tensor) -> Tensor:
        settings = self.settings
        share = (self.iteration / settings.iterations).clamp(max=1) if settings.lr_decay else self.iteration * 0
        return initial + fall * share

    def warning(self, row: Mapping[str, float]) -> str | None:
        # Some steep worlds are the normal price of contact; where most are, the window is too long or the robot stiff.
        steep = row["steep_worlds"]
        return f"{steep:.0%} of worlds have an adjoint above {STEEP:g}" if steep > 0.5 else None

    def run_again(self, noise: Tensor) -> Trace:
        self.rollout(noise)
        return Trace(self.window.reward.detach(), Adjoints.of(self.window).state_norms(self.window.reward))

    def forget(self) -> None:
        del self.window


SHAC = Algorithm(
    name="shac",
    label="SHAC",
    summary="gradients through short windows, a critic beyond: most return per sample; the one to begin with",
    settings=ShacSettings,
    learner=Shac,
    presets=PRESETS,
    candidates=CANDIDATES,
    gpu_presets=GPU_PRESETS,
)
