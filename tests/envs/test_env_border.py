"""What enters an environment from outside: states, worlds, actions in a tensor that is used again, copies of it all."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from two_ways import random_actions

import trot
from trot.envs.start import Start
from trot.envs.tasks.ant import Ant


def started(name="ant", worlds=3, **options):
    env = trot.make_env(name, worlds, **options)
    env.reset()
    return env


def rewards(env, steps=5):
    with torch.no_grad():
        return torch.stack([env.step(action)[1] for action in random_actions(env, steps)])


def changed(group, name, change):
    """A saved state of three Ants with one tensor of it changed."""
    saved = started().get_state()
    saved[group][name] = change(saved[group][name])
    return saved


def without(*path):
    saved = started().get_state()
    inner = saved
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return saved


RANDOMIZED = {"randomize": trot.Randomize(mass=(0.8, 1.2))}

WRONG_STATES = {
    "other robot": (lambda: started("hopper").get_state(), r"saved joint_q is \(3, 6\)"),
    "other physics": (lambda: started(**RANDOMIZED).get_state(), r"saved parameter is \(3, \d+\).*has \(3, 0\)"),
    "other precision": (lambda: started(dtype=torch.float64).get_state(), "saved joint_q is .*torch.float64"),
    "velocity": (lambda: changed("worlds", "joint_qd", torch.Tensor.double), "saved joint_qd is .*torch.float64"),
    "clock": (lambda: changed("worlds", "clock", torch.Tensor.float), "saved clock is .*torch.float32.*torch.int64"),
    "rows": (lambda: changed("worlds", "faults", lambda x: x[:2]), r"saved faults is \(2, 1\).*\(3, 1\)"),
    "observation": (lambda: changed("worlds", "observation", lambda x: x[:, 1:]), "saved observation is"),
    "last fault": (lambda: changed("worlds", "last_fault", lambda x: x[:, 1:]), "saved last_fault is"),
    "starts": (lambda: changed("starts", "joint_qd", lambda x: x[:, 1:]), "saved start's joint_qd is"),
    "fewer starts": (lambda: changed("starts", "observation", lambda x: x[1:]), "saved start's observation is"),
    "list": (lambda: changed("worlds", "joint_qd", torch.Tensor.tolist), "saved worlds have no tensor 'joint_qd'"),
    "no field": (lambda: without("worlds", "clock"), "saved worlds have no tensor 'clock'"),
    "no start": (lambda: without("starts", "joint_q"), "saved starts have no tensor 'joint_q'"),
    "more": (lambda: {**started().get_state(), "starts": {"x": 0}}, "saved starts have no tensor"),
    "no part": (lambda: without("generator"), "saved state has no 'generator'"),
    "used": (lambda: {**started().get_state(), "used": 10**6}, "1000000 of its 96 starts"),
    "no rotation": (lambda: changed("worlds", "joint_q", torch.zeros_like), r"joint_q\[0, 3:7\] is .*no rotation"),
}


@pytest.mark.parametrize("case", WRONG_STATES)
def test_a_saved_state_that_does_not_fit_is_refused_and_changes_nothing(case):
    make, message = WRONG_STATES[case]
    env, untouched = started(seed=3), started(seed=3)
    with pytest.raises(ValueError, match=message):
        env.set_state(make())
    assert rewards(env).equal(rewards(untouched))
    assert env.generator.get_state().equal(untouched.generator.get_state())


def field(name, change):
    worlds = started().worlds
    return replace(worlds, **{name: change(getattr(worlds, name))})


WRONG_WORLDS = {
    "other robot": (lambda: started("hopper").worlds, r"assigned joint_q is \(3, 6\)"),
    "other physics": (lambda: started(**RANDOMIZED).worlds, "assigned parameter is"),
    "other precision": (lambda: started(dtype=torch.float64).worlds, "assigned joint_q is .*torch.float64"),
    "other number": (lambda: started(worlds=4).worlds, r"assigned joint_q is \(4, 15\)"),
    "clock": (lambda: field("clock", torch.Tensor.int), "assigned clock is .*torch.int32"),
    "device": (lambda: field("joint_qd", lambda x: x.to("meta")), "joint_qd is on meta"),
    "no tensor": (lambda: field("joint_qd", torch.Tensor.tolist), "joint_qd must be a tensor, not list"),
    "dictionary": (lambda: started().get_state(), "worlds must be Worlds.*not dict"),
    "no rotation": (lambda: field("joint_q", torch.zeros_like), "no rotation"),
}


@pytest.mark.parametrize("case", WRONG_WORLDS)
def test_worlds_that_do_not_fit_are_refused_and_change_nothing(case):
    make, message = WRONG_WORLDS[case]
    env, untouched = started(seed=3), started(seed=3)
    with pytest.raises((ValueError, TypeError), match=message):
        env.worlds = make()
    assert rewards(env).equal(rewards(untouched))


def test_randomised_worlds_do_not_enter_without_their_physics_and_rows_may_lie_anywhere():
    env = started(**RANDOMIZED)
    with pytest.raises(ValueError, match="assigned parameter"):
        env.worlds = started().worlds
    spread = env.worlds.map(lambda tensor: tensor.T.contiguous().T)
    expected, env.worlds = rewards(copy.deepcopy(env)), spread
    assert rewards(env).equal(expected)


def test_worlds_may_be_assigned_before_the_first_reset():
    other, fresh = started(seed=3), trot.make_env("ant", 3)
    fresh.worlds = other.worlds
    assert rewards(fresh).equal(rewards(other))
    assert fresh.get_state().keys() == other.get_state().keys()


# Quaternions.


@pytest.mark.parametrize("name", ["ant", "humanoid", "muscle_humanoid"])
def test_quaternions_of_the_environment_itself_stay_to_the_bit(name):
    env = started(name, 8)
    rewards(env, 40)
    before, saved = env.worlds, env.get_state()
    for enter in (
        lambda: env.place(env.state, before.previous_action),
        lambda: setattr(env, "worlds", before),
        lambda: env.set_state(saved),
    ):
        enter()
        assert env.worlds.joint_q.equal(before.joint_q)


def scaled(joint_q):
    return torch.cat([joint_q[:, :3], 3 * joint_q[:, 3:7], joint_q[:, 7:]], dim=1)


def enter_place(env, joint_q):
    env.place(trot.State(joint_q, env.state.joint_qd))


def enter_worlds(env, joint_q):
    env.worlds = replace(env.worlds, joint_q=joint_q)


def enter_state(env, joint_q):
    saved = env.get_state()
    env.set_state({**saved, "worlds": {**saved["worlds"], "joint_q": joint_q}})


@pytest.mark.parametrize("enter", [enter_place, enter_worlds, enter_state])
def test_a_longer_quaternion_is_the_same_rotation(enter):
    env, other = started(dtype=torch.float64), started(dtype=torch.float64)
    enter(env, env.state.joint_q)
    enter(other, scaled(other.state.joint_q))
    assert (other.state.joint_q[:, 3:7].norm(dim=1) - 1).abs().max() < 1e-15
    torch.testing.assert_close(rewards(other), rewards(env), rtol=1e-9, atol=1e-9)


def test_gradients_pass_the_scaling():
    """The derivative of q / |q| has nothing along q, and 1 / |q| across it."""
    env = started(dtype=torch.float64, stochastic_start=False)
    joint_q = scaled(env.state.joint_q).requires_grad_()
    env.place(trot.State(joint_q, env.state.joint_qd))
    (gradient,) = torch.autograd.grad(env.worlds.joint_q[:, 3:7].sum(), joint_q)
    expected = torch.tensor([0, 1 / 3, 1 / 3, 1 / 3], dtype=torch.float64).expand(3, 4)
    torch.testing.assert_close(gradient[:, 3:7], expected)


def test_a_quaternion_that_is_no_rotation_is_refused_and_nan_is_a_fault():
    env = started()
    joint_q = env.state.joint_q.clone()
    joint_q[1, 3:7] = 0
    with pytest.raises(ValueError, match=r"joint_q\[1, 3:7\] is \[0.0, 0.0, 0.0, 0.0\], which is no rotation"):
        env.place(trot.State(joint_q, env.state.joint_qd))
    joint_q[1, 3:7] = torch.nan
    env.place(trot.State(joint_q, env.state.joint_qd))
    assert env.step(torch.zeros(3, 8))[4]["fault"].tolist() == [False, True, False]


class LongQuaternion(Ant):
    start = Start(joint_q=(*Ant.start.joint_q[:3], 0.5, 0.5, 0.0, 0.0, *Ant.start.joint_q[7:]))


class NoRotation(Ant):
    start = Start(joint_q=(*Ant.start.joint_q[:3], 0.0, 0.0, 0.0, 0.0, *Ant.start.joint_q[7:]))


class NotFinite(Ant):
    start = Start(joint_q=(float("nan"), *Ant.start.joint_q[1:]))


def test_so_are_those_of_a_start():
    env = started(LongQuaternion)
    assert (env.state.joint_q[:, 3:7].norm(dim=1) - 1).abs().max() < 1e-6
    with pytest.raises(ValueError, match=r"start pose.*no rotation"):
        started(NoRotation)
    with pytest.raises(ValueError, match=r"start pose.*nan"):
        started(NotFinite)


# Tensors that the caller uses again.


@pytest.mark.parametrize("grad", [False, True])
def test_an_action_tensor_may_be_filled_again_after_advance(grad):
    env, other = started(dtype=torch.float64), started(dtype=torch.float64)
    actions = random_actions(env, 4)
    factor = torch.ones((), dtype=torch.float64, requires_grad=grad)
    expected = other.rewards([other.advance(factor * action) for action in actions])
    buffer, moves = torch.empty_like(actions[0]), []
    for action in actions:
        buffer.copy_(factor * action)
        moves.append(env.advance(buffer))
    found = env.rewards(moves)
    assert found.equal(expected)
    assert all(move.control.equal(action) for move, action in zip(moves, actions, strict=True))
    assert env.get_state()["worlds"]["previous_action"].equal(actions[-1])
    if grad:
        slopes = [torch.autograd.grad(reward.sum(), factor)[0] for reward in (found, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-12, atol=0)


def test_a_state_may_be_filled_again_after_place():
    env, other = started(), started()
    joint_q, joint_qd, action = (x.clone() for x in (env.state.joint_q, env.state.joint_qd, torch.zeros(3, 8)))
    env.place(trot.State(joint_q, joint_qd), action)
    for tensor in (joint_q, joint_qd, action):
        tensor.fill_(7.0)
    assert rewards(env).equal(rewards(other))
    assert env.get_state()["worlds"]["joint_q"].equal(other.get_state()["worlds"]["joint_q"])


def test_place_names_a_previous_action_that_does_not_fit():
    env = started()
    with pytest.raises(ValueError, match=r"previous_action is \(3, 7\)"):
        env.place(env.state, torch.zeros(3, 7))


# Copies.

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("options", [{}, RANDOMIZED, {"dtype": torch.float64}])
def test_a_copy_goes_on_like_the_original_and_apart_from_it(way, options):
    env = started(seed=4, **options)
    env.worlds = replace(env.worlds, clock=torch.full((3, 1), env.episode_length - 3))
    env.step(random_actions(env, 1)[0].requires_grad_())
    env.end_window()
    copied = COPIES[way](env)
    found, again = rewards(copied, 20), rewards(env, 20)
    assert found.equal(again)
    assert env.worlds.observation.equal(copied.worlds.observation)
    assert env.begin_window().equal(copied.begin_window())
    assert env.reset()[0].equal(copied.reset()[0])


def test_a_copy_of_an_environment_that_never_began_can_begin():
    env = trot.make_env("ant", 3, seed=4)
    copied = copy.deepcopy(env)
    assert copied.reset()[0].equal(env.reset()[0])
    assert copied.task is not env.task and copied.task.model is env.task.model


OWN = """
from trot.envs.tasks.cartpole import CartPole

class Mine(CartPole):
    weight = 3.0
    def reward_terms(self, measured, action):
        return {"weight": self.weight + 0 * action}
"""

GO_ON = """
import os, pickle, sys, torch

def go_on(path):
    with open(path, "rb") as file:
        print(pickle.load(file).step(torch.zeros(2, 1))[1].tolist())

own_pickle, other_pickle, away, place = sys.argv[1:]
try:
    go_on(own_pickle)
except Exception as error:
    print(error)
os.rename(away, place)
go_on(own_pickle)
go_on(other_pickle)
"""


def test_another_process_goes_on_with_a_pickle(tmp_path):
    """It imports no class of a file by itself, and says so where the file is gone."""
    own, away = tmp_path / "own.py", tmp_path / "away.py"
    own.write_text(OWN)
    expected, pickles = [], []
    for name in (f"{own}:Mine", "cartpole"):
        env = trot.make_env(name, 2, seed=3)
        env.reset()
        env.task.weight = 5.0
        pickles.append(tmp_path / f"{len(pickles)}.pkl")
        pickles[-1].write_bytes(pickle.dumps(env))
        expected.append(str(env.step(torch.zeros(2, 1))[1].tolist()))
    own.rename(away)
    command = [sys.executable, "-c", GO_ON, *pickles, away, own]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    refused, *found = shown.stdout.splitlines()
    assert f"no task file '{own}'" in refused
    assert found == expected and expected[0] == "[5.0, 5.0]"


def test_a_deep_copy_keeps_the_class_though_its_file_was_edited(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    env = trot.make_env(f"{tmp_path / 'own.py'}:Mine", 2)
    (tmp_path / "own.py").write_text(OWN.replace("3.0", "40.0"))
    copied = copy.deepcopy(env)
    copied.reset()
    assert copied.step(torch.zeros(2, 1))[1].tolist() == [3, 3]
