"""Meshes without files, package:// names, odd inertias, keyframes, and what a user accepts to lose."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import SECOND, TENDON, mjcf

from trot.cli import main
from trot.sim.load import ModelError, compile_robot, load_model
from trot.sim.load_options import LoadOptions

TETRAHEDRON = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
INERTIAL = '<inertial><mass value="{}"/><inertia ixx="{}" iyy="{}" izz="{}" ixy="0" ixz="0" iyz="0"/></inertial>'


def urdf(mesh: str = "", inertial: str = INERTIAL.format(1, 0.1, 0.1, 0.1), visual: str = "") -> str:
    """One hinge, and a link with a collision mesh and a visual one, both only if they are named."""
    shapes = f'<visual><geometry><mesh filename="{visual}"/></geometry></visual>' if visual else ""
    shapes += f'<collision><geometry><mesh filename="{mesh}"/></geometry></collision>' if mesh else ""
    return f"""<robot name="arm">
      <link name="base"/>
      <link name="tip">{inertial}{shapes}</link>
      <joint name="hinge" type="continuous"><parent link="base"/><child link="tip"/><axis xyz="0 1 0"/></joint>
    </robot>"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# Where meshes are found.


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("package://arm_description/meshes/tip.obj", "arm_description/meshes/tip.obj"),
        ("package://other_name/meshes/tip.obj", "arm_description/meshes/tip.obj"),
        ("model://arm_description/meshes/tip.obj", "arm_description/meshes/tip.obj"),
        ("../meshes/tip.obj", "arm_description/meshes/tip.obj"),
        ("meshes/tip.obj", "arm_description/meshes/tip.obj"),
        ("tip.obj", "arm_description/urdf/tip.obj"),
    ],
)
def test_a_mesh_is_found_up_from_the_file(tmp_path, name, place):
    write(tmp_path / place, TETRAHEDRON)
    robot = write(tmp_path / "arm_description/urdf/arm.urdf", urdf(name))
    model = load_model(robot, ground=True)
    assert model.num_points == 4
    assert_allclose(np.sort(model.point_pos.sum(axis=1)), [0, 0.1, 0.1, 0.1], atol=1e-7)


def test_meshes_of_a_robot_given_by_a_relative_path_are_found(tmp_path, monkeypatch):
    """Also where something else in the file must be repaired first."""
    write(tmp_path / "arm/meshes/tip.obj", TETRAHEDRON)
    robot = write(tmp_path / "arm/arm.urdf", urdf("meshes/tip.obj", INERTIAL.format(2, 0.1, 0.2, 0.5)))
    monkeypatch.chdir(tmp_path)
    assert load_model(robot.relative_to(tmp_path), ground=True, repair_inertia=True).num_points == 4


@pytest.mark.parametrize("inner", ["", "arm_description"])
def test_a_mesh_is_found_in_the_folders_given(tmp_path, monkeypatch, inner):
    """The folder may hold the package or be the package."""
    robot = write(tmp_path / "here/arm.urdf", urdf("package://arm_description/meshes/tip.obj"))
    write(tmp_path / "there" / inner / "meshes/tip.obj", TETRAHEDRON)
    with pytest.raises(ModelError, match=r"'tip' could touch the ground.*no file 'package://arm.*package_path"):
        load_model(robot, ground=True)
    there = tmp_path / "there"
    for package_path in (there, str(there), [tmp_path / "nowhere", there]):
        assert load_model(robot, ground=True, package_path=package_path).num_points == 4
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{there}")
    assert load_model(robot, ground=True).num_points == 4


def test_two_meshes_of_one_name_are_told_apart(tmp_path):
    text = urdf("package://arm/a/tip.obj")
    second = (
        '<collision><geometry><mesh filename="package://arm/b/tip.obj"/></geometry></collision></link>\n      <joint'
    )
    robot = write(tmp_path / "arm/arm.urdf", text.replace("</link>\n      <joint", second))
    write(tmp_path / "arm/a/tip.obj", TETRAHEDRON)
    write(tmp_path / "arm/b/tip.obj", TETRAHEDRON.replace("0.1", "0.3"))
    model = load_model(robot, ground=True)
    assert_allclose([model.point_pos[:4].max(), model.point_pos[4:].max()], [0.1, 0.3], rtol=1e-6)


# What is left out without its file.


def test_a_collision_mesh_without_file_matters_only_where_something_can_be_touched(tmp_path):
    robot = write(tmp_path / "arm.urdf", urdf("none.stl", visual="none.dae"))
    assert load_model(robot).notes == ("a mesh of body 'tip' is left out: there is no file 'none.stl'.",)
    with pytest.raises(ModelError, match=r"leave_out=\('meshes',\)"):
        load_model(robot, ground=True)
    model = load_model(robot, ground=True, leave_out="meshes")
    assert model.num_points == 0 and len(model.notes) == 1


def test_a_mesh_that_mujoco_cannot_read_is_told_so(tmp_path):
    write(tmp_path / "tip.dae", "<COLLADA/>")
    robot = write(tmp_path / "arm.urdf", urdf("tip.dae"))
    assert load_model(robot).notes == ("a mesh of body 'tip' is left out: MuJoCo does not read 'tip.dae'.",)
    with pytest.raises(ModelError, match=r"MuJoCo does not read 'tip\.dae'\. Convert it to \.stl"):
        load_model(robot, ground=True)


def test_many_meshes_without_files_are_one_note(tmp_path):
    write(tmp_path / "own.dae", "<COLLADA/>")
    files = ["a.stl", "b.stl", "own.dae"]
    assets = "".join(f'<mesh name="{file}" file="{tmp_path / file}"/>' for file in files)
    geoms = "".join(f'<geom type="mesh" mesh="{file}" contype="0" conaffinity="0" density="0"/>' for file in files)
    notes = load_model(mjcf(geom=f'<geom size="0.1"/>{geoms}', top=f"<asset>{assets}</asset>")).notes
    assert notes == (
        "a mesh of body 'leg' is left out: MuJoCo does not read 'own.dae'.",
        f"meshes of body 'leg' are left out: there are no files '{tmp_path / 'a.stl'}' and '{tmp_path / 'b.stl'}'.",
    )


DRAWN = 'type="mesh" mesh="shell" contype="0" conaffinity="0"'
SHELL = '<asset><mesh name="shell" file="shell.stl"/></asset>'


def test_a_drawn_mesh_without_file_is_left_out_unless_it_weighs():
    ball = '<geom name="ball" size="0.1"/>'
    model = load_model(mjcf(geom=f'{ball}<geom {DRAWN} density="0"/>', top=SHELL))
    plain = load_model(mjcf(geom=ball))
    assert model.notes == ("a mesh of body 'leg' is left out: there is no file 'shell.stl'.",)
    assert_array_equal(model.body_mass, plain.body_mass)
    inertial = '<inertial mass="2" pos="0 0 0" diaginertia="0.1 0.1 0.1"/>'
    assert load_model(mjcf(geom=f"{inertial}{ball}<geom {DRAWN}/>", top=SHELL)).body_mass == [2]
    with pytest.raises(
        ModelError, match=r"a mesh gives body 'leg' mass, but there is no file 'shell\.stl'.*<inertial>"
    ):
        load_model(mjcf(geom=f"{ball}<geom {DRAWN}/>", top=SHELL))


def test_a_texture_without_file_is_not_drawn():
    texture = '<texture name="wood" type="2d" file="wood.png"/><material name="oak" texture="wood"/>'
    model = load_model(mjcf(geom='<geom name="ball" size="0.1" material="oak"/>', top=f"<asset>{texture}</asset>"))
    assert model.notes == ("texture 'wood' is not drawn: there is no file 'wood.png'.",)


def test_what_mujoco_finds_by_itself_is_as_it_was(tmp_path):
    """The same bits as MuJoCo's own model, and nothing told."""
    robot = write(
        tmp_path / "robot.xml", mjcf(geom='<geom type="mesh" mesh="shell"/>', top=SHELL.replace("stl", "obj"))
    )
    write(tmp_path / "shell.obj", TETRAHEDRON)
    own = mujoco.MjModel.from_xml_path(str(robot))
    _, compiled = compile_robot(robot, LoadOptions())
    sizes = [np.empty(mujoco.mj_sizeModel(model), np.uint8) for model in (own, compiled)]
    for model, content in zip((own, compiled), sizes, strict=True):
        mujoco.mj_saveModel(model, None, content)
    assert_array_equal(*sizes)


# Inertias.


def test_an_inertia_that_no_body_has_is_repaired_on_request():
    """0.1 + 0.2 < 0.5: the smaller two rise by 0.1 each."""
    text = urdf(inertial=INERTIAL.format(2, 0.1, 0.2, 0.5))
    with pytest.raises(
        ModelError, match=r"body 'tip' has principal moments of inertia 0\.1, 0\.2, 0\.5.*repair_inertia"
    ):
        load_model(text)
    model = load_model(text, repair_inertia=True)
    assert_allclose(model.body_inertia[0], np.diag([0.2, 0.3, 0.5]), rtol=1e-8)
    assert model.body_mass == [2]
    (note,) = model.notes
    assert (
        note.startswith("body 'tip' has principal moments of inertia 0.1, 0.2, 0.5")
        and "taken as 0.2, 0.3, 0.5" in note
    )


def test_a_full_inertia_keeps_its_axes():
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    matrix = axes * [0.1, 0.2, 0.5] @ axes.T
    full = " ".join(repr(float(matrix[i])) for i in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
    model = load_model(mjcf(geom=f'<inertial pos="0 0 0" mass="1" fullinertia="{full}"/>'), repair_inertia=True)
    assert_allclose(model.body_inertia[0], axes * [0.2, 0.3, 0.5] @ axes.T, rtol=1e-7)


def test_a_negative_moment_is_repaired_on_request():
    text = urdf(inertial=INERTIAL.format(2, 0.1, 0.1, -0.1))
    with pytest.raises(ModelError, match="each must be positive"):
        load_model(text)
    moments = np.linalg.eigvalsh(load_model(text, repair_inertia=True).body_inertia[0])
    assert moments[0] > 0 and moments[0] + moments[1] >= moments[2] == pytest.approx(0.1)


@pytest.mark.parametrize("inertial", ["", INERTIAL.format(0, 0, 0, 0)], ids=["missing", "zero"])
def test_a_moving_link_without_mass_is_given_some_on_request(inertial):
    with pytest.raises(ModelError, match=r"body 'tip' moves with mass 0 and without inertia.*repair_inertia=True"):
        load_model(urdf(inertial=inertial))
    model = load_model(urdf(inertial=inertial), repair_inertia=True)
    assert model.body_mass == [1e-3]
    assert_allclose(model.body_inertia[0], 1e-6 * np.eye(3))


def test_a_sound_robot_is_not_repaired(every_joint):
    path = Path(__file__).parents[1] / "robots" / "every_joint.xml"
    repaired = load_model(path, repair_inertia=True)
    assert repaired.notes == every_joint.notes
    assert_array_equal(repaired.body_inertia, every_joint.body_inertia)


def test_every_body_is_named_beside_other_problems(tmp_path):
    text = urdf("none.stl", inertial=INERTIAL.format(2, 0.1, 0.2, 0.5))
    with pytest.raises(ModelError) as caught:
        load_model(write(tmp_path / "arm.urdf", text), ground=True, keyframe="home")
    lines = str(caught.value).split("\n  ")
    assert len(lines) == 3
    assert "none.stl" in lines[0] and "principal moments" in lines[1] and "no keyframe" in lines[2]


# Keyframes.

KEYS = '<keyframe><key name="home" qpos="0.5 -0.25" qvel="1 2"/><key name="rest" qpos="0 0"/></keyframe>'


def test_a_keyframe_is_the_default_state():
    model = load_model(mjcf(SECOND, top=KEYS), keyframe="home")
    state = model.default_state(3)
    assert_array_equal(state.joint_q, np.tile([0.5, -0.25], (3, 1)))
    assert_array_equal(state.joint_qd, np.tile([1, 2], (3, 1)))
    assert_array_equal(model.q_reference, [0, 0])
    plain = load_model(mjcf(SECOND, top=KEYS)).default_state(1)
    assert not plain.joint_q.any() and not plain.joint_qd.any()


def test_a_keyframe_with_quaternions_is_made_unit():
    key = '<keyframe><key name="home" qpos="1 2 3 0 0 0 2"/></keyframe>'
    model = load_model(mjcf(joint="<freejoint/>", top=key), keyframe="home")
    assert_allclose(model.default_q, [1, 2, 3, 0, 0, 0, 1])


def test_an_unknown_keyframe_is_told_with_those_there_are():
    with pytest.raises(ModelError, match=r"no keyframe 'away'\. The file has 'home', 'rest'"):
        load_model(mjcf(SECOND, top=KEYS), keyframe="away")
    with pytest.raises(ModelError, match="The file names none"):
        load_model(mjcf(), keyframe="away")


def test_a_keyframe_that_is_no_pose_is_told():
    keys = '<keyframe><key name="home" qpos="1e300" qvel="2"/></keyframe>'
    with pytest.raises(ModelError, match=r"joint 'knee': q is 1e\+300"):
        load_model(mjcf(top=keys), keyframe="home")
    assert load_model(mjcf(top=keys)).notes == ()


def test_a_keyframe_of_a_robot_that_gets_a_floating_base_is_left_out():
    keys = '<keyframe><key name="home" qpos="0.5"/></keyframe>'
    model = load_model(mjcf(SECOND, joint="", top=keys), floating_base=True)
    assert model.num_q == 8
    assert "keyframe 'home' is left out" in model.notes[0]


def test_joints_that_begin_outside_their_limits_are_told():
    joint = '<joint name="knee" range="0.25 1"/>'
    (note,) = load_model(mjcf(joint=joint)).notes
    assert note.startswith("joint 'knee at 0, limits 0.25 to 1' begins outside its limits")
    keys = '<keyframe><key name="home" qpos="0.5"/></keyframe>'
    assert load_model(mjcf(joint=joint, top=keys), keyframe="home").notes == ()


# What a user accepts to lose.


LOSSES = {
    "fluid": mjcf(top='<option density="1.2" viscosity="0.1"/>'),
    "equality": mjcf(tendon=TENDON, top='<equality><tendon name="tie" tendon1="t"/></equality>'),
    "gravcomp": mjcf(
        '<body name="balloon" gravcomp="1"><geom size="0.1"/></body>',
        joint='<joint name="knee" actuatorgravcomp="true" actuatorfrcrange="-1 1"/>',
    ),
    "tendons": mjcf(tendon=TENDON.replace('"t"', '"t" stiffness="3" range="0 1"')),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_left_out_is_not_in_mujocos_model_either(name):
    with pytest.raises(ModelError, match=rf"load with leave_out=\('{name}',\)"):
        load_model(LOSSES[name])
    model = load_model(LOSSES[name], leave_out=name)
    assert model.notes and all("left out" in note for note in model.notes)
    source = model.source
    assert source.opt.density == source.opt.viscosity == source.neq == 0
    assert not source.body_gravcomp.any() and not source.tendon_stiffness.any() and not source.tendon_limited.any()


PID = (
    '<extension><plugin plugin="mujoco.pid"><instance name="pid"><config key="kp" value="4"/></instance></plugin>'
    "</extension>"
)
BOLT = (
    '<extension><plugin plugin="mujoco.sdf.torus"><instance name="sdf"/></plugin></extension>'
    '<asset><mesh name="ring"><plugin instance="sdf"/></mesh></asset>'
)


def test_plugins_are_left_out_but_for_shapes():
    servo = mjcf(top=PID, actuator='<plugin name="servo" joint="knee" plugin="mujoco.pid" instance="pid"/>')
    with pytest.raises(ModelError, match=r"uses plugins.*leave_out=\('plugins',\)"):
        load_model(servo)
    model = load_model(servo, leave_out="plugins")
    assert model.num_controls == model.source.nplugin == 0
    assert model.notes == ("actuator 'servo' is a plugin and left out.",)
    ring = mjcf(top=BOLT, geom='<geom name="ring" type="sdf" mesh="ring"><plugin instance="sdf"/></geom>')
    with pytest.raises(ModelError, match="uses plugins"):
        load_model(ring, leave_out="plugins")


def test_an_unknown_loss_is_told_with_those_there_are():
    with pytest.raises(ValueError, match="leave_out: there is no 'friction', only equality, fluid"):
        load_model(mjcf(), leave_out=["fluid", "friction"])


# trot check.


def test_check_prints_notes_and_takes_the_same_options(tmp_path, capsys):
    body = (
        '<body name="stand"><geom name="plinth" size="0.1"/><body><joint name="tail"/><geom size="0.1"/></body></body>'
    )
    keys = '<keyframe><key name="home" qpos="0.1 0.2"/></keyframe>'
    text = mjcf(world=body, joint='<joint name="knee" damping="1"/>', top=f'<option density="1.2"/>{keys}')
    robot = write(tmp_path / "robot.xml", text)
    assert main(["check", str(robot), "--keyframe", "away"]) == 2
    told = capsys.readouterr().err
    assert "option density" in told and "no keyframe 'away'" in told
    options = ["--keyframe", "home", "--leave-out", "fluid", "--repair-inertia", "--package-path", str(tmp_path)]
    assert main(["check", str(robot), "--worlds", "2", *options]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 4
    assert "density=1.2" in notes[0] and "self_collision=True" in notes[1] and "'plinth'" in notes[2]
    assert "no actuators" in notes[3]


def test_what_is_simulated_is_not_left_out():
    """Couplings of joints and springs of fixed tendons stay, and a joint that follows another gets no motor."""
    coupled = '<joint name="gear" joint1="elbow" joint2="knee"/><weld body1="leg" body2="arm"/>'
    tendons = (
        '<fixed name="f" stiffness="3" range="-1 1" armature="2"><joint joint="knee" coef="1"/></fixed>'
        '<spatial name="s" stiffness="3" range="0 1"><site site="post"/><site site="a"/></spatial>'
    )
    text = mjcf(SECOND, top=f"<equality>{coupled}</equality>", tendon=tendons)
    with pytest.raises(ModelError) as caught:
        load_model(text)
    assert len(str(caught.value).split("\n  ")) == 2
    model = load_model(text, leave_out=("equality", "tendons"), actuators="motor")
    assert model.tie_name == ("tendon 'f'", "equality 'gear'")
    assert model.actuator_name == ("knee",)
    assert model.source.tendon_limited.tolist() == [1, 0] and not model.source.tendon_armature.any()
    lost = [note for note in model.notes if note.endswith("left out.")]
    assert len(lost) == 3 and "(weld of 'leg')" in lost[0]
    assert lost[1:] == ["armature of tendon 'f' is left out.", "stiffness and range of tendon 's' are left out."]
