"""A world that blows up: reset, counted, kept for a replay, and of no consequence to the others."""

from dataclasses import asdict

import pytest
import torch

import trot
from trot.cli import main
from trot.envs.fault import Fault, load_fault
from trot.sim.guard import Guard, is_sound, surely_sound

BAD = 17
OTHERS = [w for w in range(64) if w != BAD]


def window(spoil, name="ant", seed=0):
    """Eight steps in 64 worlds with gradients; spoil() may damage state or actions before."""
    env = trot.make_env(name, num_worlds=64, seed=seed)
    env.reset()
    generator = torch.Generator().manual_seed(1)
    actions = 2 * torch.rand(8, 64, env.num_actions, generator=generator) - 1
    joint_q, joint_qd = env.state.joint_q.clone(), env.state.joint_qd.clone()
    spoil(joint_q, joint_qd, actions)
    # As a fault arises: in the state that a step begins from, behind the observation's back.
    env.worlds = type(env.worlds)(**{**env.worlds.tensors(), "joint_q": joint_q, "joint_qd": joint_qd})
    actions.requires_grad_()
    steps = [env.step(action) for action in actions]
    torch.stack([reward for _, reward, _, _, _ in steps]).sum().backward()
    return env, steps, actions.grad


def nothing(joint_q, joint_qd, actions):
    pass


def nan_velocity(joint_q, joint_qd, actions):
    joint_qd[BAD, 3] = float("nan")


def huge_velocity(joint_q, joint_qd, actions):
    joint_qd[BAD, 0] = 1e9


def infinite_height(joint_q, joint_qd, actions):
    joint_q[BAD, 2] = float("inf")


def nan_action(joint_q, joint_qd, actions):
    actions[0, BAD, 0] = float("nan")


@pytest.mark.parametrize("spoil", [nan_velocity, huge_velocity, infinite_height, nan_action])
@pytest.mark.parametrize("name", ["ant", "humanoid"])
def test_a_fault_leaves_the_other_worlds_bit_for_bit(name, spoil):
    env, steps, gradient = window(spoil, name)
    clean_env, clean_steps, clean_gradient = window(nothing, name)
    for step, clean in zip(steps, clean_steps, strict=True):
        for found, expected in zip(step[:4], clean[:4], strict=True):
            assert found[OTHERS].equal(expected[OTHERS])
        assert step[4]["final_obs"][OTHERS].equal(clean[4]["final_obs"][OTHERS])
    assert gradient[:, OTHERS].equal(clean_gradient[:, OTHERS])
    assert env.state.joint_q[OTHERS].equal(clean_env.state.joint_q[OTHERS])


@pytest.mark.parametrize("spoil", [nan_velocity, huge_velocity, infinite_height, nan_action])
def test_the_world_itself_is_reset_and_counted_with_reward_zero_and_no_gradient(spoil):
    env, steps, gradient = window(spoil)
    obs, reward, terminated, _, info = steps[0]
    assert info["fault"].nonzero().flatten().tolist() == [BAD]
    assert info["faults"][BAD] == 1 and int(steps[-1][4]["faults"].sum()) == 1
    assert reward[BAD] == 0 and all(term[BAD] == 0 for term in info["reward_terms"].values())
    assert terminated[BAD]
    assert obs[BAD].isfinite().all() and info["final_obs"][BAD].isfinite().all()
    assert gradient.isfinite().all() and (gradient[0, BAD] == 0).all()
    # The episode that began instead is an ordinary one.
    assert (gradient[1:, BAD] != 0).any() and env.worlds.clock[BAD] == 7


def test_bounds_are_one_million():
    joint_q = torch.tensor([[1e6], [-1e6], [1.1e6], [float("nan")], [0.0], [float("-inf")]])
    joint_qd = torch.zeros(6, 2)
    joint_qd[4, 1] = -2e6
    assert is_sound(joint_q, joint_qd).flatten().tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("spoilt", [float("nan"), float("inf"), float("-inf"), 1.0000001e6, -1e30])
@pytest.mark.parametrize("part", range(3))
def test_who_is_not_sound_is_never_told_to_be(dtype, spoilt, part):
    parts = [torch.randn(64, width, dtype=dtype) for width in (15, 14, 3)]
    assert surely_sound(*parts) and surely_sound(*parts[:2])
    parts[part][40, 2] = spoilt
    assert not surely_sound(*parts)


def test_many_sound_worlds_far_away_are_sound_though_their_squares_are_many():
    joint_q, joint_qd = torch.full((64, 15), 9e5), torch.zeros(64, 14)
    assert not surely_sound(joint_q, joint_qd)
    guarded = Guard(torch.zeros(1, 15), torch.zeros(())).take(joint_q, joint_qd, None)
    assert guarded.sound.all() and guarded.joint_q.equal(joint_q)


def test_the_last_good_state_is_kept_and_the_replay_names_the_cause(tmp_path, capsys):
    env = trot.make_env("ant", num_worlds=64, randomize=trot.Randomize(mass=(0.5, 2.0), motor_strength=(0.5, 2.0)))
    env.reset()
    joint_qd = env.state.joint_qd.clone()
    joint_qd[BAD, 6] = 3e5
    env.place(trot.State(env.state.joint_q, joint_qd))
    before, parameter = env.state, env.worlds.parameter
    action = torch.full((64, 8), 0.25)
    assert env.step(action)[4]["fault"].nonzero().flatten().tolist() == [BAD]
    (fault,) = env.last_faults()
    assert (fault.task, fault.world) == ("ant", BAD)
    assert fault.joint_q.equal(before.joint_q[BAD]) and fault.joint_qd.equal(before.joint_qd[BAD])
    assert fault.action.equal(action[BAD]) and fault.parameter.equal(parameter[BAD])
    # Later steps, in which nothing happens, do not overwrite it.
    env.step(action)
    (fault,) = env.last_faults()
    path = tmp_path / "fault.pt"
    fault.save(path)
    assert load_fault(path).joint_qd.equal(before.joint_qd[BAD])
    assert main(["replay-fault", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"ant, world {BAD}: ") and "3e+05" in printed
    assert "float32: non-finite in substep " in printed and "float64: non-finite in substep " in printed


def test_replaying_a_bad_action_blames_the_action(tmp_path, capsys):
    env, _, _ = window(nan_action)
    env.last_faults()[0].save(tmp_path / "fault.pt")
    main(["replay-fault", str(tmp_path / "fault.pt")])
    assert "action 0 is nan" in capsys.readouterr().out


def test_a_file_that_is_no_fault_is_refused(tmp_path, capsys):
    (tmp_path / "fault.pt").write_bytes(b"something else")
    assert main(["replay-fault", str(tmp_path / "fault.pt")]) == 2
    assert "is not a fault file" in capsys.readouterr().err


def test_a_damaged_fault_file_is_refused_rather_than_explained(tmp_path, capsys):
    """PyTorch alone reads over bytes that it does not look at, and over numbers that are others by now."""
    env = trot.make_env("cartpole", 1)
    env.reset()
    path = tmp_path / "fault.pt"
    joint_q, joint_qd = env.state.joint_q[0], env.state.joint_qd[0]
    none = torch.zeros(0)
    Fault("cartpole", 0, joint_q, joint_qd, torch.zeros(1), none, none).save(path)
    assert main(["replay-fault", str(path)]) == 0
    whole = path.read_bytes()
    at = whole.index(joint_q.numpy().tobytes())
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    capsys.readouterr()
    assert main(["replay-fault", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "is not a fault file, or not a whole one: it is damaged, its checksum does not fit its content"
    )
    with pytest.raises(ValueError, match="its checksum does not fit"):
        load_fault(path)


def test_fault_files_of_earlier_versions_have_no_checksum_and_load(tmp_path):
    fault = Fault("ant", 3, *(torch.ones(n) for n in (4, 3, 2, 0, 0)))
    torch.save({"fault": 1, **asdict(fault)}, tmp_path / "fault.pt")
    assert load_fault(tmp_path / "fault.pt").joint_q.equal(torch.ones(4))
