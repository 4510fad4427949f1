"""The gradient of an 8-step reward sum by all actions and by the start state, falls and resets included, float64."""

import pytest
import torch

from trot.cli import main
from trot.envs import window_rewards
from trot.envs.check_task import TaskCheckSettings, check_task_gradients, count_ends, draw_windows
from trot.envs.registry import TASKS, make_env

CAN_FALL = {"hopper", "ant", "humanoid", "muscle_humanoid", "quadruped"}


@pytest.mark.parametrize("name", list(TASKS))
def test_gradients_against_central_differences(name):
    settings = TaskCheckSettings(name)
    env = make_env(name, settings.worlds, dtype=torch.float64)
    windows = draw_windows(env, settings)
    falls, time_outs = count_ends(env, windows)
    assert time_outs >= 3 and (falls >= 5 if name in CAN_FALL else falls == 0)
    for row in check_task_gradients(env, windows, settings):
        assert row.error <= 1e-6, row
        assert row.checked >= 64, row


def test_a_gradient_that_is_a_thousandth_off_fails(monkeypatch, capsys):
    exact = window_rewards.retract

    def spoilt(model, joint_q, tangent):
        return exact(model, joint_q, tangent if not tangent.requires_grad else 1.001 * tangent)

    monkeypatch.setattr(window_rewards, "retract", spoilt)
    assert main(["check", "hopper", "--worlds", "8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("FAILS")] == ["joint_q"]


def test_the_command_prints_a_table(capsys):
    assert main(["check", "cartpole", "--worlds", "12"]) == 0
    printed = capsys.readouterr().out
    assert "run out of time inside the window" in printed and "gradients are right" in printed
    assert all(f"\n{name} " in printed for name in ("actions", "joint_q", "joint_qd"))


TASKS_WITH_FAULTS = """
import torch
from trot.envs.tasks.cartpole import CartPole
from trot.envs.tasks.hopper import Hopper

class Detached(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "angle": terms["angle"].detach()}

class Item(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        numbers = [[number.item()] for number in terms["angle"].detach().flatten()]
        return {**terms, "angle": torch.tensor(numbers, dtype=action.dtype)}

class NoGrad(CartPole):
    @torch.no_grad()
    def reward_terms(self, measured, action):
        return super().reward_terms(measured, action)

class NoGradInControl(CartPole):
    def control(self, action):
        return super().control(action.detach())

class Doubled(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "position": 2 * terms["position"] - terms["position"].detach()}

class NanGradient(CartPole):
    def reward_terms(self, measured, action):
        none = 0 * action[:, :1]
        return {**super().reward_terms(measured, action), "root": (none * none).sqrt()}

class NanReward(CartPole):
    def reward_terms(self, measured, action):
        return {**super().reward_terms(measured, action), "log": action[:, :1].log()}

class Constant(CartPole):
    def reward_terms(self, measured, action):
        return {"alive": torch.ones_like(action[:, :1])}

class Coarse(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {name: term.float().to(term.dtype) for name, term in terms.items()}

class BlowsUp(Hopper):
    def control(self, action):
        return super().control(action) + torch.nan

class AlwaysDouble(CartPole):
    def control(self, action):
        return super().control(action).double()

class Cancels(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "angle": (terms["angle"] + 1e9) - 1e9}

class CancelsLess(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "angle": (terms["angle"] + 1e7) - 1e7}

class FarAngle(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "angle": (terms["angle"] + 1e6).sin()}

class NanObservation(CartPole):
    def observation(self, measured, previous_action):
        none = 0 * measured.position
        return {**super().observation(measured, previous_action), "root": (none * none).sqrt()}

class WrongObservation(CartPole):
    def observation(self, measured, previous_action):
        parts = super().observation(measured, previous_action)
        return {**parts, "twice": 2 * measured.position - measured.position.detach()}

class CutObservation(CartPole):
    def observation(self, measured, previous_action):
        parts = super().observation(measured, previous_action)
        return {**parts, "aside": measured.position.detach()}

class NanMemory(CartPole):
    def draw_memory(self, count, generator, like):
        return {"total": like.new_zeros(count, 1)}
    def next_memory(self, measured, action):
        none = 0 * action
        return {"total": measured.position + (none * none).sqrt()}

class LostGradient(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        none = terms["angle"] - terms["angle"]
        return {**terms, "root": (none * none + 1e-60).sqrt()}

class LostNumber(CartPole):
    def reward_terms(self, measured, action):
        terms = super().reward_terms(measured, action)
        return {**terms, "share": 1e-50 * terms["angle"] / (1e-50 * terms["angle"].detach())}
"""


@pytest.fixture
def check_faulty(tmp_path, capsys):
    path = tmp_path / "faulty.py"
    path.write_text(TASKS_WITH_FAULTS)

    def check(name, code):
        assert main(["check", f"{path}:{name}", "--worlds", "8"]) == code
        return capsys.readouterr()

    return check


def failing(printed):
    return [line.split()[0] for line in printed.splitlines() if line.endswith("FAILS")]


@pytest.mark.parametrize("name", ["Detached", "Item"])
def test_a_reward_term_whose_gradient_is_cut_is_named(check_faulty, name):
    printed = check_faulty(name, 1).out
    assert failing(printed) == ["actions", "joint_q", "joint_qd"]
    assert printed.count("reward term 'angle': the gradient is cut") == 3
    assert "'position'" not in printed


def test_every_reward_term_is_named_where_all_are_cut(check_faulty):
    printed = check_faulty("NoGrad", 1).out
    assert failing(printed) == ["actions", "joint_q", "joint_qd"]
    assert "reward term 'angle', 'angle_rate', 'position', 'velocity': the gradient is cut" in printed


def test_a_cut_between_action_and_physics_fails_by_the_actions_alone(check_faulty):
    printed = check_faulty("NoGradInControl", 1).out
    assert failing(printed) == ["actions"]
    (line,) = (line for line in printed.splitlines() if "alone: " in line)
    assert line.startswith("  NoGradInControl.control() alone: the gradient is cut. Look for .detach()")


def test_a_reward_term_whose_gradient_is_a_factor_off_is_named(check_faulty):
    """The gradient says twice what the term does."""
    printed = check_faulty("Doubled", 1).out
    (line, *_) = (line for line in printed.splitlines() if line.startswith("  reward term"))
    assert "reward term 'position', " in line
    numbers = line.partition("the gradient is ")[2].replace(",", "").split()
    assert float(numbers[0]) == pytest.approx(2 * float(numbers[3]), rel=1e-6)
    assert "'angle'" not in printed


def test_a_gradient_that_is_not_finite_fails(check_faulty):
    printed = check_faulty("NanGradient", 1).out
    assert failing(printed) == ["actions"]
    assert "world 0: the gradient is nan\n  look for the root of zero" in printed
    (line,) = (line for line in printed.splitlines() if "alone: " in line)
    assert line.startswith("  NanGradient.reward_terms()['root'] alone: the gradient is nan; look for the root of zero")
    assert "faulty.py:" in line


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("NanObservation", 1, "observation()['root'] alone: the gradient is nan; look for the root of zero"),
        ("NanMemory", 1, "next_memory()['total'] alone: the gradient is nan; look for the root of zero"),
        ("WrongObservation", 1, "observation()['twice'] alone: the gradient is "),
        ("CutObservation", 0, "observation()['aside'] alone: the gradient is cut"),
    ],
)
def test_a_method_that_no_reward_depends_on_is_checked_too(check_faulty, name, code, line):
    """Learning differentiates through what the policy sees. To cut it off may be the intention."""
    printed = check_faulty(name, code).out
    assert failing(printed) == []
    (shown,) = (line for line in printed.splitlines() if "alone: " in line)
    assert shown.startswith(f"  {name}.{line}")


def test_a_reward_that_is_not_finite_is_named_in_one_line(check_faulty):
    error = check_faulty("NanReward", 2).err
    assert "reward term 'log' is nan in world " in error
    assert len(error.splitlines()) == 1


def test_a_constant_reward_has_a_right_gradient_of_zero(check_faulty):
    assert "gradients are right" in check_faulty("Constant", 0).out


def test_rewards_rounded_to_single_precision_are_too_coarse_to_tell_and_not_wrong(check_faulty):
    """Their gradient is right, but short differences see no change at all."""
    assert "reward term 'angle' is rounded to float32" in check_faulty("Coarse", 2).err


def test_worlds_that_all_blow_up_are_not_a_pass(check_faulty):
    printed = check_faulty("BlowsUp", 1).out
    assert "8 worlds blow up inside the window" in printed
    assert "0 fall" in printed
    assert "NOT CHECKED by actions: every world blows up" in printed
    assert "gradients are right" not in printed


# In the precision that trains.


@pytest.mark.parametrize("name", [*TASKS, "examples/walker/my_task.py:Walker"])
def test_single_precision_says_what_double_does(name, capsys):
    assert main(["check", name, "--worlds", "8", "--directions", "1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("float32, which trains: rewards within ")
    shares = [float(word) for word in last.split() if word[0].isdigit()]
    assert len(shares) == 4 and max(shares) < 1e-3


def test_a_task_that_is_double_by_itself_is_refused(check_faulty):
    error = check_faulty("AlwaysDouble", 2).err
    assert "AlwaysDouble.control() must be torch.float32 on cpu, not torch.float64" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(("name", "double", "single"), [("Cancels", "1e-07", "6e+01"), ("CancelsLess", "2e-09", "1")])
def test_a_difference_of_large_numbers_is_named_and_is_no_wrong_gradient(check_faulty, name, double, single):
    """At 1e9 double precision counts in steps of 2^-23 and single precision of 64; at 1e7 of 2^-29 and 1."""
    shown = check_faulty(name, 2)
    (line,) = shown.err.splitlines()
    assert f"reward term 'angle' has a precision of {double} in float64" in line
    assert f"of {single} in float32, which trains: look for a difference of large numbers" in line
    assert "WRONG" not in shown.out


def test_a_reward_that_only_single_precision_loses_is_named(check_faulty):
    """At 1e6 single precision counts in sixteenths, which is much for the angle of a sine."""
    printed = check_faulty("FarAngle", 1).out
    assert "gradients are right" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("FAILS in float32"))
    assert "reward term 'angle' is " in line and "difference of large numbers" in line


def test_a_gradient_that_only_double_keeps_finite_fails(check_faulty):
    printed = check_faulty("LostGradient", 1).out
    assert "gradients are right" in printed
    assert "FAILS in float32, which trains: the gradient by joint_q is not finite in 8 worlds" in printed


def test_a_reward_that_only_double_keeps_finite_is_named(check_faulty):
    assert "reward term 'share' is not finite in 8 worlds" in check_faulty("LostNumber", 1).out


@pytest.mark.parametrize(
    "wrong",
    [
        ["--worlds", "0"],
        ["--steps", "0"],
        ["--steps", "240"],
        ["--directions", "0"],
        ["--tolerance", "nan"],
        ["--tolerance", "-1e-6"],
        ["--seed", "99999999999999999999"],
    ],
    ids=" ".join,
)
def test_impossible_settings_are_one_line(wrong, capsys):
    assert main(["check", "cartpole", *wrong]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
