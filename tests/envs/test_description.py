"""What a policy's observations and actions are said to be, against MuJoCo and against the observations themselves."""

import math
import re
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from slider_task import Rail
from tasks_with_memory import COMMANDED

import trot
from trot.envs.description import derived_entries, described_actions, described_joints, described_observation
from trot.envs.entry import Entry
from trot.envs.registry import TASKS, make_task
from trot.envs.situation import joined

TARGETS = {"ant": 10_000, "humanoid": 200, "muscle_humanoid": 10_000}
"""How far along x they run, m."""


def random_situation(task):
    """One world in the middle of something, and the action before."""
    generator = torch.Generator().manual_seed(3)
    start = task.start.draw(task.model, 1, None, torch.zeros((), dtype=torch.float64))

    def chance(width):
        return torch.rand(1, width, generator=generator, dtype=torch.float64) - 0.5

    joint_q = trot.retract(task.model, start.joint_q, chance(task.model.num_dofs))
    memory = task.draw_memory(1, generator, start.joint_q)
    return trot.Situation(joint_q, 4 * chance(task.model.num_dofs), memory), 2 * chance(task.num_actions)


def measured_by_mujoco(task, situation, action):
    """Quantities by the names of entries, in SI units, from MuJoCo's own kinematics."""
    model, body = task.model.source, task.model.body_name[0]
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = situation.joint_q[0], situation.joint_qd[0]
    mujoco.mj_forward(model, data)
    rotation, position = data.body(body).xmat.reshape(3, 3), data.body(body).xpos
    found = {f"{name} action before": a for name, a in zip(task.model.actuator_name, action[0].tolist(), strict=True)}
    for joint in range(model.njnt):
        name, q, qd = model.joint(joint).name, model.jnt_qposadr[joint], model.jnt_dofadr[joint]
        if model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_BALL):
            found |= {f"{name} quaternion {part}": data.qpos[q + k] for k, part in enumerate("wxyz")}
            found |= {f"{name} angular velocity {axis}": data.qvel[qd + k] for k, axis in enumerate("xyz")}
        found |= {f"{name} angle": data.qpos[q], f"{name} rate": data.qvel[qd]}
    found |= {f"{body} position {axis}": position[k] for k, axis in enumerate("xyz")}
    found |= {f"{body} quaternion {part}": data.body(body).xquat[k] for k, part in enumerate("wxyz")}
    twist, kind = np.zeros(6), mujoco.mjtObj.mjOBJ_XBODY
    for frame in ("world", body):
        mujoco.mj_objectVelocity(model, data, kind, model.body(body).id, twist, frame != "world")
        found |= {(f"{body} angular velocity {axis}", frame): twist[k] for k, axis in enumerate("xyz")}
        found |= {(f"{body} velocity {axis}", frame): twist[3 + k] for k, axis in enumerate("xyz")}
    down = rotation.T @ [0, 0, -1]
    found |= {f"direction of gravity {axis}": down[k] for k, axis in enumerate("xyz")}
    found |= {f"cosine between {body}'s {axis} and world z": rotation[2, k] for k, axis in enumerate("xyz")}
    way = np.array([TARGETS.get(task.name, 1.0) - position[0], -position[1]])
    for k, axis in enumerate("xyz"):
        cosine = rotation[:2, k] @ way / np.linalg.norm(way)
        found[f"cosine between {body}'s {axis} and the way to the target"] = cosine
    found[f"{body} pitch, positive tips its top towards +x"] = math.atan2(rotation[0, 2], rotation[2, 2])
    mujoco.mj_objectVelocity(model, data, kind, model.body(body).id, twist, False)
    found[f"{body} pitch rate"] = twist[1]
    if task.name == "cartpole":
        top = data.body("pole").xmat.reshape(3, 3)[:, 2]
        found |= {"sine of the pole's angle, 0 upright, positive towards +x": top[0]}
        found |= {"cosine of the pole's angle, 0 upright": top[2]}
    if task.name == "quadruped":
        commands = situation.memory["commands"][0].tolist()
        names = ("commanded velocity x", "commanded velocity y", "commanded turning z")
        found |= dict(zip(names, commands[:3], strict=True))
        turned = 2 * math.tau * situation.memory["elapsed"].item()
        found |= {"sine of 2 strides per second": math.sin(turned), "cosine of 2 strides per second": math.cos(turned)}
    return found


@pytest.mark.parametrize("name", TASKS)
def test_scale_and_offset_make_the_observation_of_what_mujoco_measures(name):
    task = make_task(name)
    situation, action = random_situation(task)
    quantities = measured_by_mujoco(task, situation, action)
    observation = joined(task.observation(task.measure(situation), action))[0].numpy()
    entries = described_observation(trot.make_env(task, 1))
    assert len(entries) == len(observation)
    for entry, number in zip(entries, observation, strict=True):
        # What is told in several frames.
        quantity = quantities.get(entry["name"], quantities.get((entry["name"], entry["frame"])))
        assert quantity is not None, entry
        assert number == pytest.approx(entry["scale"] * (quantity - entry["offset"]), abs=1e-9), entry
    assert len({entry["name"] for entry in entries}) == len(entries), "a program finds them by their names"
    assert {entry["unit"] for entry in entries} <= {"1", "m", "m/s", "rad", "rad/s"}


@pytest.mark.parametrize("name", ["hopper", "ant", "quadruped"])
def test_what_is_found_out_agrees_with_what_the_task_says(name):
    task = make_task(name)
    told = [entry for part in task.observation_entries().values() for entry in part]
    agreed = 0
    for found, said in zip(derived_entries(task), told, strict=True):
        if re.search("(angle|rate|action before)$", said.name) and "pitch" not in said.name:
            assert found is not None and replace(found, offset=said.offset) == said
            assert found.offset == pytest.approx(said.offset, abs=1e-9)
            agreed += 1
    assert agreed == {"hopper": 6, "ant": 24, "quadruped": 36}[name]


class Undescribed(Rail):
    def observation(self, measured, previous_action):
        q, qd = measured.joint_q, measured.joint_qd
        return {
            "place": 2 * (q - 0.25),
            "both": q + qd,
            "bent": q.square(),
            "one": torch.ones_like(q),
            "last": -previous_action,
            "speed": 0.1 * qd,
        }


def test_a_task_that_says_nothing_is_found_out_where_it_can_be():
    found = {one.pop("part"): one for one in described_observation(trot.make_env(Undescribed, 1))}
    nothing = {"name": "not described"}
    assert found["both"] == found["bent"] == found["one"] == nothing
    assert found["place"] == {"name": "rail displacement", "unit": "m", "frame": "joint", "scale": 2, "offset": 0.25}
    assert found["speed"] == {"name": "rail rate", "unit": "m/s", "frame": "joint", "scale": 0.1, "offset": 0}
    assert (found["last"]["unit"], found["last"]["scale"]) == ("1", -1)


def test_descriptions_that_do_not_fit_are_refused():
    class TooMany(Rail):
        def observation_entries(self):
            return {"q": [Entry("here", "m", "world"), Entry("there", "m", "world")]}

    class Unknown(Rail):
        def observation_entries(self):
            return {"place": [Entry("here", "m", "world")]}

    with pytest.raises(ValueError, match=r"TooMany.observation_entries\(\) has 2 entries for 'q', of which .* has 1"):
        described_observation(trot.make_env(TooMany, 1))
    with pytest.raises(ValueError, match="describes 'place', but the observation's parts are q, qd"):
        described_observation(trot.make_env(Unknown, 1))


def test_servos_of_the_quadruped():
    task = make_task("quadruped")
    told = described_actions(task)
    assert [one["name"] for one in told] == list(task.model.actuator_name)
    # Worked out from the file: kp 35, at most 23.7 N m, and from the task: 0.9 rad and half a rad around it.
    thigh = told[1]
    assert thigh["kind"] == "position servo" and thigh["unit"] == "rad" and thigh["force_unit"] == "N m"
    assert (thigh["kp"], thigh["kd"], thigh["gear"]) == (35, 0, [1])
    assert thigh["control"] == {"scale": 0.5, "offset": 0.9} and thigh["force_range"] == [-23.7, 23.7]
    assert len(thigh["joints"]) == 1 and "thigh" in thigh["joints"][0]


def test_motors_muscles_and_what_cannot_be_told():
    thigh, *_ = described_actions(make_task("hopper"))
    assert thigh["kind"] == "motor" and thigh["joints"] == ["thigh"] and thigh["gear"] == [200]
    assert thigh["control"] == {"scale": 1, "offset": 0} and thigh["range"] == [-1, 1] and thigh["force_unit"] == "N m"
    (cart,) = described_actions(make_task("cartpole"))
    assert cart["force_unit"] == "N"
    muscles = described_actions(make_task("muscle_humanoid"))
    assert {one["kind"] for one in muscles} == {"muscle"}
    assert all(one["control"] == {"scale": 0.5, "offset": 0.5} for one in muscles)
    assert [one["control"] for one in described_actions(make_task(COMMANDED))] == ["not described"] * 3

    class Mixed(Rail):
        def control(self, action):
            return action**3

    assert described_actions(Mixed())[0]["control"] == "not described"


def test_joints_in_their_order():
    told = described_joints(make_task("quadruped").model)
    assert told[0]["type"] == "free" and told[0]["joint_q"] == [0, 7] and told[0]["joint_qd"] == [0, 6]
    assert [one["joint_q"] for one in told[1:]] == [[7 + k, 8 + k] for k in range(12)]
    assert {(one["damping"], one["armature"]) for one in told[1:]} == {(0.5, 0.005)}
    assert all(low < high for low, high in (one["range"] for one in told[1:]))
