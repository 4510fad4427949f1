"""A robot's file, what it includes and its meshes: edited between two environments, seen by the second."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from small_robot import mjcf

import trot
from trot.envs.registry import TASKS, make_task
from trot.envs.task import ASSETS, load_once
from trot.envs.tasks.ant import Ant
from trot.sim.load import load_model

LEG = '<geom name="ball" size="{size}" density="1000" user="{user}"/>'


def write(folder, size=0.1, user="2e4 1e3 1e3"):
    (folder / "leg.xml").write_text(mjcf(geom=LEG.format(size=size, user=user)))
    return str(folder / "leg.xml")


def mass(path):
    return float(load_once(path, False, False).body_mass[0])


def ball(size):
    return 4 / 3 * np.pi * size**3 * 1000


@pytest.mark.parametrize("name", list(TASKS))
def test_tasks_of_the_same_robot_share_its_model(name):
    assert make_task(name).model is make_task(name).model


def test_worlds_of_a_file_share_its_model_until_it_is_edited(tmp_path):
    path = write(tmp_path)
    before = load_once(path, False, False)
    assert load_once(path, False, False) is before and mass(path) == pytest.approx(ball(0.1))
    write(tmp_path, size=0.2)
    after = load_once(path, False, False)
    assert after is not before and mass(path) == pytest.approx(ball(0.2))
    assert load_once(path, False, False) is after
    # Written again without a change: the same robot.
    write(tmp_path, size=0.2)
    assert load_once(path, False, False) is after
    # The model in use is as it was.
    assert before.body_mass[0] == pytest.approx(ball(0.1))


def test_an_environment_made_after_the_edit_has_the_new_robot(tmp_path):
    class Balls(type(make_task("hopper"))):
        robot = str(tmp_path / "hopper.xml")

    text = Balls.__base__.robot.read_text()
    (tmp_path / "hopper.xml").write_text(text)
    first, second = (trot.make_env(Balls, 1) for _ in range(2))
    assert first.task.model is second.task.model
    (tmp_path / "hopper.xml").write_text(text.replace('gear="200"', 'gear="100"'))
    third = trot.make_env(Balls, 1)
    assert third.task.model.motor_gear.tolist() == [100] * 3 and first.task.model.motor_gear.tolist() == [200] * 3


def test_the_number_of_user_values_counts_which_the_compiler_pads_away(tmp_path):
    path = write(tmp_path, user="2e4 1e3 0")
    assert load_once(path, False, False).notes == ()
    write(tmp_path, user="2e4 1e3")
    (note,) = load_once(path, False, False).notes
    assert note.startswith("user of geom 'ball' is not read")


def test_an_edited_include_is_seen(tmp_path):
    (tmp_path / "robot.xml").write_text('<mujoco><include file="parts/leg.xml"/></mujoco>')
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts")
    path = str(tmp_path / "robot.xml")
    before = load_once(path, False, False)
    assert load_once(path, False, False) is before
    write(tmp_path / "parts", size=0.2)
    assert mass(path) == pytest.approx(ball(0.2))


@pytest.mark.parametrize("meshdir", ["", "meshes"])
def test_an_edited_mesh_is_seen_however_soon(tmp_path, meshdir):
    """MuJoCo alone would miss all but the first edit within a second."""
    (tmp_path / meshdir).mkdir(exist_ok=True)
    body = '<geom type="mesh" mesh="corner" contype="0" conaffinity="0" density="1000"/>'
    top = f'<compiler meshdir="{meshdir}"/><asset><mesh name="corner" file="corner.obj"/></asset>'
    (tmp_path / "robot.xml").write_text(mjcf(geom=body, top=top))
    path = str(tmp_path / "robot.xml")
    for size in (1.0, 1.1, 1.2, 1.3):
        corners = f"v 0 0 0\nv {size} 0 0\nv 0 {size} 0\nv 0 0 {size}\n"
        (tmp_path / meshdir / "corner.obj").write_text(corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
        assert mass(path) == pytest.approx(size**3 / 6 * 1000, rel=1e-6)
        assert load_model(path).body_mass[0] == pytest.approx(size**3 / 6 * 1000, rel=1e-6)


def test_ground_and_floating_base_are_robots_of_their_own(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text('<mujoco><worldbody><body><geom size="0.1"/></body></worldbody></mujoco>')
    loose, grounded = load_once(str(path), False, True), load_once(str(path), True, True)
    assert loose.ground_height is None and grounded.ground_height == 0
    assert load_once(str(path), False, True) is loose and load_once(str(path), True, True) is grounded


def test_a_robot_loaded_with_other_options_is_another(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text(mjcf(top='<keyframe><key name="bent" qpos="0.5"/></keyframe>'))
    straight, bent = load_once(str(path), False, False), load_once(str(path), False, False, keyframe="bent")
    assert (straight.default_q, bent.default_q) == (0, 0.5)
    assert load_once(str(path), False, False, keyframe="bent") is bent
    assert load_once(str(path), False, False) is straight


def test_what_is_wrong_with_an_edited_file_is_told_with_its_name(tmp_path):
    path = write(tmp_path)
    load_once(path, False, False)
    (tmp_path / "leg.xml").write_text("<mujoco><worldbody/></mujoco>")
    with pytest.raises(trot.ModelError, match=r"leg\.xml: no body moves"):
        load_once(path, False, False)
    (tmp_path / "leg.xml").unlink()
    with pytest.raises(FileNotFoundError, match="no robot file"):
        load_once(path, False, False)


def test_a_task_says_whether_bodies_touch_each_other(tmp_path):
    """44 pairs of an Ant's 13 shapes are neither on one body nor on a body and its parent."""
    path = tmp_path / "ant.xml"
    path.write_text((ASSETS / "ant.xml").read_text().replace('contype="0"', 'contype="1"'))

    class Plain(Ant):
        robot = path

    class Touching(Plain):
        robot_options: ClassVar = {"self_collision": True}

    with pytest.raises(ValueError, match=r"Old\.self_collision: a task calls this robot_options"):

        class Old(Plain):
            self_collision = True

    assert Plain().model.num_pairs == 0
    env = trot.make_env(Touching(), num_worlds=2)
    assert env.task.model.num_pairs == 44
    env.reset()
    _, reward, *_ = env.step(torch.zeros(2, env.num_actions))
    assert reward.isfinite().all()
