"""Symmetric policies: in the mirror they do what they do, mirrored, whatever they have learned and seen."""

from dataclasses import replace

import onnxruntime
import pytest
import torch
from small_shac import SMALL

import trot
from trot.cli import main
from trot.envs.mirror import Mirror, mirror_matrix
from trot.learn.agent import AgentDescription, load_agent
from trot.learn.algorithms import find_algorithm
from trot.learn.export import export_agent
from trot.runs.folder import RunFolder

# Of five numbers seen the third changes its sign, and the last two change places; so do the last two of three actions.
MIRROR = Mirror((1, 2, -3, 5, 4), (-1, 3, 2))
KINDS = ["gaussian", "state_dependent", "deterministic"]
DOUBLE = torch.zeros((), dtype=torch.float64)
OBSERVATIONS, ACTIONS = mirror_matrix(MIRROR.observation, DOUBLE), mirror_matrix(MIRROR.action, DOUBLE)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_sided_agent(kind="gaussian", mirror=MIRROR, members=None, dtype=torch.float64):
    """With random weights and deviations, which has seen one side alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        description = AgentDescription(5, 3, (7, 6), kind, mirror=mirror)
        agent = description.build(dtype=dtype, members=members)
        with torch.no_grad():
            for parameter in agent.policy.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape))
    seen = 3 * normal(100, 5, seed=1) + torch.tensor([1.0, 2.0, 3.0, -4.0, 5.0])
    agent.normalizer.update(seen if members is None else seen.expand(members, -1, -1))
    return agent


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mirrored_observation_leads_to_the_mirrored_action(kind, members):
    agent = one_sided_agent(kind, members=members)
    rows = (4,) if members is None else (members, 4)
    observation, noise = 2 * normal(*rows, 5), normal(*rows, 3, seed=2)
    acted, mirrored = agent(observation), agent(observation @ OBSERVATIONS)
    torch.testing.assert_close(mirrored, acted @ ACTIONS, rtol=0, atol=1e-12)
    assert (acted.abs() > 1e-6).all()
    if kind == "state_dependent":
        # A "gaussian" one learns a deviation for each action, apart: its means are mirror images, its samples are not.
        sampled, mirrored = agent(observation, noise), agent(observation @ OBSERVATIONS, noise @ ACTIONS)
        torch.testing.assert_close(mirrored, sampled @ ACTIONS, rtol=0, atol=1e-12)


def test_else_it_does_not():
    agent = one_sided_agent(mirror=None)
    observation = normal(4, 5)
    assert (agent(observation @ OBSERVATIONS) - agent(observation) @ ACTIONS).abs().max() > 0.05


def test_one_observation_without_an_axis_of_rows():
    agent, observation = one_sided_agent(), normal(5)
    torch.testing.assert_close(agent(observation), agent(observation.unsqueeze(0)).squeeze(0), rtol=0, atol=1e-14)


def test_the_mean_of_both_by_hand():
    agent = one_sided_agent("deterministic")
    observation = normal(1, 5)
    shift, scale = agent.normalizer.affine(torch.float64)
    # The third number's mean goes both ways, and those of the last two meet.
    shift = torch.stack([shift[0], shift[1], torch.zeros(()).double(), *[(shift[3] + shift[4]) / 2] * 2])
    scale = torch.stack([*scale[:3], *[(scale[3] + scale[4]) / 2] * 2])
    normal_ = (observation - shift) * scale
    first = agent.policy.network(normal_)[0]
    a, b, c, d, e = normal_[0]
    second = agent.policy.network(torch.stack([a, b, -c, e, d]).unsqueeze(0))[0]
    expected = torch.stack([first[0] - second[0], first[1] + second[2], first[2] + second[1]]) / 2
    torch.testing.assert_close(agent(observation)[0], expected.tanh(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_exported_it_acts_the_same(tmp_path, kind):
    agent = one_sided_agent(kind, dtype=torch.float32)
    differences = export_agent(agent, {}, tmp_path)
    assert max(differences.values()) < 1e-6
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        observation = normal(batch, 5, seed=batch).float()
        (action,) = session.run(None, {"observation": observation.numpy()})
        torch.testing.assert_close(torch.from_numpy(action), agent(observation).detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("algo", ["shac", "shac-no-critic", "bptt", "sapo", "rpo", "ahac", "shac-mixed", "ppo-finish"])
def test_learning_keeps_it_so_and_gradients_reach_all_weights(algo):
    algorithm = find_algorithm(algo)
    own = SMALL
    if algo == "ahac":
        own = {**SMALL, "shortest_horizon": 2}
    if algo == "ppo-finish":
        own = {"num_worlds": 4, "horizon": 6, "hidden": (8,), "batches": 2, "value_only_iterations": 0}
    settings = replace(algorithm.resolve("ant"), **own, symmetric=True)
    env = trot.make_env("ant", num_worlds=settings.num_worlds, dtype=torch.float64)
    learner = algorithm.learner(env, settings, 0)
    policy = learner.agent.policy
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    for _ in range(3):
        learner.iterate()
    assert all((new != old).any() for new, old in zip(policy.parameters(), before, strict=True))
    observation = env.worlds.observation.detach()
    mirror = learner.agent.description.mirror
    seen, done = (mirror_matrix(part, observation) for part in (mirror.observation, mirror.action))
    torch.testing.assert_close(learner.agent(observation @ seen), learner.agent(observation) @ done, rtol=0, atol=1e-12)


def test_a_run_that_goes_on_and_is_loaded(tmp_path, capsys):
    few = ["--worlds", "4", "--horizon", "8", "--device", "cpu", "--runs", str(tmp_path), "--name"]
    for name, iterations in (("whole", "6"), ("parted", "3")):
        assert main(["train", "ant", "--symmetric", *few, name, "--iterations", iterations, "--no-lr-decay"]) == 0
    assert main(["resume", str(tmp_path / "parted"), "--iterations", "6"]) == 0
    whole, parted = (RunFolder.open(tmp_path / name) for name in ("whole", "parted"))
    first, second = (load_agent(run, "last") for run in (whole, parted))
    assert first.description.mirror == second.description.mirror is not None
    observation = normal(3, 37).float()
    torch.testing.assert_close(first(observation), second(observation), rtol=0, atol=0)


def test_a_task_without_a_mirror_image_ends_with_its_reason(capsys):
    assert main(["train", "hopper", "--symmetric", "--iterations", "1", "--device", "cpu"]) != 0
    assert "the task 'hopper' has no mirror image: its first joint is not free" in capsys.readouterr().err
