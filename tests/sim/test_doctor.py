"""`trot check ROBOT` as a user meets it: lines of what is refused, notes, substeps and the drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trot.cli import main
from trot.sim import doctor
from trot.sim.accelerations import AccelerationError
from trot.sim.check_robot import CheckSettings, _random_control
from trot.sim.errors import NonFiniteError
from trot.sim.gradient_check import Row
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.pose import Pose
from trot.sim.source_lines import SourceLines

REFUSED = """<mujoco>
  <option density="1.2"/>
  <default><geom density="500"/></default>
  <include file="parts.xml"/>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="leg" pos="0 0 1"><site name="here"/>
      <joint name="knee" springref="3"/>
      <body name="foot"><joint/><geom size="0.1"/><site name="there"/></body>
      <geom size="0.1"/>
      <geom size="0.1" friction="-1"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="rope" stiffness="5"><site site="here"/><site site="there"/></spatial>
  </tendon>
  <actuator>
    <motor joint="knee"/>
    <general name="press" joint="knee" dyntype="filter" actearly="true"/>
  </actuator>
</mujoco>"""
PARTS = """<mujoco>
  <worldbody>
    <body gravcomp="1"><joint name="waist" actuatorgravcomp="true" actuatorfrcrange="-1 1"/><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    (tmp_path / "parts.xml").write_text(PARTS)
    (tmp_path / "robot.xml").write_text(REFUSED)
    return tmp_path / "robot.xml"


def test_every_reason_is_told_at_once_with_its_line(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(refused)]) == 2
    first, *lines, advice = capsys.readouterr().err.splitlines()
    assert first == f"trot check: {refused} cannot be simulated as it is, for {len(lines)} reasons:"
    for where, what in (
        ("line 2", "option density"),
        ("parts.xml, line 3", "joint 'waist' has actuatorgravcomp"),
        ("line 15", "tendon 'rope' has stiffness"),
        ("line 19", "actuator 'press'"),
        ("line 11", "geom 'geom3 of leg' has friction"),
    ):
        assert any(line.startswith(f"  {where}: {what}") for line in lines), (where, what, lines)
    assert advice.startswith("What to do: ") and advice.endswith(
        f"trot check {refused} --leave-out fluid gravcomp tendons"
    )


def test_unnamed_elements_are_counted_as_mujoco_does(refused: Path) -> None:
    """Those of a body before those of its children, wherever they stand, and included ones where they are included."""
    lines = SourceLines(refused)
    found = {name: lines.find(f"geom '{name}' is odd.") for name in ("geom0", "geom1", "geom2", "geom3", "geom4")}
    # The ground is of the world itself, and so the first.
    assert found == {
        "geom0": "line 6", "geom1": "parts.xml, line 3", "geom2": "line 10", "geom3": "line 11", "geom4": "line 9",
    }  # fmt: skip
    assert lines.find("joint 'joint0' is odd.") == "parts.xml, line 3"
    assert lines.find("joint 'joint2' is odd.") == "line 9"
    assert lines.find("bodies 'leg' and 'foot' are odd.") == "line 7"
    assert lines.find("actuator 'actuator0' is odd.") == "line 18"
    assert lines.find("geom 'geom9 of foot' is odd.") == "line 9"
    assert lines.find("geom 'nobody' is odd.") is None
    assert lines.find("the moon is odd.") is None


def test_elements_that_the_file_does_not_show_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(
        '<mujoco><worldbody>\n<replicate count="3"><body><joint/><geom size="1"/></body></replicate>\n'
        '<body name="last"><joint name="j"/><geom size="1"/></body></worldbody></mujoco>'
    )
    lines = SourceLines(path)
    assert lines.find("geom 'geom3 of last' is odd.") == "line 3"
    assert lines.find("geom 'geom1' is odd.") is None
    assert lines.find("joint 'j' is odd.") == "line 3"


def test_lines_of_a_urdf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inertial = '<inertial><mass value="1"/><inertia ixx="{}" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    path = tmp_path / "arm.urdf"
    path.write_text(
        '<robot name="arm">\n<link name="base"/>\n'
        f'<link name="tip">\n{inertial.format(9)}\n</link>\n'
        '<joint name="hinge" type="continuous"><parent link="base"/><child link="tip"/><axis xyz="0 1 0"/></joint>\n'
        "</robot>"
    )
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert "\n  line 3: body 'tip' has principal moments" in told
    assert f"trot check {path} --repair-inertia" in told
    assert SourceLines(path).find("joint 'hinge' is odd.") == "line 6"


LEG = """<mujoco>
  <worldbody>
    {ground}
    <body name="leg" pos="0 0 0.5">
      <joint name="hip" axis="0 1 0" damping="0.5"/>
      <geom name="foot" size="0.1" pos="0 0 -0.3" mass="{mass}" {masks}/>
    </body>
  </worldbody>
</mujoco>"""


def leg(folder: Path, ground: str = '<geom type="plane" size="0 0 1"/>', masks: str = "", mass: float = 5) -> str:
    path = folder / "leg.xml"
    path.write_text(LEG.format(ground=ground, masks=masks, mass=mass))
    return str(path)


def test_what_is_told_comes_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", leg(tmp_path), "--actuators", "motor", "--worlds", "2", "--seconds", "0.2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("leg.xml: 1 bodies, 5 kg, 1 dofs, 1 controls, 1 contact points, 0 pairs, 0 muscles")
    kinds = [line.partition(":")[0] for line in printed[1:] if ":" in line]
    assert kinds == ["accelerations", "substeps", "substeps", "drop test"]
    assert "friction of geom 'foot'" in printed[2]
    assert printed[-1] == "gradients are right to 1e-06"


def test_what_is_missing_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--worlds", "2", "--seconds", "0.1", "--no-drop"]
    assert main(["check", leg(tmp_path, ground=""), *quick]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note")]
    assert ["no ground" in notes[0], "no actuators" in notes[1]] == [True, True]
    assert main(["check", leg(tmp_path, masks='contype="0" conaffinity="0"'), *quick]) == 0
    assert "note: nothing touches the ground" in capsys.readouterr().out


AXES = ("1 0 0", "0 1 0", "0 0 1", "1 1 0")
LIMB = '<body name="{0}"><joint name="{0}" axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/></body>'


@pytest.mark.parametrize(
    ("limbs", "told"),
    [
        (LIMB.format("arm"), False),
        (f'<body name="torso">{LIMB.format("left")}{LIMB.format("right")}{LIMB.format("waist")}</body>', True),
        (
            LIMB.format("planar").replace(
                "<geom", '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom'
            ),
            False,
        ),
    ],
    ids=["arm", "limbs", "planar"],
)
def test_a_base_that_may_have_been_meant_to_move_is_noted(limbs: str, told: bool, tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco><worldbody>{limbs}</worldbody></mujoco>")
    notes = list(doctor._missing(load_model(path), CheckSettings(path)))
    assert any("fixed to the world" in note for note in notes) == told


def test_a_part_of_a_robot_names_the_file_that_includes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "part.xml"
    part.write_text(
        '<mujoco><worldbody><body name="b"><joint/><geom name="foot" size="0.1"/></body></worldbody>'
        '<contact><pair geom1="foot" geom2="floor"/></contact></mujoco>'
    )
    assert main(["check", str(part)]) == 2
    assert "What to do" not in capsys.readouterr().err
    (tmp_path / "other.xml").write_text('<mujoco><include file="another_part.xml"/></mujoco>')
    scene = tmp_path / "scene.xml"
    scene.write_text(
        '<mujoco>\n<include\n  file="part.xml" />\n<worldbody><geom name="floor" type="plane" size="1 1 1"/>'
        "</worldbody></mujoco>"
    )
    assert main(["check", str(part)]) == 2
    assert f"Try  trot check {scene}" in capsys.readouterr().err
    assert load_model(scene).num_pairs == 1


def test_random_controls_that_blow_it_up_are_made_smaller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = leg(tmp_path)
    shares: list[float] = []
    checked = doctor.check_gradients

    def too_strong(model: Model, settings: CheckSettings) -> list[Row]:
        shares.append(settings.control_share)
        if settings.control_share == 1:
            raise NonFiniteError(0, 3, "hip", 1)
        return checked(model, settings)

    monkeypatch.setattr(doctor, "check_gradients", too_strong)
    assert main(["check", robot, "--actuators", "motor", "--worlds", "2", "--seconds", "0.2", "--no-drop"]) == 0
    assert shares == [1, doctor.CALM]
    assert "first at 'hip'" in capsys.readouterr().out
    # Too few substeps were asked for, or nothing drives it: then the controls are not at fault.
    few = ["--actuators", "motor", "--substeps", "2"]
    assert main(["check", robot, *few, "--worlds", "2", "--seconds", "0.2", "--no-drop"]) == 2
    assert main(["check", robot, "--worlds", "2", "--seconds", "0.2", "--no-drop"]) == 2


def test_a_share_of_the_controls_leads_away_from_zero() -> None:
    """Ranges around zero, and above it."""
    text = LEG.format(ground="", masks="", mass=1).replace(
        "</mujoco>",
        '<actuator><motor joint="hip" ctrlrange="-2 2"/><motor joint="hip" ctrlrange="1 3"/></actuator></mujoco>',
    )
    model = load_model(text)
    full, part = (
        _random_control(model, CheckSettings(Path(), worlds=100, control_share=share), torch.Generator().manual_seed(0))
        for share in (1.0, 0.1)
    )
    assert full[:, 0].abs().max() > 1.5 and full[:, 1].max() > 2.5
    torch.testing.assert_close(part[:, 0], 0.1 * full[:, 0])
    torch.testing.assert_close(part[:, 1], 1 + 0.1 * (full[:, 1] - 1))


@pytest.mark.parametrize("share", ["0", "-1", "1.5", "nan"])
def test_no_share_of_the_controls_is_refused(share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", leg(tmp_path), "--control-share", share]) == 2
    assert "control_share must be above 0" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Inertia matrix is too close to singular")
def test_joints_that_move_no_mass_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slides along x, y and their diagonal: two of them undo the third."""
    # MuJoCo writes a log where it stands.
    monkeypatch.chdir(tmp_path)
    slides = "".join(f'<joint name="{n}" type="slide" axis="{a}"/>' for n, a in zip("xyzd", AXES, strict=True))
    path = tmp_path / "robot.xml"
    path.write_text(f'<mujoco><worldbody><body>{slides}<geom size="0.1"/></body></worldbody></mujoco>')
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert "joints 'x', 'y' and 'd' can move without moving any mass" in told and "--armature" in told
    assert Pose(load_model(path, armature=0.01)).massless_motion() == []


def test_what_no_number_of_substeps_bears_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Gymnasium's Fetch, whose base has a damping of 1e11."""
    path = tmp_path / "leg.xml"
    text = LEG.format(ground="", masks="", mass=5).replace('pos="0 0 -0.3"', 'pos="0.3 0 0"')
    path.write_text(text.replace('damping="0.5"', 'damping="1e11"'))
    assert main(["check", str(path), "--worlds", "2", "--seconds", "0.1"]) == 2
    printed = capsys.readouterr().out
    assert "damping of joint 'hip' has damping 1e+11 (at most " in printed
    assert "BLOWS UP with 200 substeps; it takes " in printed


def test_options_for_light_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 g at the end of a leg: what helps is told, and helps."""
    quick = ["--worlds", "2", "--seconds", "0.1", "--no-drop"]
    robot = leg(tmp_path, mass=0.05)
    main(["check", robot, *quick])
    printed = capsys.readouterr().out
    assert "substeps: 200 are used here" in printed
    advised = printed.partition("by --contact ")[2].split()[:3]
    for option in (["--contact", *advised], ["--armature", "0.1"]):
        main(["check", robot, *quick, *option])
        assert int(capsys.readouterr().out.partition("substeps: ")[2].split()[0]) < 60


def test_contact_and_armature_are_for_what_has_none() -> None:
    text = """
    <mujoco>
      <worldbody>
        <geom type="plane" size="0 0 1"/>
        <body>
          <freejoint/>
          <geom size="0.1"/>
          <geom size="0.1" user="5e3 4 3"/>
          <body><joint armature="0.3"/><geom size="0.1"/></body>
          <body><joint/><geom size="0.1"/></body>
        </body>
      </worldbody>
    </mujoco>"""
    model = load_model(text, contact=(100, 20, 7), armature=0.5)
    assert model.shape_stiffness.tolist() == [100, 5e3, 100, 100]
    assert model.shape_damping.tolist() == [20, 4, 20, 20]
    assert model.shape_friction_stiffness.tolist() == [7, 3, 7, 7]
    assert model.dof_armature.tolist() == [0] * 6 + [0.3, 0.5]
    assert model.source.dof_armature.tolist() == model.dof_armature.tolist()


@pytest.mark.parametrize(
    "wrong", [{"contact": (1, 2)}, {"contact": (1, 2, -3)}, {"contact": (1, 2, float("nan"))}, {"armature": -1}]
)
def test_impossible_constants_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        load_model("<mujoco/>", **wrong)


def test_a_robot_that_moves_otherwise_than_in_mujoco_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "compare_accelerations", lambda model: AccelerationError(1e-6, "hip", 1.0, 1.000001))
    assert main(["check", leg(tmp_path), "--worlds", "2", "--seconds", "0.1"]) == 1
    assert "accelerations DIFFER from MuJoCo's by 1e-06" in capsys.readouterr().out


def test_too_few_substeps_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The leg lies on its limit, a spring that three substeps cannot follow."""
    text = LEG.replace("damping", 'range="30 60" user="1e4" damping').format(ground="", masks="", mass=1)
    path = tmp_path / "leg.xml"
    path.write_text(text)
    assert main(["check", str(path), "--worlds", "2", "--seconds", "0", "--substeps", "3"]) == 1
    assert "ENERGY GROWS" in capsys.readouterr().out
    assert main(["check", str(path), "--worlds", "2", "--seconds", "0"]) == 0
    assert "ENERGY GROWS" not in capsys.readouterr().out
