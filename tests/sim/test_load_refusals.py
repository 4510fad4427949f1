"""What load_model refuses, and with which words; what it ignores."""

from __future__ import annotations

import pytest
from small_robot import PLANE, SECOND, TENDON, mjcf

from trot.sim.load import ModelError, load_model

# Refused.

KNEE_MOTOR = '<motor name="m" joint="knee"/>'

MUSCLE = '<muscle name="m" tendon="t" lengthrange="0.1 3"/>'
WRAPPED = '<geom name="w" size="0.1" contype="0" conaffinity="0"/><site name="side" pos="{}"/>'
WRAPPING = '<spatial name="t"><site site="post"/><geom geom="w" sidesite="side"/><site site="a"/></spatial>'
GENERAL = """<general name="m" tendon="t" gaintype="muscle" biastype="muscle" dyntype="muscle" dynprm="0.01 0.04"
    lengthrange="0.1 3" gainprm="0.75 1.05 9 200 0.5 1.6 1.5 1.3 1.2" biasprm="0.75 1.05 9 200 0.5 1.6 {1} 1.3 1.2"
    {0}/>"""

REFUSED = {
    "no body": ("<mujoco/>", "no body moves.*floating_base"),
    "only welded": (mjcf(joint=""), "no body moves"),
    "half a character": (mjcf(joint='<joint name="\ud83d"/>'), "surrogates not allowed"),
    # Options.
    "density": (mjcf(top='<option density="1.2"/>'), "option density.*fluid"),
    "viscosity": (mjcf(top='<option viscosity="0.1"/>'), "option viscosity.*fluid"),
    "actuation": (mjcf(top='<option><flag actuation="disable"/></option>'), "actuation is disabled"),
    "override": (mjcf(top='<option><flag override="enable"/></option>'), "flag override"),
    "group": (
        mjcf(top='<option actuatorgroupdisable="2"/>', actuator='<motor name="m" joint="knee" group="2"/>'),
        "'m' is in a disabled group",
    ),
    # Bodies and joints.
    "actuators that bear the weight within a range": (
        mjcf(
            '<body name="balloon" gravcomp="1"><geom size="0.1"/></body>',
            joint='<joint name="knee" actuatorgravcomp="true" actuatorfrcrange="-1 1"/>',
        ),
        "'knee' has actuatorgravcomp and actuatorfrcrange",
    ),
    "flex": (
        mjcf(
            world='<flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" dim="2" mass="1">'
            '<edge equality="true"/></flexcomp>'
        ),
        "flex.*deformable",
    ),
    "free stiffness": (mjcf(joint='<joint name="root" type="free" stiffness="1"/>'), "'root' has stiffness"),
    "dampingpoly": (mjcf(joint='<joint name="knee" damping="1 0.5"/>'), "'knee' has damping of higher order"),
    "stiffnesspoly": (mjcf(joint='<joint name="knee" stiffness="1 0.5"/>'), "'knee' has stiffness of higher order"),
    "springyield": (mjcf(joint='<joint name="knee" stiffness="1" springyield="0.5"/>'), "'knee' has springyield"),
    "joint user without friction speed": (mjcf(joint='<joint name="knee" user="1 2 0"/>'), "'knee' has user.*above 0"),
    "ball with damped limit": (mjcf(joint='<joint name="hip" type="ball" user="1 2"/>'), "'hip' is a ball.*second"),
    "tendon user": (
        mjcf(tendon='<fixed name="f" range="0 1" user="1 2 -3"><joint joint="knee" coef="1"/></fixed>'),
        "tendon 'f' has user.*up to three",
    ),
    "negative joint user": (mjcf(joint='<joint name="knee" user="-1"/>'), "'knee' has user.*>= 0"),
    # Constraints.
    "equality of spatial tendons": (
        mjcf(tendon=TENDON, top='<equality><tendon name="same" tendon1="t"/></equality>'),
        "'same' holds tendon 't' and has spatial tendons",
    ),
    "bent equality of tendons": (
        mjcf(
            SECOND,
            tendon='<fixed name="f"><joint joint="knee" coef="1"/></fixed>'
            '<fixed name="g"><joint joint="elbow" coef="1"/></fixed>',
            top='<equality><tendon name="same" tendon1="f" tendon2="g" polycoef="0 1 0.5 0 0"/></equality>',
        ),
        "'same' holds tendon 'f' to 'g' and has a polynomial beyond its first power",
    ),
    # Ground and shapes.
    "negative user": (mjcf(geom='<geom name="ball" size="0.1" user="1 -2 3"/>'), "'ball' has user.*>= 0"),
    "user nan": (mjcf(geom='<geom name="ball" size="0.1" user="nan 1 1"/>'), "'ball' has user.*finite"),
    "user inf": (mjcf(geom='<geom name="ball" size="0.1" user="inf 1 1"/>'), "'ball' has user.*finite"),
    "joint user inf": (mjcf(joint='<joint name="knee" user="inf"/>'), "'knee' has user"),
    "surface velocity": (
        mjcf(world='<geom type="plane" size="0 0 1" surfacevel="1 0 0 0 0 0"/>'),
        "surfacevel, which is not simulated",
    ),
    # Actuators.
    "position on a ball": (
        mjcf(
            joint='<joint name="hip" type="ball"/>', actuator='<position name="servo" joint="hip" kp="9" gear="1 0 0"/>'
        ),
        "'servo' is a servo on joint 'hip'.*ball",
    ),
    "velocity on a free joint": (
        mjcf(joint='<joint name="root" type="free"/>', actuator='<velocity name="servo" joint="root" kv="9"/>'),
        "'servo' is a servo on joint 'root'.*free",
    ),
    "position on a spatial tendon": (
        mjcf(tendon=TENDON, actuator='<position name="servo" tendon="t" kp="9"/>'),
        "'servo' is a servo on the spatial tendon 't'",
    ),
    "filter on a spatial tendon": (
        mjcf(tendon=TENDON, actuator='<general name="m" tendon="t" gainprm="-9" dyntype="filter" dynprm="0.1"/>'),
        "'m' on the spatial tendon 't' has an activation",
    ),
    "filter without time": (
        mjcf(actuator='<general name="m" joint="knee" dyntype="filter" dynprm="0"/>'),
        "'m' has time constants 0 and 0",
    ),
    "early activation": (
        mjcf(actuator='<general name="m" joint="knee" dyntype="filter" dynprm="0.1" actearly="true"/>'),
        "'m' has actearly",
    ),
    "adhesion": (mjcf(actuator='<adhesion name="glue" body="leg" ctrlrange="0 1"/>'), "'glue' acts through body"),
    "jointinparent of a ball": (
        mjcf(joint='<joint name="hip" type="ball"/>', actuator='<motor name="m" jointinparent="hip"/>'),
        "'m' acts through jointinparent",
    ),
    "site": (mjcf(actuator='<motor name="m" site="a"/>'), "'m' acts through site.*Attach it to a joint"),
    "slidercrank": (
        mjcf(actuator='<motor name="m" cranksite="a" slidersite="post" cranklength="0.5"/>'),
        "'m' acts through slidercrank",
    ),
    "armature of a fixed tendon": (
        mjcf(tendon='<fixed name="f" armature="1"><joint joint="knee" coef="1"/></fixed>'),
        "'f' has armature; a fixed tendon has none",
    ),
    "two actuators in one tendon range": (
        mjcf(
            tendon='<fixed name="f" actuatorfrcrange="-1 1"><joint joint="knee" coef="1"/></fixed>',
            actuator='<motor name="m" tendon="f"/><motor name="n" tendon="f"/>',
        ),
        "'f' has actuatorfrcrange but more than one",
    ),
    "empty range of a servo": (
        mjcf(
            joint='<joint name="knee" actuatorfrcrange="-1 1"/>',
            actuator='<position name="servo" joint="knee" kp="9" forcerange="2 3"/>',
        ),
        "'servo' has no admissible",
    ),
    "wrapping": (
        mjcf(
            tendon='<spatial name="w"><site site="post"/><geom geom="ball"/><site site="a"/></spatial>',
            actuator='<motor name="m" tendon="w" gear="-1"/>',
        ),
        "'w' wraps a sphere.*more sites",
    ),
    "pulley": (
        mjcf(
            tendon='<spatial name="w"><site site="post"/><site site="a"/><pulley divisor="2"/><site site="post"/>'
            '<site site="b"/></spatial>',
            actuator='<motor name="m" tendon="w" gear="-1"/>',
        ),
        "'w' wraps a pulley",
    ),
    "pushing muscle": (mjcf(tendon=TENDON, actuator='<motor name="m" tendon="t"/>'), "'m' pushes.*'t'.*negative"),
    "muscle inside": (
        mjcf(WRAPPED.format("0.01 0 0"), tendon=WRAPPING, actuator=MUSCLE),
        "'t' wraps geom 'w' on its inside",
    ),
    "muscle with a foreign side": (
        mjcf(WRAPPED.format("0.2 0 0"), tendon=WRAPPING.replace('"side"', '"post"'), actuator=MUSCLE),
        "'t' wraps geom 'w' with a sidesite on another body",
    ),
    "muscle on a fixed tendon": (
        mjcf(tendon='<fixed name="t"><joint joint="knee" coef="1"/></fixed>', actuator=MUSCLE),
        "'t' is fixed",
    ),
    "muscle curve": (
        mjcf(tendon=TENDON, actuator=GENERAL.format("", "1.5").replace("1.3 1.2", "1.3 0.9")),
        "'m' has vmax 1.5 and fvmax 0.9.*at least 1",
    ),
    "muscle time": (
        mjcf(tendon=TENDON, actuator='<muscle name="m" tendon="t" timeconst="0 1" lengthrange="0.1 3"/>'),
        "'m' has time constants 0 and 1",
    ),
    "muscle early": (mjcf(tendon=TENDON, actuator=GENERAL.format('actearly="true"', "1.5")), "'m' has actearly"),
    "muscle with two laws": (mjcf(tendon=TENDON, actuator=GENERAL.format("", "2")), "'m' has one set of numbers"),
    "curved muscle in a joint range": (
        mjcf(joint='<joint name="knee" actuatorfrcrange="-1 1"/>', tendon=TENDON, actuator=MUSCLE),
        "'knee' has actuatorfrcrange",
    ),
    "muscle on a joint": (
        mjcf(actuator='<muscle name="m" joint="knee" force="9" lengthrange="-1 1"/>'),
        "'m' does not act on a tendon",
    ),
    "empty range": (
        mjcf(actuator='<motor name="m" joint="knee" ctrlrange="1 2" forcerange="-1 0.5"/>'),
        "'m' has no admissible",
    ),
    "actuator damping": (mjcf(actuator='<motor name="m" joint="knee" damping="1"/>'), "'m' has damping.*on the joint"),
    "actuator armature": (mjcf(actuator='<motor name="m" joint="knee" armature="1"/>'), "'m' has armature.*the joint"),
    "delay": (mjcf(actuator='<motor name="m" joint="knee" delay="0.02" nsample="20"/>'), "'m' has delay"),
    "muscle in a joint range": (
        mjcf(
            joint='<joint name="knee" actuatorfrcrange="-1 1"/>',
            tendon=TENDON,
            actuator='<motor tendon="t" gear="-1"/>',
        ),
        "'knee' has actuatorfrcrange",
    ),
}
TENDON_FORCES = ("stiffness", "damping", "armature", "frictionloss")
REFUSED |= {
    f"tendon {force}": (mjcf(tendon=TENDON.replace('"t"', f'"t" {force}="1"')), f"'t' has {force}.*Remove")
    for force in TENDON_FORCES
}
REFUSED |= {
    f"fixed tendon {force}": (
        mjcf(tendon=f'<fixed name="f" stiffness="1" {force}><joint joint="knee" coef="1"/></fixed>'),
        "'f' has .*a fixed tendon has none",
    )
    for force in ('springyield="1"', 'damping="1 2"')
}
REFUSED["tendon limit"] = (mjcf(tendon=TENDON.replace('"t"', '"t" range="0 1"')), "'t' has limited")

# Numbers that are none. MuJoCo reads mass="nan" as no mass given, and would take it from the density.
BALL = '<geom name="ball" size="0.1" {}/>'
GROUND = '<geom name="ground" type="plane" size="0 0 1" {}/>'
REFUSED |= {
    "mass nan": (mjcf(geom=BALL.format('mass="nan"')), '<geom> has mass="nan"'),
    "mass inf": (mjcf(geom=BALL.format('mass="inf"')), "body 'leg': mass is inf"),
    "mass 1e300": (mjcf(geom=BALL.format('mass="1e300"')), "body 'leg': mass is 1e.300.*single precision"),
    "second mass inf": (
        mjcf('<body name="arm"><joint/><geom size="0.1" mass="inf"/></body>'),
        "robot: body 'arm': mass is inf",
    ),
    "gear nan": (mjcf(actuator='<motor name="m" joint="knee" gear="NaN"/>'), "actuator 'm': gear is nan"),
    "gear inf": (mjcf(actuator='<motor name="m" joint="knee" gear="-inf"/>'), "actuator 'm': gear is -inf"),
    "muscle inf": (
        mjcf(tendon=TENDON, actuator='<general name="m" tendon="t" gainprm="-inf"/>'),
        "actuator 'm': peak force is inf",
    ),
    "gravity nan": (mjcf(top='<option gravity="0 nan 0"/>'), r"option gravity is \[0.0, nan, 0.0\]"),
    "gravity inf": (mjcf(top='<option gravity="0 0 -inf"/>'), r"option gravity is \[0.0, 0.0, -inf\]"),
    "plane nan": (mjcf(world=GROUND.format('pos="0 0 nan"')), "ground plane lies at z = nan"),
    "plane inf": (mjcf(world=GROUND.format('pos="0 0 inf"')), "ground plane lies at z = inf"),
    "plane turned nan": (mjcf(world=GROUND.format('quat="nan 0 0 0"')), '<geom> has quat="nan 0 0 0"'),
    "friction negative": (mjcf(geom=BALL.format('friction="-1"')), r"'ball' has friction=\[-1.0, .*>= 0"),
    "friction inf": (mjcf(geom=BALL.format('friction="inf"')), r"'ball' has friction=\[inf, .*finite"),
    "friction of the plane": (mjcf(world=GROUND.format('friction="-1"')), r"'ground' has friction=\[-1.0"),
    "armature inf": (mjcf(joint='<joint name="knee" armature="inf"/>'), "joint 'knee': armature is inf"),
    "damping inf": (mjcf(joint='<joint name="knee" damping="inf"/>'), "joint 'knee': damping is inf"),
    "stiffness inf": (mjcf(joint='<joint name="knee" stiffness="inf"/>'), "joint 'knee': stiffness is inf"),
    "springref inf": (mjcf(joint='<joint name="knee" springref="inf"/>'), "joint 'knee': spring is inf"),
    "anchor inf": (mjcf(joint='<joint name="knee" pos="inf 0 0"/>'), "joint 'knee': anchor is"),
    "size inf": (mjcf(geom='<geom name="ball" size="inf"/>'), "body 'leg': mass is inf.*geom 'ball': radius is inf"),
}


ARM = '<mujocoinclude><body name="arm"><joint name="{0}"/><geom size="0.1" {1}/></body></mujocoinclude>'
MIDDLE = '<mujocoinclude><include file="arm.xml"/></mujocoinclude>'


@pytest.mark.parametrize("through", ["parts/arm.xml", "parts/middle.xml"])
def test_nan_in_an_included_file_is_found(tmp_path, through):
    """MuJoCo loads it, with a mass out of the density."""
    (tmp_path / "parts").mkdir()
    robot = tmp_path / "robot.xml"
    robot.write_text(mjcf(f'<!-- <include file="none.xml"/> --><include file="{through}"/>'))
    (tmp_path / "parts" / "middle.xml").write_text(MIDDLE.replace("arm", "parts/arm"))
    arm = tmp_path / "parts" / "arm.xml"
    arm.write_text(ARM.format("elbow", 'mass="nan"'))
    with pytest.raises(ModelError, match=r'robot\.xml: in .*arm\.xml: <geom> has mass="nan"'):
        load_model(robot)
    arm.write_text(ARM.format("nan", 'mass="2"'))
    robot.write_text(robot.read_text().replace("</mujoco>", '<actuator><motor joint="nan"/></actuator></mujoco>'))
    assert load_model(robot).body_mass[-1] == 2


def test_nan_in_a_comment_and_as_a_name_is_none():
    model = load_model(mjcf("<!-- mass='nan' -->", joint='<joint name="nan"/>', actuator='<motor joint="nan"/>'))
    assert model.joint_name == ("nan",)


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(text, words):
    with pytest.raises(ModelError, match=f"(?s){words}"):
        load_model(text)


# Ignored.

IGNORED = {
    "camera, light and looks": mjcf(
        "<camera/><light/>",
        top='<asset><texture name="x" type="2d" builtin="flat" width="4" height="4"/><material name="x" texture="x"/>'
        "</asset>",
    ),
    "sensor": mjcf(top='<sensor><jointpos joint="knee"/></sensor>'),
    "keyframe": mjcf(top='<keyframe><key qpos="1"/></keyframe>'),
    "solver": mjcf(
        top='<option timestep="0.01" integrator="RK4" solver="PGS"/><default><geom solref="0.1 1" margin="0.01"/>'
        "</default>"
    ),
    "exclude between bodies": mjcf(SECOND, top='<contact><exclude body1="leg" body2="arm"/></contact>'),
    "drawn cylinder": mjcf('<geom type="cylinder" size="0.1 0.1" contype="0" conaffinity="0"/>'),
    "drawn plane": mjcf(world=f'{PLANE}<geom type="plane" size="1 1 1" euler="1 0 0" contype="0" conaffinity="0"/>'),
    "drawn stone": mjcf(world=f'{PLANE}<geom size="0.1" contype="0" conaffinity="0"/>'),
    "inactive equality": mjcf(SECOND, top='<equality><joint joint1="knee" active="false"/></equality>'),
    "equality switched off": mjcf(
        SECOND, top='<option><flag equality="disable"/></option><equality><joint joint1="knee"/></equality>'
    ),
    "drawn mocap": mjcf(
        world=f'{PLANE}<body mocap="true"><geom size="0.1" contype="0" conaffinity="0"/></body>',
    ),
    "idle tendon": mjcf(tendon='<fixed><joint joint="knee" coef="1"/></fixed>'),
    "idle wrapping tendon": mjcf(tendon='<spatial><site site="post"/><geom geom="ball"/><site site="a"/></spatial>'),
    "friction of the plane below the shape's": mjcf(world='<geom type="plane" size="0 0 1" friction="0.9"/>'),
}


@pytest.mark.parametrize("text", IGNORED.values(), ids=IGNORED.keys())
def test_ignored(text):
    model = load_model(text)
    assert model.body_name[0] == "leg"
    assert model.shape_name[0] == "ball"
    assert model.shape_friction[0] == 1
    assert model.num_controls == 0


def test_body_excluded_from_the_ground_has_no_shape():
    exclude = '<contact><exclude body1="world" body2="arm"/></contact>'
    assert load_model(mjcf(SECOND, top=exclude)).shape_name == ("ball",)
