"""The gradient of an 8-step reward sum by all actions and by the start state, falls and resets included, float64."""

import pytest

from trot.cli import main
from trot.envs import check_task
from trot.envs.check_task import TaskCheckSettings, check_task_gradients, count_ends, draw_windows
from trot.envs.registry import TASKS, make_env

CAN_FALL = {"hopper", "ant", "humanoid", "muscle_humanoid"}


@pytest.mark.parametrize("name", list(TASKS))
def test_gradients_against_central_differences(name):
    settings = TaskCheckSettings(name)
    env = make_env(name, settings.worlds, dtype=check_task.torch.float64)
    windows = draw_windows(env, settings)
    falls, time_outs = count_ends(env, windows)
    assert time_outs >= 3 and (falls >= 5 if name in CAN_FALL else falls == 0)
    for row in check_task_gradients(env, windows, settings):
        assert row.error <= 1e-6, row
        assert row.checked >= 64, row


def test_a_gradient_that_is_a_thousandth_off_fails(monkeypatch, capsys):
    exact = check_task.retract

    def spoilt(model, joint_q, tangent):
        return exact(model, joint_q, tangent if not tangent.requires_grad else 1.001 * tangent)

    monkeypatch.setattr(check_task, "retract", spoilt)
    assert main(["check", "hopper", "--worlds", "8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("FAILS")] == ["joint_q"]


def test_the_command_prints_a_table(capsys):
    assert main(["check", "cartpole", "--worlds", "12"]) == 0
    printed = capsys.readouterr().out
    assert "run out of time inside the window" in printed and "gradients are right" in printed
    assert all(f"\n{name} " in printed for name in ("actions", "joint_q", "joint_qd"))
