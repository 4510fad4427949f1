"""Pushes, noise and delay: by numbers worked by hand, with gradients, resumed to the bit."""

import copy
from dataclasses import replace

import pytest
import torch
from slider_task import HighBox, Rail

import trot
from trot.envs.check_task import TaskCheckSettings, run_task_check
from trot.envs.mujoco_env import MujocoEnv
from trot.envs.registry import make_task
from trot.envs.trainable import require_trainable

EXACT = {"rtol": 0, "atol": 1e-12}
ALL = trot.Randomize(
    push_interval=0.05, push_speed=0.3, push_turning=0.4, observation_noise=(0.02,), action_delay=(0, 2)
)
PUSHED = trot.Randomize(push_interval=0.2, push_speed=0.5)
"""On the rail, whose step is 0.1 s and whose episodes take 5: one push in each two steps."""


def make(task, worlds=1, randomize=ALL, dtype=torch.float64, **options):
    env = trot.make_env(task, worlds, dtype=dtype, randomize=randomize, **options)
    env.reset()
    return env


def column(*values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1)


def with_drawn(env, *values):
    env.worlds = replace(env.worlds, disturbance=torch.tensor([values], dtype=torch.float64))


def random_actions(env, steps):
    generator = torch.Generator().manual_seed(1)
    shape = (steps, env.num_worlds, env.num_actions)
    return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1).to(env.dtype)


def test_an_action_moves_the_cart_two_steps_later():
    env = make(Rail, randomize=trot.Randomize(action_delay=(2, 2)))
    speeds, controls, actions = [], [], column(1, 0.5, -1, 0.25, 0.75, 1, 1, 1)
    for action in actions:
        *_, info = env.step(action.view(1, 1))
        speeds.append(info["final_state"].joint_qd.item())
        controls.append(info["control"].item())
    # The cart has 2 kg: 1 N changes its speed by 0.05 m/s in a step of 0.1 s. The sixth step begins a new episode.
    assert controls == [0, 0, 1, 0.5, -1, 0, 0, 1]
    assert speeds == pytest.approx([0, 0, 0.05, 0.075, 0.025, 0, 0, 0.05], abs=1e-12)


def test_the_task_sees_the_action_as_it_was_chosen():
    class Told(Rail):
        def observation(self, measured, previous_action):
            return {"q": measured.joint_q, "chosen": previous_action}

        def reward_terms(self, measured, action):
            return {"chosen": action}

    env = make(Told, randomize=trot.Randomize(action_delay=(1, 1)))
    observation, reward, *_ = env.step(column(0.5))
    assert reward.item() == observation[0, 1].item() == 0.5
    move = env.advance(column(-0.25))
    assert move.action.item() == env.rewards([move]).item() == -0.25 and move.control.item() == 0.5


def test_every_delay_between_the_least_and_the_most_is_as_likely():
    env = make(Rail, 3000, trot.Randomize(action_delay=(1, 3)))
    delays = env.worlds.disturbance.squeeze(1)
    shares = [(delays == steps).double().mean().item() for steps in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1) and max(shares) < 0.37
    for step in range(4):
        env.step(torch.ones(3000, 1, dtype=torch.float64))
        moves = env.state.joint_qd.squeeze(1) > 0
        assert moves.equal(delays <= step)


def test_pushes_change_the_speed_at_their_time():
    env = make(Rail, randomize=PUSHED)
    assert env.worlds.disturbance.shape == (1, 6)
    # In the steps 1, 3 and 4, by 0.2, -0.5 and 0.1 m/s.
    with_drawn(env, 1, 3, 4, 0.2, -0.5, 0.1)
    states = [env.step(column(0))[4]["final_state"] for _ in range(5)]
    assert [state.joint_qd.item() for state in states] == pytest.approx([0, 0.2, 0.2, -0.3, -0.2], abs=1e-12)
    assert [state.joint_q.item() for state in states] == pytest.approx([0, 0.02, 0.04, 0.01, -0.01], abs=1e-12)


def test_a_free_body_is_pushed_along_and_about_every_axis():
    env = make(HighBox, randomize=trot.Randomize(push_interval=0.5, push_speed=0.5, push_turning=2))
    with_drawn(env, 0, 0.1, -0.2, 0.3, 1, 0, 0)
    env.step(torch.zeros(1, 0, dtype=torch.float64))
    expected = torch.tensor([[0.1, -0.2, 0.3 - 9.81 * 0.1, 1, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(env.state.joint_qd, expected, **EXACT)


def test_pushes_are_drawn_within_their_stretch_and_size():
    env = make(HighBox, 4000, trot.Randomize(push_interval=0.25, push_speed=0.5, push_turning=2))
    # Two pushes in five steps: one in the first 2.5 of them, one in the next.
    first, second, *_ = env.worlds.disturbance.unbind(dim=1)
    assert first.unique().tolist() == [0, 1, 2] and second.unique().tolist() == [2, 3, 4]
    assert (first == 2).double().mean().item() == pytest.approx(0.2, abs=0.03)
    changes = env.worlds.disturbance[:, 2:].reshape(-1, 6)
    largest = torch.tensor([0.5, 0.5, 0.5, 2, 2, 2], dtype=torch.float64)
    assert (changes.abs() <= largest).all() and (changes.abs().amax(dim=0) > 0.99 * largest).all()
    assert changes.mean(dim=0).abs().max() < 0.05


def test_in_long_episodes_the_pushes_come_again():
    class Long(Rail):
        episode_length = 10**12

    env = make(Long, randomize=PUSHED)
    assert env.worlds.disturbance.shape == (1, 128)
    drawn = torch.zeros(128, dtype=torch.float64)
    drawn[:64], drawn[64] = -1.0, 0.25
    drawn[0] = 1
    env.worlds = replace(env.worlds, disturbance=drawn.unsqueeze(0))
    for clock, speed in ((0, 0), (1, 0.25), (127, 0.25), (128, 0.25), (129, 0.5)):
        env.worlds.clock.fill_(clock)
        env.step(column(0))
        assert env.state.joint_qd.item() == pytest.approx(speed, abs=1e-12)


def test_noise_is_on_what_is_shown_and_nowhere_else():
    env = make(Rail, 4000, trot.Randomize(observation_noise={"qd": 0.3}))
    errors = [env.worlds.observation[:, 1] - env.state.joint_qd[:, 0]]
    for action in random_actions(env, 4):
        observation, reward, _, _, info = env.step(action)
        after = info["final_state"]
        assert reward.equal((after.joint_q + 10 * after.joint_qd).squeeze(1))
        assert observation.equal(info["final_obs"])
        assert observation[:, :1].equal(env.state.joint_q)
        errors.append(observation[:, 1] - env.state.joint_qd[:, 0])
    for error in errors:
        assert error.std().item() == pytest.approx(0.3, rel=0.05) and abs(error.mean().item()) < 0.02
    assert abs(torch.corrcoef(torch.stack(errors)) - torch.eye(5)).max() < 0.08


@pytest.mark.parametrize(
    ("noise", "expected"), [((0.1,), [0.1, 0.1]), ((0.1, 0.4), [0.1, 0.4]), ({"q": 0.2}, [0.2, 0.0])]
)
def test_one_deviation_for_all_entries_or_one_for_each(noise, expected):
    env = make(Rail, 4000, trot.Randomize(observation_noise=noise), stochastic_start=False)
    first = env.worlds.observation
    assert first.std(dim=0).tolist() == pytest.approx(expected, rel=0.05)
    placed = env.place(env.state)
    assert placed.std(dim=0).tolist() == pytest.approx(expected, rel=0.05)
    assert not placed.equal(first)


def test_gradients_through_noise_delay_and_pushes_are_those_of_differences():
    """A policy in the loop: weights, the state and past actions at the beginning, in float64."""
    env = make("hopper", 6)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "weights": 0.3 * torch.randn(11, 3, generator=generator, dtype=torch.float64),
        "joint_qd": env.worlds.joint_qd,
        "past_actions": env.worlds.past_actions + 0.1,
    }
    saved = env.get_state()

    def total(given):
        env.set_state(saved)
        env.worlds = replace(env.worlds, joint_qd=given["joint_qd"], past_actions=given["past_actions"])
        observation, rewards = env.worlds.observation, 0.0
        for _ in range(8):
            observation, reward, *_ = env.step(torch.tanh(observation @ given["weights"]))
            rewards = rewards + reward.sum()
        return rewards

    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    gradients = dict(zip(leaves, torch.autograd.grad(total(leaves), list(leaves.values())), strict=True))
    for name, value in inputs.items():
        way = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        far, near = (
            (total({**inputs, name: value + step * way}) - total({**inputs, name: value - step * way})) / (2 * step)
            for step in (2e-5, 1e-5)
        )
        slope, expected = (gradients[name] * way).sum().item(), ((4 * near - far) / 3).item()
        assert abs(slope) > 1e-2 and slope == pytest.approx(expected, rel=1e-6), name
    # Pushes and all delays took part.
    assert env.worlds.disturbance[:, 0].unique().tolist() == [0, 1, 2]


def test_the_check_of_a_task_takes_them_along(capsys):
    settings = TaskCheckSettings("hopper", worlds=12, directions=2, randomize=replace(ALL, mass=(0.8, 1.2)))
    assert run_task_check(settings)
    assert "gradients are right to 1e-06" in capsys.readouterr().out


def test_a_window_is_cut_off_from_actions_before_it():
    env = make(Rail, randomize=trot.Randomize(action_delay=(1, 1)))
    before = column(0.5).requires_grad_()
    env.step(before)
    assert env.worlds.past_actions.requires_grad
    env.detach()
    assert not env.step(column(0))[1].requires_grad


def test_a_resumed_environment_goes_on_to_the_bit(tmp_path):
    env, resumed = (make("hopper", 16, dtype=torch.float32, seed=seed) for seed in (3, 99))
    actions = random_actions(env, 60)
    for action in actions[:20]:
        env.step(action)
    torch.save(env.get_state(), tmp_path / "state.pt")
    copied = copy.deepcopy(env)
    expected = [env.step(action)[:4] for action in actions[20:]]
    assert torch.stack([step[2] for step in expected]).any()
    resumed.set_state(torch.load(tmp_path / "state.pt", weights_only=True))
    for action, outputs in zip(actions[20:], expected, strict=True):
        for other in (resumed, copied):
            assert all(a.equal(b) for a, b in zip(other.step(action)[:4], outputs, strict=True))
    assert resumed.worlds.past_actions.equal(env.worlds.past_actions)
    assert resumed.worlds.disturbance.equal(env.worlds.disturbance)


def test_a_new_episode_has_a_new_delay_and_new_pushes():
    env = make("ant", 64, ALL)
    joint_q = env.state.joint_q.clone()
    joint_q[5, 2] = 0.1
    env.place(trot.State(joint_q, env.state.joint_qd))
    before = env.worlds
    assert env.step(torch.ones(64, 8, dtype=torch.float64))[2].nonzero().flatten().tolist() == [5]
    same = (env.worlds.disturbance == before.disturbance).all(dim=1)
    assert same.logical_not().nonzero().flatten().tolist() == [5]
    assert env.worlds.past_actions.abs().sum(dim=1).bool().logical_not().nonzero().flatten().tolist() == [5]


def test_what_is_not_asked_for_is_not_there():
    plain, shaken = make("ant", 2, None), make("ant", 2, ALL)
    for field in ("disturbance", "past_actions"):
        assert getattr(plain.worlds, field).shape == (2, 0)
    assert shaken.worlds.past_actions.shape == (2, 16)
    # Pushes, noise and delay take no physics of each world's own.
    assert shaken.worlds.parameter.shape == shaken.worlds.strength.shape == (2, 0)
    assert not shaken.physics_differ and make("ant", 2, trot.Randomize(mass=(0.5, 2))).physics_differ
    saved = shaken.get_state()
    with pytest.raises(ValueError, match=r"the saved disturbance is \(2, \d+\) .*; this environment has \(2, 0\)"):
        plain.set_state(saved)


def test_what_blew_up_is_kept_as_it_was_carried_out():
    env = make(Rail, 2, replace(PUSHED, action_delay=(2, 2)))
    drawn = env.worlds.disturbance.clone()
    # Delay, times of the three pushes, pushes.
    drawn[1] = torch.tensor([2, 2, 3, 4, 1e9, 0, 0])
    env.worlds = replace(env.worlds, disturbance=drawn)
    for step, action in enumerate((0.5, 0.25, 0.75)):
        *_, info = env.step(column(0.1, action))
        assert info["fault"].tolist() == [False, step == 2]
    (fault,) = env.last_faults()
    assert fault.world == 1 and fault.action.item() == 0.5 and fault.joint_qd.item() == 1e9


def test_an_action_that_is_no_number_is_told_of_at_once():
    env = make(Rail, 2, trot.Randomize(action_delay=(2, 2)))
    observation, reward, terminated, _, info = env.step(column(0.5, torch.nan))
    assert info["fault"].tolist() == terminated.tolist() == [False, True]
    assert observation.isfinite().all() and reward.isfinite().all() and env.worlds.past_actions.isfinite().all()
    (fault,) = env.last_faults()
    assert fault.action.isnan().all()


def test_the_same_in_mujoco():
    env = MujocoEnv(make_task(Rail), 1, randomize=replace(PUSHED, observation_noise=(0.5, 0), action_delay=(1, 1)))
    env.reset()
    env.worlds = replace(env.worlds, disturbance=torch.tensor([[1, 1, 3, 4, 0.2, -0.5, 0.1]]))
    steps = [env.step(torch.tensor([[action]])) for action in (1.0, 0.5, 0.0, 0.0)]
    speeds = [info["final_state"].joint_qd.item() for *_, info in steps]
    assert speeds == pytest.approx([0, 0.25, 0.275, -0.225], abs=1e-6)
    places = [info["final_state"].joint_q.item() for *_, info in steps]
    assert all(abs(step[0][0, 0].item() - place) > 1e-4 for step, place in zip(steps, places, strict=True))
    with pytest.raises(ValueError, match="the robot's own masses"):
        MujocoEnv(make_task(Rail), 1, randomize=trot.Randomize(mass=(0.5, 2)))


def test_noise_does_not_make_a_blind_task_learnable():
    class Blind(Rail):
        def observation(self, measured, previous_action):
            return {"nothing": 0 * measured.joint_q}

    with pytest.raises(ValueError, match="it tells nothing"):
        require_trainable(make(Blind, 2, trot.Randomize(observation_noise=(0.1,)), torch.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"push_interval": 1.0}, "randomize.push_interval says how often"),
        ({"push_speed": 1.0}, "randomize.push_interval says how often"),
        ({"push_interval": -1.0, "push_speed": 1.0}, "randomize.push_interval is -1.0"),
        ({"push_interval": 0.05, "push_speed": 1.0}, "randomize.push_interval is 0.05 s; a control step takes 0.1 s"),
        ({"push_interval": 1.0, "push_turning": 1.0}, "randomize.push_turning is 1.0, but body 'cart', .* cannot turn"),
        (
            {"observation_noise": (0.1, 0.2, 0.3)},
            "observation_noise has 3 numbers, the observation 2 entries",
        ),
        ({"observation_noise": {"speed": 0.1}}, "no part 'speed'; it has: q, qd"),
        ({"observation_noise": (-0.1,)}, "randomize.observation_noise has -0.1"),
        ({"action_delay": (2, 1)}, r"randomize.action_delay is \(2, 1\)"),
        ({"action_delay": (0, 0.5)}, r"randomize.action_delay is \(0, 0.5\)"),
    ],
)
def test_what_makes_no_sense_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        trot.make_env(Rail, 2, randomize=trot.Randomize(**options))
