"""How a window changes SHAC's networks and statistics: steps of Adam by hand, the target critic, the normaliser."""

import numpy as np
import pytest
import torch
from small_shac import FALLS, end_soon, learner, normalised, prepared, run, vector, watched

from trot.learn.returns import td_lambda

# One step of each optimiser.


class AdamByHand:
    def __init__(self, settings):
        self.betas, self.steps, self.m, self.v = settings.adam_betas, 0, 0.0, 0.0

    def step(self, gradient, rate):
        """What to add to the weights."""
        (b1, b2), self.steps = self.betas, self.steps + 1
        self.m = b1 * self.m + (1 - b1) * gradient
        self.v = b2 * self.v + (1 - b2) * gradient**2
        m, v = self.m / (1 - b1**self.steps), self.v / (1 - b2**self.steps)
        return -rate * m / (np.sqrt(v) + 1e-8)


def clipped(gradient, limit):
    norm = np.linalg.norm(gradient)
    return gradient * min(1.0, limit / (norm + 1e-6))


# The first is below any gradient of these windows, the last above.
@pytest.mark.parametrize(("max_grad_norm", "clips"), [(0.5, True), (1e3, False)])
@pytest.mark.parametrize("lr_decay", [True, False])
def test_the_policy_takes_one_step_of_adam_on_the_clipped_gradient(max_grad_norm, clips, lr_decay):
    shac = learner(max_grad_norm=max_grad_norm, lr_decay=lr_decay, iterations=5)
    adam = AdamByHand(shac.settings)
    for iteration in range(5):
        saved = shac.state_dict()
        shac.rollout()
        gradient = vector(shac.policy_gradient())
        parameters = list(shac.policy.parameters())
        shac.load_state_dict(saved)
        before = vector(parameters)
        shac.rollout()
        shac.improve_policy()
        assert bool(np.linalg.norm(gradient) > max_grad_norm) is clips
        # Linearly from 2e-3 to 1e-5, which the last of five does not quite reach.
        rate = 2e-3 + (1e-5 - 2e-3) * iteration / 5 if lr_decay else 2e-3
        change = adam.step(clipped(gradient, max_grad_norm), rate)
        # The rate is kept in float32.
        np.testing.assert_allclose(vector(parameters) - before, change, rtol=1e-6, atol=1e-14)
        assert shac.gradient_norm.item() == pytest.approx(np.linalg.norm(gradient), rel=1e-12)
        shac.fit_critic()
        shac.finish()


def test_the_critic_fits_consecutive_blocks_of_steps_in_every_pass():
    shac = prepared(critic_passes=3, critic_batches=3)
    # PyTorch's operations, which can be watched.
    shac.native_fit = None
    inputs = []
    shac.critic.register_forward_hook(lambda module, args, output: inputs.append(args[0]))
    shac.rollout()
    shac.improve_policy()
    shac.fit_critic()
    assert len(inputs) == 9
    for index, batch in enumerate(inputs):
        block = 2 * (index % 3)
        assert batch.equal(shac.window.inputs[block : block + 2])


@pytest.mark.parametrize("max_grad_norm", [0.5, 1e4])
def test_the_critic_takes_steps_of_adam_towards_the_td_lambda_targets(max_grad_norm):
    shac = prepared(after=0, max_grad_norm=max_grad_norm, iterations=5, critic_passes=3)
    adam = AdamByHand(shac.settings)
    for iteration in range(3):
        shac.rollout()
        shac.improve_policy()
        window = shac.window
        again = learner(critic_passes=3).critic
        again.load_state_dict(shac.critic.state_dict())
        parameters, losses = list(again.parameters()), []
        targets = td_lambda(window.reward, window.next_value, window.done, 0.99, 0.95).detach()
        for _ in range(3):
            for steps in (slice(0, 3), slice(3, 6)):
                loss = (again(window.inputs[steps]) - targets[steps]).square().sum() / 12
                gradient = vector(torch.autograd.grad(loss, parameters))
                change = adam.step(clipped(gradient, max_grad_norm), 2e-4 + (1e-5 - 2e-4) * iteration / 5)
                moved = torch.from_numpy(vector(parameters) + change)
                torch.nn.utils.vector_to_parameters(moved, parameters)
                losses.append(loss.item())
        shac.fit_critic()
        np.testing.assert_allclose(vector(shac.critic.parameters()), vector(parameters), rtol=0, atol=1e-9)
        # Reported is the last pass.
        assert shac.value_loss.item() == pytest.approx(sum(losses[-2:]) / 2, rel=1e-6)
        shac.finish()


def test_learning_rates_never_fall_below_the_last():
    """Also where a run goes on for longer than was planned."""
    shac = run(learner(iterations=2), 4)
    for optimizer in (shac.policy_optimizer, shac.critic_optimizer):
        assert optimizer.rate.item() == pytest.approx(1e-5, rel=1e-4)


def test_the_target_critic_moves_once_after_the_fit():
    shac = prepared(target_keep=0.2)
    target, critic = vector(shac.target_critic.parameters()), vector(shac.critic.parameters())
    shac.rollout()
    shac.improve_policy()
    shac.fit_critic()
    fitted = vector(shac.critic.parameters())
    assert np.abs(fitted - critic).max() > 1e-5
    np.testing.assert_array_equal(vector(shac.target_critic.parameters()), target)
    shac.finish()
    np.testing.assert_allclose(vector(shac.target_critic.parameters()), 0.2 * target + 0.8 * fitted, rtol=1e-12)
    np.testing.assert_array_equal(vector(shac.critic.parameters()), fitted)


# Statistics of the observations.


def test_statistics_are_frozen_in_a_window_and_then_take_in_all_its_observations():
    shac = learner()
    rows, record = [], watched(shac)
    for iteration in range(3):
        record.clear()
        if iteration == 1:
            # Ends inside a window: it is the new episode's first observation that counts.
            end_soon(shac, [0, 3], 2)
        mean, variance = shac.agent.normalizer.mean.clone(), shac.agent.normalizer.variance.clone()
        first = shac.env.window_start.observation.clone()
        shac.rollout()
        shac.improve_policy()
        shac.fit_critic()
        assert shac.agent.normalizer.mean.equal(mean) and shac.agent.normalizer.variance.equal(variance)
        seen = torch.stack([first] + [observation.detach() for observation, *_ in record])
        torch.testing.assert_close(shac.window.inputs, normalised(seen[:-1], mean, variance), rtol=1e-12, atol=1e-12)
        shac.finish()
        assert shac.env.window_start.observation.equal(seen[-1])
        # Seven batches of a window of six steps: the observation between two windows counts in both.
        rows.append(seen.reshape(-1, shac.env.num_observations).numpy())
        everything = np.concatenate(rows)
        count = len(everything) + 1e-4
        assert len(everything) == 28 * (iteration + 1)
        expected = everything.sum(axis=0) / count
        np.testing.assert_allclose(shac.agent.normalizer.mean, expected, rtol=1e-10)
        squares = ((everything - expected) ** 2).sum(axis=0) + 1e-4 * (1 + expected**2)
        np.testing.assert_allclose(shac.agent.normalizer.variance, squares / count, rtol=1e-10)


def test_without_normalisation_the_policy_sees_observations_as_they_are():
    shac = prepared(normalize_observations=False)
    first, record = shac.env.window_start.observation.clone(), watched(shac)
    shac.rollout()
    assert shac.window.inputs.equal(torch.stack([first] + [observation.detach() for observation, *_ in record[:-1]]))
    value = shac.target_critic(torch.stack([info["final_obs"] for *_, info in record]))
    value[2, FALLS] = 0
    torch.testing.assert_close(shac.window.next_value, value, rtol=1e-12, atol=1e-12)
