"""Mirror images of tasks: partners as the robots' files name them, MuJoCo as a judge, and what is refused."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from trot.envs.env import Env
from trot.envs.mirror import Mirror, MirroredStates, find_mirror, mirror_matrix, on_the_other_side
from trot.envs.registry import make_env
from trot.envs.start import Start
from trot.envs.tasks.ant import Ant
from trot.envs.tasks.quadruped import Quadruped
from trot.envs.torso import torso_observation
from trot.sim.state import State

# Legs 1 and 4 are in front, 2 and 3 behind; 1 and 2 on the left. Hips turn about the vertical, so the other way round
# in a mirror; an ankle's axis becomes its partner's.
ANT_LEGS = (-7, 8, -5, 6, -3, 4, -1, 2)
# Height; w x y z; velocity and turning along and about x, y, z.
TORSO = (1, 2, -3, 4, -5, 6, -7, 8, -9, 10, -11)


def behind(first, places):
    """Places of a part that begins behind so many entries."""
    return tuple(place + first if place > 0 else place - first for place in places)


@pytest.fixture(scope="module")
def ant():
    return find_mirror(make_env("ant", num_worlds=1))


def test_an_ant_by_hand(ant):
    up_and_heading = (28, 29)
    assert ant.action == ANT_LEGS
    assert ant.observation == (
        *TORSO, *behind(11, ANT_LEGS), *behind(19, ANT_LEGS), *up_and_heading, *behind(29, ANT_LEGS)
    )  # fmt: skip


def test_a_humanoids_right_is_its_left():
    env = make_env("humanoid", num_worlds=1)
    names, places = env.task.model.actuator_name, find_mirror(env).action
    swapped = {"right": "left", "left": "right"}
    for name, place in zip(names, places, strict=True):
        side, _, rest = name.partition("_")
        partner = f"{swapped[side]}_{rest}" if side in swapped else name
        assert names[abs(place) - 1] == partner
    # In the file both knees turn about -y, and the right hip_x about x where the left one turns about -x.
    signs = dict(zip(names, np.sign(places), strict=True))
    assert signs["right_knee"] == signs["left_knee"] == signs["right_hip_x"] == signs["abdomen_y"] == 1
    assert signs["abdomen_x"] == signs["abdomen_z"] == signs["right_ankle_x"] == -1


@pytest.mark.parametrize("task", ["ant", "humanoid"])
def test_mujoco_moves_mirror_images_as_mirror_images(task):
    # The same file, but another program: other contacts, other limits, float64.
    env = make_env(task, num_worlds=1)
    mirror, model = find_mirror(env), env.task.model.source
    nq, nv, num_joints = model.nq, model.nv, model.nq - 7
    # joints and joint_rates lie in the observation behind height, rotation, velocity and turning.
    joints = mirror_matrix(
        tuple(np.sign(p) * (abs(p) - 11) for p in mirror.observation[11 : 11 + num_joints]), env._zero
    )
    joints = joints.double().numpy()
    control = mirror_matrix(mirror.action, env._zero).double().numpy()
    random = np.random.default_rng(0)
    here, there = mujoco.MjData(model), mujoco.MjData(model)
    here.qpos[:] = env.task.start.pose(env.task.model)
    turned = random.normal(size=4) * 0.1 + [1, 0, 0, 0]
    here.qpos[3:7] = turned / np.linalg.norm(turned)
    here.qpos[7:] += 0.1 * random.normal(size=nq - 7)
    here.qvel[:] = random.normal(size=nv)
    there.qpos[:3], there.qpos[3:7] = here.qpos[:3] * [1, -1, 1], here.qpos[3:7] * [1, -1, 1, -1]
    there.qpos[7:] = here.qpos[7:] @ joints
    there.qvel[:6] = here.qvel[:6] * [1, -1, 1, -1, 1, -1]
    there.qvel[6:] = here.qvel[6:] @ joints
    for _ in range(40):
        here.ctrl[:] = random.uniform(-1, 1, size=model.nu)
        there.ctrl[:] = here.ctrl @ control
        for data in (here, there):
            mujoco.mj_step(model, data)
    assert here.ncon > 0 or task == "humanoid"
    np.testing.assert_allclose(there.qpos[:3], here.qpos[:3] * [1, -1, 1], atol=1e-6)
    np.testing.assert_allclose(there.qpos[7:], here.qpos[7:] @ joints, atol=1e-6)
    np.testing.assert_allclose(there.qvel[6:], here.qvel[6:] @ joints, atol=1e-4)


def test_a_mirrored_twice_is_as_it_was(ant):
    for places in (ant.observation, ant.action):
        matrix = mirror_matrix(places, torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(matrix @ matrix, torch.eye(len(places), dtype=torch.float64), rtol=0, atol=0)


def test_mirror_matrix_by_hand():
    row = torch.tensor([10.0, 20.0, 30.0])
    assert (row @ mirror_matrix((-2, 1, 3), row)).tolist() == [-20.0, 10.0, 30.0]


def test_the_same_in_double_precision(ant):
    assert find_mirror(make_env("ant", num_worlds=1, dtype=torch.float64)) == ant


def test_finding_it_leaves_the_environment_alone():
    env, untouched = (make_env("ant", num_worlds=2, seed=3) for _ in range(2))
    find_mirror(env)
    torch.testing.assert_close(env.reset()[0], untouched.reset()[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("hopper", "its first joint is not free"),
        ("cartpole", "its first joint is not free"),
    ],
)
def test_what_has_none_is_refused_by_name(task, reason):
    with pytest.raises(ValueError, match=f"the task '{task}' has no mirror image: .*{reason}.*without --symmetric"):
        find_mirror(make_env(task, num_worlds=1))


def test_a_muscle_on_the_right_is_its_namesake_on_the_left():
    # Toes are not alike on both sides of this robot: of their 24 muscles the names tell.
    env = make_env("muscle_humanoid", num_worlds=1)
    names, found = env.task.model.actuator_name, find_mirror(env)
    other = {"l": "r", "r": "l"}
    assert [names[place - 1] for place in found.action] == [other[name[0]] + name[1:] for name in names]
    # Hips and ankles are quaternions in the pelvis' axes at the start, of which x is to the left, y up, z ahead: a turn
    # about x stays, others go the other way round.
    assert found.observation[11:15] == (23, 24, -25, -26)
    assert found.observation[33:36] == (43, -44, -45)


def test_toes_do_not_stand_for_the_whole_robot(monkeypatch):
    monkeypatch.setattr("trot.envs.mirror.FEW", 0.1)
    with pytest.raises(ValueError, match="no action does on the other side what that of 'l_extensor_digitorum_longus'"):
        find_mirror(make_env("muscle_humanoid", num_worlds=1))


@pytest.mark.parametrize(
    ("name", "other"),
    [("left_knee", "right_knee"), ("knee_R", "knee_L"), ("Right hip", "Left hip"), ("l_toe", "r_toe"),
     ("ankle_1", None), ("tool", None), ("l_to_r", None)],
)  # fmt: skip
def test_names_of_the_other_side(name, other):
    assert on_the_other_side(name) == other


ARMS = """
<mujoco>
  <worldbody>
    <body name="trunk" pos="0 0 1">
      <freejoint name="root"/>
      <geom type="box" size="0.2 0.1 0.3"/>
      <body name="left" pos="0.05 0.2 0.1" quat="0.8 0.1 -0.5 0.2">
        <joint name="left" type="ball"/>
        <geom type="capsule" fromto="0 0 0 0.3 0.1 0" size="0.04"/>
        <body name="left_hand" pos="0.3 0.1 0"><joint name="left_wrist" axis="1 2 3"/><geom size="0.05"/></body>
      </body>
      <body name="right" pos="0.05 -0.2 0.1" quat="-0.3 0.9 0.2 0.4">
        <joint name="right" type="ball"/>
        <geom type="capsule" fromto="RIGHT" size="0.04"/>
        <body name="right_hand" pos="HAND"><joint name="right_wrist" axis="AXIS"/><geom size="0.05"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
"""Two arms whose frames are turned in unlike ways. Places on the right are worked out from those on the left."""


def rotation(quaternion):
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, np.array(quaternion) / np.linalg.norm(quaternion))
    return found.reshape(3, 3)


def test_mujoco_places_and_moves_ball_joints_as_mirror_images(tmp_path):
    left, right = rotation([0.8, 0.1, -0.5, 0.2]), rotation([-0.3, 0.9, 0.2, 0.4])
    across = right.T @ np.diag([1, -1, 1]) @ left
    hand, axis = across @ [0.3, 0.1, 0], across @ [1, 2, 3]
    told = {name: " ".join(map(repr, map(float, place))) for name, place in (("HAND", hand), ("AXIS", axis))}
    path = tmp_path / "arms.xml"
    path.write_text(ARMS.replace("RIGHT", "0 0 0 HAND").replace("HAND", told["HAND"]).replace("AXIS", told["AXIS"]))

    class Arms(Ant):
        robot = path
        start = Start()

    task, random = Arms(), np.random.default_rng(0)
    model, like = task.model.source, torch.zeros((), dtype=torch.float64)
    here, there = mujoco.MjData(model), mujoco.MjData(model)
    here.qpos[:] += random.normal(size=model.nq)
    mujoco.mj_normalizeQuat(model, here.qpos)
    here.qvel[:] = random.normal(size=model.nv)
    image = MirroredStates(task, like).of(State(torch.from_numpy(here.qpos)[None], torch.from_numpy(here.qvel)[None]))
    there.qpos[:], there.qvel[:] = image.joint_q[0], image.joint_qd[0]
    names = ("trunk", "left", "left_hand", "right", "right_hand")
    for _ in range(20):
        for data in (here, there):
            mujoco.mj_step(model, data)
    for data in (here, there):
        mujoco.mj_forward(model, data)
    for name in names:
        partner = swapped_side(name)
        np.testing.assert_allclose(there.body(partner).xpos, here.body(name).xpos * [1, -1, 1], atol=1e-12)
        velocity, image_velocity = (
            speed_of(model, data, data.body(which).id) for data, which in ((here, name), (there, partner))
        )
        np.testing.assert_allclose(image_velocity, velocity * [-1, 1, -1, 1, -1, 1], atol=1e-9)


def swapped_side(name):
    return name.replace("left", "right") if "left" in name else name.replace("right", "left")


def speed_of(model, data, body):
    """Turning and moving, in the world's axes."""
    found = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body, found, 0)
    return found


def lopsided(tmp_path, old, new):
    """The Ant with one thing changed in its file."""
    text = Ant.robot.read_text()
    assert text.count(old) == 1
    path = tmp_path / "lopsided.xml"
    path.write_text(text.replace(old, new))

    class Lopsided(Ant):
        robot = path

    return Env(Lopsided(), 1)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('<motor name="ankle_1" joint="ankle_1"/>', '<motor name="ankle_1" joint="ankle_1" gear="150"/>',
         "no action does on the other side what that of 'ankle_1' does"),
        ('<body name="leg_1" pos="0.2 0.2 0">', '<body name="leg_1" pos="0.25 0.2 0">',
         "the joint 'hip_1' has no partner on the other side"),
        ('name="foot_2" fromto="0 0 0 -0.4 0.4 0"', 'name="foot_2" fromto="0 0 0 -0.4 0.4 0" size="0.09"',
         "no action does on the other side what that of 'ankle_2' does"),
    ],
)  # fmt: skip
def test_a_lopsided_robot(tmp_path, old, new, reason):
    with pytest.raises(ValueError, match=reason):
        find_mirror(lopsided(tmp_path, old, new))


class PaidToDriftLeft(Ant):
    def reward_terms(self, measured, action):
        return {"left": measured.velocity[:, 1:2]}


class FallsToTheLeft(Ant):
    def fallen(self, measured):
        return measured.velocity[:, 1:2] > 0


class SeesLittle(Ant):
    """The same, a thousand times smaller."""

    def observation(self, measured, previous_action):
        return {name: 1e-3 * part for name, part in super().observation(measured, previous_action).items()}

    def observation_entries(self):
        return {}


def test_the_size_of_what_is_seen_does_not_matter(ant):
    assert find_mirror(Env(SeesLittle(), 1)) == ant


class SeesOneSide(Ant):
    def observation(self, measured, previous_action):
        return {"height": measured.height, "left": measured.joints[:, :2]}

    def observation_entries(self):
        return {}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (PaidToDriftLeft, "mirrored worlds do not earn as mirror images"),
        (FallsToTheLeft, "mirrored worlds do not fall as mirror images"),
        (SeesOneSide, r"entry 1 of its observation \('left'\) becomes none in a mirror"),
    ],
)
def test_a_lopsided_task(kind, reason):
    with pytest.raises(ValueError, match=reason):
        find_mirror(Env(kind(), 1))


def test_a_commanded_quadruped_by_hand():
    env = make_env("quadruped", num_worlds=1)
    found, names = find_mirror(env), env.task.model.actuator_name
    # Hip, thigh and calf of each leg. Hips turn about x.
    assert [name[:2] for name in names[::3]] == ["FL", "FR", "RL", "RR"]
    legs = (-4, 5, 6, -1, 2, 3, -10, 11, 12, -7, 8, 9)
    assert found.action == legs
    # Height; velocity, turning and gravity in the trunk's axes; the command. The clock stands half a stride later.
    front = (1, 2, -3, 4, -5, 6, -7, 8, -9, 10, 11, -12, -13)
    assert found.observation == (*front, *behind(13, legs), *behind(25, legs), *behind(37, legs), -50, -51)


class Forgetful(Quadruped):
    def mirrored_memory(self, memory, mirrored_action):
        return None


class HalfForgetful(Quadruped):
    def mirrored_memory(self, memory, mirrored_action):
        return {"commands": memory["commands"]}


class Contrary(Quadruped):
    """Commands to the left stay what they are."""

    def mirrored_memory(self, memory, mirrored_action):
        return {**super().mirrored_memory(memory, mirrored_action), "commands": memory["commands"]}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Forgetful, r"it has a memory, and no mirrored_memory\(\)"),
        (HalfForgetful, r"mirrored_memory\(\) must give commands, elapsed, last_action, and gives commands\."),
        (Contrary, "mirrored worlds do not earn as mirror images"),
    ],
)
def test_a_memory_without_its_mirror_image(kind, reason):
    with pytest.raises(ValueError, match=reason):
        find_mirror(Env(kind(), 1))


class Turned(Ant):
    """Begins with its right side in front, so that its legs 3 and 4 lie there, and 2 and 3 on the right."""

    start = replace(Ant.start, joint_q=(*Ant.start.joint_q[:3], 0.5**0.5, 0.0, 0.0, 0.5**0.5, *Ant.start.joint_q[7:]))

    def observation(self, measured, previous_action):
        seen = torso_observation(measured)
        return {name: seen[name] for name in ("height", "joints", "joint_rates")}

    def observation_entries(self):
        return {}

    def reward_terms(self, measured, action):
        return {"forward": measured.forward_speed}


def test_the_plane_is_the_worlds_and_not_the_bodys():
    # In this plane an ankle's axis, (-1, 1, 0), becomes (-1, -1, 0), the opposite of its partner's.
    legs = (-3, -4, -1, -2, -7, -8, -5, -6)
    assert find_mirror(Env(Turned(), 1)) == Mirror((1, *behind(1, legs), *behind(9, legs)), legs)
