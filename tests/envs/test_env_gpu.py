"""Environments on CUDA: as on the CPU, without waiting for the GPU, and captured in graphs."""

import pytest
import torch
from tasks_with_memory import COMMANDED

import trot
from trot.envs.registry import TASKS

pytestmark = pytest.mark.gpu

ALL = pytest.mark.parametrize("name", [*TASKS, COMMANDED])


def random_actions(env, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, env.num_worlds, env.num_actions)
    return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1).to(env.device, env.dtype)


def window(env, actions):
    """Observations, rewards, ends and the gradient by the actions."""
    leaves = actions.clone().requires_grad_()
    steps = [env.step(action)[:4] for action in leaves]
    stacked = [torch.stack(column) for column in zip(*steps, strict=True)]
    (gradient,) = torch.autograd.grad(stacked[1].sum(), leaves)
    return [*(tensor.detach() for tensor in stacked), gradient]


def equal(first, second):
    return all(a.equal(b) for a, b in zip(first, second, strict=True))


@ALL
def test_agrees_with_the_cpu(name):
    """float64, from the same states, through falls: nothing but rounding lies between the two."""
    envs = [trot.make_env(name, 32, device, dtype=torch.float64, stochastic_start=False) for device in ("cpu", "cuda")]
    results = []
    for env in envs:
        env.reset()
        results.append(window(env, random_actions(env, 12)))
    for cpu, gpu in zip(*results, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-6, atol=1e-7)


@ALL
def test_steps_and_gradients_never_wait_for_the_gpu(name):
    env = trot.make_env(name, 32, "cuda", randomize=trot.Randomize(mass=(0.9, 1.1)))
    env.reset()
    actions = random_actions(env, 40)
    window(env, actions[:2])
    env.detach()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        window(env, actions)
        env.detach()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@ALL
def test_a_captured_window_replays_as_eager_steps_would(name):
    """Windows of 40 steps, so that starts are drawn anew inside; ends of episodes included."""
    randomize = trot.Randomize(
        friction=(0.8, 1.2), push_interval=0.1, push_speed=0.3, observation_noise=(0.02,), action_delay=(0, 2)
    )
    eager, captured = (trot.make_env(name, 16, "cuda", seed=3, randomize=randomize) for _ in range(2))
    for env in (eager, captured):
        env.reset()
        clock = torch.full((16, 1), env.episode_length - 20, device=env.device)
        env.worlds = type(env.worlds)(**{**env.worlds.tensors(), "clock": clock})
    actions = random_actions(eager, 40)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        saved = captured.get_state()
        window(captured, actions)
        captured.set_state(saved)
    torch.cuda.synchronize()
    start = captured.worlds.clone()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(captured.generator)
    with torch.cuda.graph(graph):
        captured.worlds = start
        captured.detach()
        found = window(captured, actions)
        start.copy_(captured.worlds)
    captured.worlds = start
    for _ in range(3):
        eager.detach()
        expected = window(eager, actions)
        graph.replay()
        assert equal(found, expected)
        assert captured.state.joint_q.equal(eager.state.joint_q)
    # And on again without the graph, from where the last replay ended.
    captured.detach(), eager.detach()
    assert equal(window(captured, actions), window(eager, actions))


def test_a_capture_without_detach_is_refused():
    env = trot.make_env("cartpole", 4, "cuda")
    env.reset()
    action = torch.zeros(4, 1, device="cuda")
    env.step(action)
    with pytest.raises(RuntimeError, match=r"call env\.detach\(\) first"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        env.step(action)


def test_a_fault_leaves_the_other_worlds_bit_for_bit():
    results = []
    for spoilt in (False, True):
        env = trot.make_env("ant", 64, "cuda")
        env.reset()
        if spoilt:
            env.worlds.joint_qd[17, 3] = float("nan")
        results.append(window(env, random_actions(env, 8)))
    others = [w for w in range(64) if w != 17]
    assert equal([t[:, others] for t in results[0]], [t[:, others] for t in results[1]])
    assert results[1][4].isfinite().all() and int(env.worlds.faults.sum()) == 1
    assert env.last_faults()[0].world == 17


@ALL
def test_a_resumed_run_equals_an_uninterrupted_one(name):
    env, resumed = (trot.make_env(name, 16, "cuda", seed=seed) for seed in (1, 2))
    env.reset()
    actions = random_actions(env, 40)
    window(env, actions)
    saved = env.get_state()
    env.detach()
    expected = window(env, actions)
    resumed.set_state(saved)
    resumed.detach()
    assert equal(window(resumed, actions), expected)
