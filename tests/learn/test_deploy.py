"""The loop of docs/deploy.md, run with MuJoCo as the robot."""

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from made_run import make_run

import trot
from trot.learn.export import export_command

pytest.importorskip("onnxruntime")
DOC = Path(__file__).parents[2] / "docs" / "deploy.md"


class Robot:
    """The quadruped in MuJoCo, which is measured and driven by names."""

    def __init__(self, model, command):
        self.model, self.data, self.command = model, mujoco.MjData(model), command
        self.measured, self.sent = [], []

    def measure(self):
        mujoco.mj_forward(self.model, self.data)
        trunk, twist = self.data.body("trunk"), np.zeros(6)
        mujoco.mj_objectVelocity(
            self.model, self.data, mujoco.mjtObj.mjOBJ_XBODY, self.model.body("trunk").id, twist, 1
        )
        down = trunk.xmat.reshape(3, 3).T @ [0, 0, -1]
        found = {"trunk position z": trunk.xpos[2]}
        for k, axis in enumerate("xyz"):
            found[f"trunk angular velocity {axis}"], found[f"trunk velocity {axis}"] = twist[k], twist[3 + k]
            found[f"direction of gravity {axis}"] = down[k]
        found |= dict(
            zip(("commanded velocity x", "commanded velocity y", "commanded turning z"), self.command, strict=True)
        )
        for joint in range(1, self.model.njnt):
            name = self.model.joint(joint).name
            found[f"{name} angle"], found[f"{name} rate"] = self.data.qpos[6 + joint], self.data.qvel[5 + joint]
        turned = 2 * np.pi * 2 * 0.02 * len(self.measured)
        found |= {"sine of 2 strides per second": np.sin(turned), "cosine of 2 strides per second": np.cos(turned)}
        self.measured.append(np.concatenate([self.data.qpos, self.data.qvel]))
        return found

    def send(self, controls):
        self.sent.append(controls)
        for name, control in controls.items():
            self.data.actuator(name).ctrl = control
        mujoco.mj_step(self.model, self.data, 4)


def test_the_loop_acts_as_the_agent_does_in_the_simulator(tmp_path, monkeypatch):
    run, agent = make_run(tmp_path, "quadruped")
    assert export_command([str(run.path)]) == 0
    monkeypatch.chdir(run.path / "export")
    (block,) = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    assert len(block.splitlines()) < 50
    program = {}
    exec(compile(block, str(DOC), "exec"), program)
    monkeypatch.setattr(program["time"], "sleep", lambda seconds: None)

    env = trot.make_env("quadruped", 1)
    env.reset()
    command = env.state.memory["commands"][0, :3].tolist()
    robot = Robot(env.task.model.source, command)
    robot.data.qpos[:] = env.state.joint_q[0]
    robot.data.qvel[:] = env.state.joint_qd[0]
    program["run"](robot, 0.2)
    assert len(robot.sent) == 10
    # The simulator is put where the robot was, and sees, decides and commands the same.
    previous = torch.zeros(1, 12)
    for step, (state, controls) in enumerate(zip(robot.measured, robot.sent, strict=True)):
        joint_q, joint_qd = (torch.tensor(part, dtype=torch.float32)[None] for part in (state[:19], state[19:]))
        elapsed = {"elapsed": torch.tensor([[0.02 * step]])}
        action = agent(env.place(trot.Situation(joint_q, joint_qd, elapsed), previous))
        expected = env.task.control(action)[0]
        found = torch.tensor([controls[name] for name in env.task.model.actuator_name], dtype=torch.float32)
        low, high = (torch.tensor(bound, dtype=torch.float32) for bound in bounds(env))
        torch.testing.assert_close(found, expected.clamp(low, high), rtol=0, atol=1e-4)
        previous = action
    assert expected.std() > 0.1 and previous.abs().max() > 0.1


def bounds(env):
    return env.task.model.control_lower, env.task.model.control_upper
