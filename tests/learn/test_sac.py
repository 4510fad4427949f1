"""SAC: densities, targets, losses and temperature against numbers worked by hand; what is remembered, and when."""

import copy
import math

import numpy as np
import pytest
import torch
from linear_sac import SMALL, TASK, batch, fixed_noise, learner, linear
from small_shac import FALLS, RUNS_OUT_OF_TIME, end_inside, metrics
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from trot.cli import main
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.sac import SacSettings, log_density_of_tanh
from trot.learn.networks import take_member
from trot.runs.folder import RunFolder

EXACT = {"rtol": 1e-12, "atol": 1e-12}
TWO = [(2.0, 0.0, 3.0, 0.0), (0.0, 1.0, 1.0, 1.0)]
"""Critics: twice the offset and three times the action; the speed, the action and 1."""
ACTION = math.tanh(1)
LOG_DENSITY = -0.5 - math.log(2 * math.pi) / 2 - math.log(0.5) - math.log(1 - ACTION**2)
"""Of that action, where the noise is 1: the sample is 1/2 + 1/2."""


def copies(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(module, before):
    return [name for name, tensor in module.state_dict().items() if not tensor.equal(before[name])]


def remembered(sac):
    """What the memory holds, oldest first, by field."""
    count, position = int(sac.memory.filled), int(sac.memory.position)
    rows = {name: sac.memory.get_buffer(f"rows_{name}")[:count] for name in sac.memory.fields}
    return {name: part.roll(-position, 0) if count == sac.memory.capacity else part for name, part in rows.items()}


def test_the_density_of_tanh_is_that_of_pytorchs_distributions(rng):
    mean, noise = torch.tensor(rng.normal(size=(2, 9, 3)))
    log_std = torch.tensor(rng.uniform(-2, 0.5, size=(9, 3)))
    sample = mean + log_std.exp() * noise
    expected = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()])
    found = log_density_of_tanh(sample, noise, log_std)
    assert sample.abs().max() < 5
    # Which go back from the action, and lose digits there.
    torch.testing.assert_close(found, expected.log_prob(torch.tanh(sample)).sum(dim=1), rtol=1e-9, atol=1e-9)
    one = log_density_of_tanh(
        torch.ones(1, 1).double(), torch.ones(1, 1).double(), torch.full((1, 1), 0.5).double().log()
    )
    assert one.item() == pytest.approx(LOG_DENSITY, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [30.0, -30.0])
def test_the_density_stays_finite_where_tanh_is_1(far, dtype):
    sample = torch.full((1, 1), far, dtype=dtype, requires_grad=True)
    noise, log_std = torch.zeros(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype)
    found = log_density_of_tanh(sample, noise, log_std)
    # 1 - tanh(x)^2 is 4 exp(-2 |x|) there.
    expected = -math.log(2 * math.pi) / 2 - math.log(4) + 60
    assert found.item() == pytest.approx(expected, rel=1e-6)
    found.sum().backward()
    assert sample.grad.item() == pytest.approx(math.copysign(2, far), rel=1e-6)


def test_target_values_by_hand(monkeypatch):
    sac = linear(TWO, gamma=0.9)
    fixed_noise(sac, monkeypatch)
    found = sac.target_value(batch([1.0, -2.0, 5.0], [0.0, 0.0, 1.0]))
    # Half of 2 * 3 + 3 a, and half of 4 + a + 1: the second is less.
    expected = (5 + ACTION) / 2 - 0.5 * LOG_DENSITY
    assert (5 + ACTION) / 2 < (6 + 3 * ACTION) / 2
    np.testing.assert_allclose(found, [1 + 0.9 * expected, -2 + 0.9 * expected, 5], **EXACT)


def test_the_critics_loss_and_gradient_by_hand():
    sac = linear(TWO)
    rows = batch([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    rows["reward"] = torch.tensor([1.0, 2.0, 6.0]).double()
    # Where everything ends the target is the reward. The critics say 2 + 1.5 and 2 + 0.5 + 1, both 3.5.
    errors = np.array([2.5, 1.5, -2.5])
    loss, value, by_weight, by_bias = sac.critic_gradient(rows)
    assert loss.item() == pytest.approx(2 * np.square(errors).mean(), rel=1e-12)
    assert value.item() == pytest.approx(3.5, rel=1e-12)
    slope = 2 * errors.mean() * np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(by_weight, np.tile(slope, (2, 1, 1)), **EXACT)
    np.testing.assert_allclose(by_bias, np.full((2, 1), 2 * errors.mean()), **EXACT)


@pytest.mark.parametrize(("trusts", "value"), [("least", 3 + ACTION), ("mean", (5 + 4 * ACTION) / 2)])
def test_the_policys_loss_by_hand(monkeypatch, trusts, value):
    sac = linear(TWO, policy_trusts=trusts)
    fixed_noise(sac, monkeypatch)
    # The critics say 2 + 3 a = 4.28 and 2 + a + 1 = 3.76.
    loss, log_density, *_ = sac.policy_gradient(batch([0.0] * 3, [0.0] * 3))
    assert log_density.item() == pytest.approx(LOG_DENSITY, rel=1e-12)
    assert loss.item() == pytest.approx(0.5 * LOG_DENSITY - value, rel=1e-12)


@pytest.mark.parametrize("trusts", ["least", "mean"])
def test_the_policys_gradient_is_that_of_differences(monkeypatch, rng, trusts):
    sac = learner("hopper", policy_trusts=trusts, initial_temperature=0.7, critics=3, critics_in_target=2)
    observation, noise = torch.tensor(rng.normal(size=(16, 11))), torch.tensor(rng.normal(size=(16, 3)))
    monkeypatch.setattr(sac, "_noise", lambda rows: noise)
    rows = {"observation": observation, "action": torch.zeros(16, 3).double()}
    # So that deviations depend on what is seen.
    with torch.no_grad():
        sac.agent.policy.network[-1].weight[3:] = 0.1 * torch.tensor(rng.normal(size=(3, 8)))
    critics = [take_member(sac.critics, index) for index in range(3)]

    def loss():
        mean, log_std = sac.agent.policy.network(observation).detach().split(3, dim=1)
        action = torch.tanh(mean + log_std.exp() * noise)
        density = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()]).log_prob(action).sum(dim=1)
        values = torch.cat([critic(torch.cat([observation, action], dim=1)).detach() for critic in critics], dim=1)
        trusted = values.min(dim=1).values if trusts == "least" else values.mean(dim=1)
        return (0.7 * density - trusted).mean().item()

    found, _, *gradients = sac.policy_gradient(rows)
    assert found.item() == pytest.approx(loss(), rel=1e-9)
    for weight, gradient in zip(sac.agent.policy.parameters(), gradients, strict=True):
        direction = torch.tensor(rng.normal(size=weight.shape))
        sides = []
        for side in (1e-5, -2e-5):
            weight.data.add_(side * direction)
            sides.append(loss())
        weight.data.add_(1e-5 * direction)
        slope = (sides[0] - sides[1]) / 2e-5
        assert (gradient * direction).sum().item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(
    ("log_density", "slope"),
    [
        # The entropy is to be -0.5: 1 is too much, and the temperature falls; -2 is too little.
        (-1.0, 0.25 * 1.5),
        (2.0, 0.25 * -1.5),
        (0.5, 0.0),
    ],
)
def test_the_temperature_follows_the_entropy(monkeypatch, log_density, slope):
    sac = learner(initial_temperature=0.25, temperature_lr=0.01, entropy_per_action=-0.5)
    given, step = [], sac.temperature_optimizer.step
    monkeypatch.setattr(sac.temperature_optimizer, "step", lambda gradients: given.extend(gradients) or step(gradients))
    sac.cool(torch.tensor(log_density).double())
    assert given[0].item() == pytest.approx(slope, rel=1e-12)
    # The first step of Adam is as long as its rate.
    assert sac.temperature.item() == pytest.approx(0.25 * math.exp(-0.01 * np.sign(slope)), rel=1e-6)


def test_the_entropy_that_is_wanted_grows_with_the_actions():
    assert learner("hopper").target_entropy == -1.5


def test_an_update_is_that_of_plain_pytorch(monkeypatch):
    """Two updates: losses by torch.distributions on single critics, steps by torch.optim.Adam."""
    sac = learner(batch=32, target_keep=0.9, actor_lr=1e-2, critic_lr=2e-2, temperature_lr=3e-2, log_std_bounds=(-5, 2))
    for _ in range(3):
        sac.iterate()
    policy = copy.deepcopy(sac.agent.policy)
    critics, targets = ([take_member(part, index) for index in range(2)] for part in (sac.critics, sac.target_critics))
    log_temperature = sac.log_temperature.detach().clone().requires_grad_()
    parts = [
        (sac.policy_optimizer, list(policy.parameters()), 1e-2),
        (sac.critic_optimizer, [weight for critic in critics for weight in critic.parameters()], 2e-2),
        (sac.temperature_optimizer, [log_temperature], 3e-2),
    ]
    for ours, _, _ in parts:
        for name, tensor in ours.named_buffers():
            if name != "rate":
                tensor.zero_()
    actor, critic, cooler = (torch.optim.Adam(weights, lr=rate) for _, weights, rate in parts)
    batches = [sac.draw() for _ in range(2)]
    noises = [torch.randn(32, 1, generator=torch.Generator().manual_seed(seed)).double() for seed in range(4)]
    waiting = iter(noises)
    monkeypatch.setattr(sac, "_noise", lambda rows: next(waiting))

    def acted(observation, noise):
        mean, log_std = policy.network(observation).split(1, dim=1)
        density = TransformedDistribution(Normal(mean, log_std.clamp(-5, 2).exp()), [TanhTransform(cache_size=1)])
        action = density.transforms[0](mean + log_std.clamp(-5, 2).exp() * noise)
        return action, density.log_prob(action)[:, 0]

    def least(members, observation, action):
        return torch.stack([member(torch.cat([observation, action], dim=1))[:, 0] for member in members]).min(0).values

    told = []
    for rows, noise, noise_of_policy in zip(batches, noises[::2], noises[1::2], strict=True):
        temperature = log_temperature.exp().detach()
        with torch.no_grad():
            action, density = acted(rows["next_observation"], noise)
            after = least(targets, rows["next_observation"], action) - temperature * density
            target = rows["reward"] + 0.99 * (1 - rows["end"]) * after
        action, density = acted(rows["observation"], noise_of_policy)
        policy_loss = (temperature * density - least(critics, rows["observation"], action)).mean()
        actor.zero_grad()
        policy_loss.backward()
        critic.zero_grad()
        pairs = torch.cat([rows["observation"], rows["action"]], dim=1)
        value_loss = sum(torch.nn.functional.mse_loss(one(pairs)[:, 0], target) for one in critics)
        value_loss.backward()
        value = torch.cat([one(pairs) for one in critics]).mean()
        cooler.zero_grad()
        (log_temperature.exp() * (-density.detach() + 0.5).mean()).backward()
        for optimizer in (actor, critic, cooler):
            optimizer.step()
        with torch.no_grad():
            for target_critic, one in zip(targets, critics, strict=True):
                for theirs, ours in zip(target_critic.parameters(), one.parameters(), strict=True):
                    theirs.copy_(0.9 * theirs + 0.1 * ours)
        told.append(
            [number.item() for number in (policy_loss, value_loss, value, log_temperature.exp(), -density.mean())]
        )
    for rows, numbers in zip(batches, told, strict=True):
        np.testing.assert_allclose(sac.update(rows), numbers, rtol=1e-5)
    for index in range(2):
        for network, expected in ((sac.critics, critics[index]), (sac.target_critics, targets[index])):
            for found, wanted in zip(take_member(network, index).parameters(), expected.parameters(), strict=True):
                # Rates are float32.
                torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)
    for found, wanted in zip(sac.agent.policy.parameters(), policy.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)
    assert sac.log_temperature.item() == pytest.approx(log_temperature.item(), rel=1e-6)


def test_the_critics_keep_their_weights_while_the_policy_climbs_them(monkeypatch, rng):
    """Threads that share a batch would find weights that another one has exchanged, and leave them there."""
    sac = learner("hopper", hidden=(256, 256))
    rows = {"observation": torch.tensor(rng.normal(size=(1024, 11))), "action": torch.zeros(1024, 3).double()}
    noise = torch.tensor(rng.normal(size=(1024, 3)))
    monkeypatch.setattr(sac, "_noise", lambda rows: noise)
    weights, called = list(sac.critics.parameters()), []
    sac.critics.register_forward_hook(lambda *_: called.append(1))
    loss, *_ = sac.policy_gradient(rows)
    assert not called and all(one is two for one, two in zip(sac.critics.parameters(), weights, strict=True))
    # What is climbed are the same critics, also after they have learned.
    with torch.no_grad():
        weights[-1].add_(1.0)
    risen, *_ = sac.policy_gradient(rows)
    assert loss.item() - risen.item() == pytest.approx(1.0, rel=1e-9)
    assert "_fixed_critics" not in " ".join(sac.state_dict())


def test_critics_and_their_targets_begin_alike_and_with_no_bias():
    sac = learner()
    assert all(
        one.equal(two) for one, two in zip(sac.critics.parameters(), sac.target_critics.parameters(), strict=True)
    )
    assert not any(weight.requires_grad for weight in sac.target_critics.parameters())
    assert all((layer.bias == 0).all() for layer in sac.critics if hasattr(layer, "bias"))
    first, second = (take_member(sac.critics, index)[0].weight for index in range(2))
    assert not first.allclose(second)


def test_exploring_is_uniform_and_changes_no_weight():
    sac = learner(num_worlds=100, horizon=50, memory=10_000)
    networks = (sac.agent.policy, sac.critics, sac.target_critics, sac.policy_optimizer, sac.critic_optimizer)
    before, temperature = [copies(network) for network in networks], sac.temperature
    sac.iterate()
    assert [changed(*pair) for pair in zip(networks, before, strict=True)] == [[]] * 5
    assert sac.temperature.equal(temperature)
    actions = remembered(sac)["action"].flatten().numpy()
    assert len(actions) == 5000 and np.abs(actions).max() <= 1
    counts, _ = np.histogram(actions, bins=20, range=(-1, 1))
    # 0.1 % and 99.9 % of the chi-square distribution with 19 degrees of freedom.
    assert 5.41 < (np.square(counts - 250) / 250).sum() < 43.82
    row = metrics(sac)
    assert row["temperature"] == 1 and row["value_loss"] == row["policy_loss"] == 0
    # What observations look like is learned from the first step on.
    seen = remembered(sac)["observation"].numpy()
    np.testing.assert_allclose(sac.agent.normalizer.mean, seen.mean(axis=0), rtol=1e-6, atol=1e-6)


def test_it_explores_first_and_learns_then(monkeypatch):
    sac, updates = learner(), []
    draw = sac.draw
    # How many steps there are to learn from: those before the present one.
    monkeypatch.setattr(sac, "draw", lambda batches: updates.append(int(sac.memory.filled)) or draw(batches))
    for _ in range(4):
        sac.iterate()
    explored = 2 * 3 * 4
    assert updates == [explored + 4 * step for step in range(6)]
    assert sac.updates_per_iteration == 3 and int(sac.steps) == 4 * 3 * 4


def options(**changes):
    settings = {name: value for name, value in SMALL.items() if name != "iterations"} | changes
    return [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else [value]))
    ]


def rows_of(path):
    rows = RunFolder.open(path).read_metrics()
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_goes_on_across_the_end_of_exploring(tmp_path, stop):
    """Two iterations explore, three learn; one that stopped before, at or behind that border is the same."""
    train = ["train", TASK, "--algo", "sac", "--device", "cpu", "--runs", str(tmp_path), *options()]
    assert main([*train, "--name", "whole", "--iterations", "5"]) == 0
    assert main([*train, "--name", "parts", "--iterations", str(stop)]) == 0
    assert main(["resume", str(tmp_path / "parts"), "--iterations", "5"]) == 0
    whole, parts = (rows_of(tmp_path / name) for name in ("whole", "parts"))
    assert whole == parts
    assert [row["value_loss"] > 0 for row in whole] == [False, False, True, True, True]


@pytest.mark.parametrize("time_outs", ["bootstrap", "end"])
@pytest.mark.parametrize("explores", [True, False])
def test_what_is_remembered_of_falls_and_time_outs(time_outs, explores):
    """By env.step() on a copy, with the actions that are remembered."""
    sac = learner("hopper", horizon=6, time_outs=time_outs)
    for _ in range(0 if explores else 2):
        sac.iterate()
    end_inside(sac.env)
    env, before = copy.deepcopy(sac.env), int(sac.memory.filled)
    sac.iterate()
    rows = {name: part[before:].view(6, 4, *part.shape[1:]) for name, part in remembered(sac).items()}
    seen = env.begin_window()
    for step in range(6):
        assert rows["observation"][step].equal(seen)
        seen, reward, fell, timed_out, info = env.step(rows["action"][step])
        assert rows["next_observation"][step].equal(info["final_obs"])
        torch.testing.assert_close(rows["reward"][step], reward, **EXACT)
        ends = fell | timed_out if time_outs == "end" else fell
        assert rows["end"][step].tolist() == ends.double().tolist()
        if step == 2:
            assert fell.tolist() == [world == FALLS for world in range(4)]
            assert timed_out.tolist() == [world == RUNS_OUT_OF_TIME for world in range(4)]
            # What follows in the memory is another episode.
            assert not seen[[FALLS, RUNS_OUT_OF_TIME]].allclose(info["final_obs"][[FALLS, RUNS_OUT_OF_TIME]])


def test_the_memory_forgets_the_oldest_steps_first():
    small, large = learner(memory=20), learner(memory=1000)
    for _ in range(3):
        small.iterate()
        large.iterate()
        if int(large.iteration) == 2:
            # Exploring asks no memory, so that both have seen the same: 24 steps, of which 4 are forgotten.
            for name, part in remembered(small).items():
                assert part.equal(remembered(large)[name][4:])
    assert int(small.memory.filled) == 20 and int(large.memory.filled) == 36


def test_batches_are_normalised_by_what_is_known_when_an_iteration_begins():
    sac = learner()
    for _ in range(2):
        sac.iterate()
    sac.begin()
    sac.memory.rows_observation[:, 0] = 1e6
    raw = remembered(sac)
    mean, deviation = sac.agent.normalizer.mean, (sac.agent.normalizer.variance + 1e-5).sqrt()
    drawn = sac.draw()
    assert (drawn["observation"][:, 0] == 5).all()
    for row in range(SMALL["batch"]):
        place = (raw["action"] == drawn["action"][row]).all(dim=1).nonzero().item()
        expected = (raw["next_observation"][place] - mean) / deviation
        torch.testing.assert_close(drawn["next_observation"][row], expected.clamp(-5, 5), **EXACT)
        assert drawn["reward"][row] == raw["reward"][place]


def test_actions_are_samples_of_the_policy_within_its_bounds(monkeypatch):
    sac = learner(log_std_bounds=(-1.0, -0.5))
    fixed_noise(sac, monkeypatch, 2.0)
    with torch.no_grad():
        last = sac.agent.policy.network[-1]
        last.weight.zero_()
        for log_std, expected in ((-7.0, -1.0), (-0.7, -0.7), (3.0, -0.5)):
            last.bias.copy_(torch.tensor([0.1, log_std], dtype=torch.float64))
            action, density = sac.sample(torch.zeros(1, 2).double())
            assert action.item() == pytest.approx(math.tanh(0.1 + 2 * math.exp(expected)), rel=1e-12)
            normal = Independent(Normal(*torch.tensor([[0.1], [math.exp(expected)]], dtype=torch.float64)), 1)
            wanted = TransformedDistribution(normal, [TanhTransform()]).log_prob(action)
            torch.testing.assert_close(density, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_worlds": 0}, "num_worlds must be at least 1, not 0"),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"updates": 0}, "updates must be at least 1, not 0"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"memory": 0}, "memory must be at least 1, not 0"),
        ({"memory": 127}, "memory 127 holds not even one step of num_worlds 128"),
        ({"random_iterations": 0}, "random_iterations must be at least 1, not 0"),
        ({"critics": 1}, "critics_in_target 2 is more than the critics: 1"),
        ({"critics_in_target": 0}, "critics_in_target must be at least 1, not 0"),
        ({"gamma": 1.1}, r"gamma must be between 0 and 1, not 1\.1"),
        ({"target_keep": float("nan")}, "target_keep must be between 0 and 1, not nan"),
        ({"actor_lr": 0.0}, r"actor_lr must be above 0, not 0\.0"),
        ({"critic_lr": -1.0}, r"critic_lr must be above 0, not -1\.0"),
        ({"temperature_lr": float("inf")}, "temperature_lr must be above 0, not inf"),
        ({"initial_temperature": 0.0}, "initial_temperature must be above 0"),
        ({"log_std_bounds": (2.0, -5.0)}, r"log_std_bounds must be a smaller and a larger number, not \(2\.0, -5\.0\)"),
        ({"entropy_per_action": float("nan")}, "entropy_per_action must be finite, not nan"),
        ({"hidden": (0,)}, r"hidden must be widths of at least 1, not \(0,\)"),
        ({"policy_trusts": "most"}, "policy_trusts must be least or mean, not 'most'"),
        ({"time_outs": "ignore"}, "time_outs must be one of bootstrap, end, not 'ignore'"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        SacSettings(**changes)


@pytest.mark.parametrize(
    ("task", "worlds", "minibatch", "cooling", "rate", "random_steps", "hidden", "iterations"),
    [
        ("cartpole", 32, 1024, 5e-3, 5e-4, 16_384, (64, 64), 1000),
        ("ant", 128, 4096, 5e-3, 5e-4, 65_536, (256, 128, 64), 5000),
        ("humanoid", 64, 2048, 2e-4, 3e-4, 8_192, (512, 256), 5000),
        ("muscle_humanoid", 256, 4096, 2e-4, 3e-4, 32_768, (512, 512, 512, 256), 10_000),
        ("half_cheetah", 64, 2048, 5e-3, 5e-4, 32_768, (256, 128, 64), 5000),
        ("hopper", 64, 2048, 5e-3, 5e-4, 32_768, (256, 128, 64), 5000),
        ("mine.py:Own", 128, 4096, 5e-3, 5e-4, 65_536, (256, 128, 64), 5000),
    ],
)
def test_settings_are_the_papers(task, worlds, minibatch, cooling, rate, random_steps, hidden, iterations):
    found = find_algorithm("sac").resolve(task)
    assert (found.num_worlds, found.horizon, found.batch, found.updates) == (worlds, 128, minibatch, 1)
    assert (found.temperature_lr, found.actor_lr, found.critic_lr) == (cooling, rate, rate)
    assert found.random_iterations * found.horizon * found.num_worlds == random_steps
    assert (found.hidden, found.iterations) == (hidden, iterations)
    assert (found.gamma, found.target_keep, found.memory, found.initial_temperature) == (0.99, 0.995, 1_000_000, 1)
    assert (found.log_std_bounds, found.entropy_per_action) == ((-5, 2), -0.5)
    assert (found.critics, found.critics_in_target, found.policy_trusts) == (2, 2, "least")
    assert found.normalize_observations and found.time_outs == "bootstrap"
