"""Members of one batch of worlds: each has the starts, physics and memory of an environment with its seed alone."""

from dataclasses import replace

import pytest
import torch
from alike import distance
from tasks_with_memory import COMMANDED, Counting

import trot
from trot.envs.member_env import MemberEnv
from trot.envs.registry import make_task

SEEDS, EACH, LENGTH = (0, 3, 7), 7, 7
RANDOM = trot.Randomize(mass=(0.8, 1.2), friction=(0.5, 1.5), motor_strength=(0.9, 1.1))
DISTURBED = trot.Randomize(push_interval=0.05, push_speed=0.3, observation_noise=(0.1,), action_delay=(0, 2))
TASK_AND_LAYOUT = pytest.mark.parametrize(
    ("name", "in_rounds"),
    [("hopper", False), ("ant", False), (COMMANDED, False), ("cartpole", True), (Counting, True)],
)
"""In rounds is how CUDA hands out starts, tried on the CPU: in tasks without falls some world ends in every step."""
LAYOUT = pytest.mark.parametrize(("name", "in_rounds"), [("hopper", False), ("cartpole", True)])


def short(name):
    """A task whose episodes last at most seven steps."""
    task = make_task(name)
    task.episode_length = LENGTH
    return task


def batch(task, in_rounds=False, seeds=SEEDS, **options):
    env = MemberEnv(task, EACH, seeds, dtype=torch.float64, **options)
    env._store.in_rounds = in_rounds
    env.reset()
    begin_at_different_times(env, range(len(seeds)), in_rounds)
    return env


def alone(task, seed, in_rounds=False, **options):
    env = trot.Env(task, EACH, seed=seed, dtype=torch.float64, **options)
    env._store.in_rounds = in_rounds
    env.reset()
    begin_at_different_times(env, [SEEDS.index(seed) if seed in SEEDS else 0], in_rounds)
    return env


def random_actions(steps, num_actions):
    generator = torch.Generator().manual_seed(1)
    return 2 * torch.rand(steps, len(SEEDS) * EACH, num_actions, generator=generator, dtype=torch.float64) - 1


def begin_at_different_times(env, members, in_rounds):
    """Worlds of a member run out of time in different steps; where starts are taken as needed, members differ, too."""
    clocks = [torch.arange(EACH) // (1 if in_rounds else member + 1) for member in members]
    env.worlds.clock.copy_(torch.cat(clocks).unsqueeze(1))


@TASK_AND_LAYOUT
@pytest.mark.parametrize("options", [{}, {"randomize": RANDOM}, {"randomize": DISTURBED}, {"stochastic_start": False}])
def test_each_member_is_an_environment_with_its_seed(name, options, in_rounds):
    task = short(name)
    together = batch(task, in_rounds, **options)
    singles = [alone(task, seed, in_rounds, **options) for seed in SEEDS]
    ended = torch.zeros(len(SEEDS), dtype=torch.int64)
    # Each member's store of 32 starts per world is used up and drawn anew, in a step of its own.
    for step, action in enumerate(random_actions(250, task.num_actions)):
        *_, terminated, truncated, _ = together.step(action)
        ended += (terminated | truncated).view(len(SEEDS), EACH).sum(dim=1)
        for member, single in enumerate(singles):
            single.step(action[member * EACH : (member + 1) * EACH])
            if step % 30 == 0 or 215 <= step <= 225 or step == 249:
                assert distance(together.member_state(member), single.get_state()) < 1e-9
    assert ended.min() > 32 * EACH


@LAYOUT
def test_a_member_goes_on_alone_and_one_alone_goes_on_as_a_member(name, in_rounds):
    task = short(name)
    random = replace(DISTURBED, mass=(0.8, 1.2))
    together = batch(task, in_rounds, randomize=random)
    actions = random_actions(60, task.num_actions)
    for action in actions[:20]:
        together.step(action)
    single = alone(task, 99, in_rounds, randomize=random)
    single.set_state(together.member_state(1))
    before = [together.member_state(member) for member in (0, 2)]
    other = batch(task, in_rounds, seeds=(4, 5, 6), randomize=random)
    other.set_member_state(1, single.get_state())
    # As far as the others go, nothing has changed.
    for member, state in zip((0, 2), before, strict=True):
        assert distance(together.member_state(member), state) == 0
        other.set_member_state(member, state)
    for action in actions[20:]:
        together.step(action)
        other.step(action)
        single.step(action[EACH : 2 * EACH])
    assert distance(together.member_state(1), single.get_state()) < 1e-9
    assert distance(other.get_state()["members"][0], together.member_state(0)) == 0
    assert distance(other.member_state(1), single.get_state()) < 1e-9


@LAYOUT
def test_all_members_go_on_to_the_bit(name, in_rounds):
    task = short(name)
    together, resumed = batch(task, in_rounds), batch(task, in_rounds, seeds=(4, 5, 6))
    actions = random_actions(60, task.num_actions)
    for action in actions[:23]:
        together.step(action)
    saved = together.get_state()
    for action in actions[23:28]:
        together.step(action)
    together.set_state(saved)
    resumed.set_state(saved)
    for action in actions[23:]:
        assert together.step(action)[0].equal(resumed.step(action)[0])
    assert all(map(lambda one, other: distance(one, other) == 0,
                   together.get_state()["members"], resumed.get_state()["members"]))  # fmt: skip


def test_what_does_not_fit_is_refused():
    task = make_task("hopper")
    together = batch(task)
    with pytest.raises(ValueError, match="at least one member"):
        MemberEnv(task, EACH, ())
    with pytest.raises(ValueError, match="seed must be a whole number"):
        MemberEnv(task, EACH, (0, 2**64))
    with pytest.raises(ValueError, match="takes no seed"):
        together.reset(seed=1)
    with pytest.raises(ValueError, match="not that of 3 members"):
        together.set_state({"members": [together.member_state(0)]})
    larger = trot.Env(task, EACH + 1, dtype=torch.float64)
    larger.reset()
    before = together.get_state()["members"]
    with pytest.raises(ValueError, match="the saved joint_q is"):
        together.set_member_state(0, larger.get_state())
    stored = together.member_state(0)
    stored["starts"] = {name: tensor[:4] for name, tensor in stored["starts"].items()}
    stored["used"] = 0
    with pytest.raises(ValueError, match="has 4 starts in store; this environment has 224"):
        together.set_member_state(0, stored)
    assert [distance(one, other) for one, other in zip(together.get_state()["members"], before, strict=True)] == [0] * 3


def test_members_are_staggered_each_for_itself():
    env = MemberEnv(make_task("cartpole"), 3, seeds=(0, 7))
    env.reset()
    env.stagger()
    assert env.worlds.clock.flatten().tolist() == [0, 80, 160] * 2
