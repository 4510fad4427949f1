"""Random robots as MJCF text: trees with every joint type, welded bodies and lively numbers, fixed by the rng."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import numpy as np

JOINT_TYPES = ("hinge", "slide", "ball")
SHAPE_SIZES = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3}
"""How many numbers the size of each shape has."""


def random_robot(
    rng: np.random.Generator,
    num_bodies: int,
    *,
    max_joints: int = 3,
    welded: float = 0.3,
    num_muscles: int = 2,
    ground: bool = True,
    laws: bool = False,
) -> str:
    """MJCF with num_bodies moving bodies of 1 to max_joints joints each.

    A body hangs from a random earlier one or from the world, and with probability welded a body without joints comes in
    between. Every joint but a free one has a motor; muscles run through 2 to 4 random sites. laws adds dry friction,
    damped limits, servos, fixed tendons, equalities of joints and of bodies, and gravcomp.
    """
    if num_bodies < 1 or max_joints < 1:
        raise ValueError(f"need at least one body and one joint, not {num_bodies} and {max_joints}")
    robot = ElementTree.Element("mujoco", model="random")
    ElementTree.SubElement(robot, "compiler", angle="radian")
    ElementTree.SubElement(robot, "option", gravity=_text(rng.normal(0, 5, 3)))
    world = ElementTree.SubElement(robot, "worldbody")
    ElementTree.SubElement(world, "site", name="anchor", pos=_text(rng.normal(0, 1, 3)))
    if ground:
        height = _text([0, 0, rng.normal(0, 0.1)])
        plane = ElementTree.SubElement(world, "geom", type="plane", size="0 0 1", pos=height, conaffinity="0")
        # Every shape has its own friction then.
        plane.set("friction", "0")

    bodies: list[ElementTree.Element] = []
    for index in range(num_bodies):
        hangs_from_world = index == 0 or rng.random() < 0.15
        parent = world if hangs_from_world else bodies[rng.integers(len(bodies))]
        # Only a child of the world itself may have a free joint, so nothing is welded in between there.
        free = hangs_from_world and rng.random() < 0.5
        if not free and rng.random() < welded:
            parent = _add_body(rng, parent, f"weld{index}")
        body = _add_body(rng, parent, f"link{index}")
        _add_joints(rng, body, index, 0 if free else int(rng.integers(1, max_joints + 1)))
        bodies.append(body)
    _add_actuators(rng, robot, num_muscles)
    if laws:
        _add_laws(rng, robot, ranges=num_muscles == 0)
        _add_bonds(rng, robot)
        _add_lifts(rng, robot)
    return ElementTree.tostring(robot, encoding="unicode")


def _text(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)


def _add_body(rng: np.random.Generator, parent: ElementTree.Element, name: str) -> ElementTree.Element:
    """A body with a random frame, inertia, shape and site."""
    body = ElementTree.SubElement(
        parent, "body", name=name, pos=_text(rng.normal(0, 0.3, 3)), quat=_text(rng.normal(0, 1, 4))
    )
    # The inertia of a random box in a random frame is always one that a rigid body can have.
    mass, sides = rng.uniform(0.3, 3), rng.uniform(0.1, 0.4, 3) ** 2
    ElementTree.SubElement(
        body,
        "inertial",
        mass=_text([mass]),
        pos=_text(rng.normal(0, 0.1, 3)),
        quat=_text(rng.normal(0, 1, 4)),
        diaginertia=_text(mass / 3 * (sides.sum() - sides)),
    )
    kind = rng.choice(list(SHAPE_SIZES))
    ElementTree.SubElement(
        body,
        "geom",
        name=name,
        type=kind,
        size=_text(rng.uniform(0.03, 0.15, SHAPE_SIZES[kind])),
        pos=_text(rng.normal(0, 0.1, 3)),
        quat=_text(rng.normal(0, 1, 4)),
        contype="0",
        friction=_text(rng.uniform(0.2, 1.2, 1)),
        user=_text(rng.uniform([5e3, 2e2, 3e2], [3e4, 3e3, 2e3])),
    )
    ElementTree.SubElement(body, "site", name=name, pos=_text(rng.normal(0, 0.15, 3)))
    return body


def _add_joints(rng: np.random.Generator, body: ElementTree.Element, index: int, count: int) -> None:
    """A free joint if count is 0, else count joints; MuJoCo allows no rotation after a ball joint."""
    kinds = list(rng.choice(JOINT_TYPES, count)) if count else ["free"]
    if "ball" in kinds:
        last = kinds.index("ball")
        kinds = kinds[: last + 1] + ["slide"] * (count - last - 1)
    for place, kind in enumerate(kinds):
        joint = ElementTree.SubElement(body, "joint", name=f"joint{index}_{place}", type=kind)
        joint.set("damping", _text(rng.uniform(0, 1, 1)))
        joint.set("armature", _text(rng.uniform(0.01, 0.1, 1)))
        if kind != "free":
            joint.set("pos", _text(rng.normal(0, 0.1, 3)))
            joint.set("stiffness", _text(rng.uniform(0, 5, 1)))
            joint.set("user", _text(rng.uniform(100, 1000, 1)))
        if kind in ("hinge", "slide"):
            joint.set("axis", _text(rng.normal(0, 1, 3)))
            joint.set("ref", _text(rng.normal(0, 0.3, 1)))
            joint.set("springref", _text(rng.normal(0, 0.3, 1)))
        if kind != "free" and rng.random() < 0.5:
            joint.set("range", _text([0 if kind == "ball" else rng.uniform(-1, -0.1), rng.uniform(0.1, 1)]))


def _add_actuators(rng: np.random.Generator, robot: ElementTree.Element, num_muscles: int) -> None:
    sites = [site.get("name", "") for site in robot.iter("site")]
    tendons = ElementTree.SubElement(robot, "tendon")
    actuators = ElementTree.SubElement(robot, "actuator")
    for joint in robot.iter("joint"):
        if joint.get("type") != "free":
            gears = 3 if joint.get("type") == "ball" else 1
            motor = ElementTree.SubElement(actuators, "motor", joint=joint.get("name", ""))
            motor.set("gear", _text(rng.normal(0, 5, gears)))
            motor.set("ctrlrange", _text([rng.uniform(-2, -0.5), rng.uniform(0.5, 2)]))
    for index in range(num_muscles):
        path = rng.choice(sites, min(len(sites), int(rng.integers(2, 5))), replace=False)
        tendon = ElementTree.SubElement(tendons, "spatial", name=f"muscle{index}")
        for site in path:
            ElementTree.SubElement(tendon, "site", site=str(site))
        gear = _text([-rng.uniform(20, 200)])
        ElementTree.SubElement(actuators, "motor", tendon=f"muscle{index}", gear=gear, ctrlrange="0 1")


def _add_laws(rng: np.random.Generator, robot: ElementTree.Element, ranges: bool) -> None:
    """ranges: whether joints bound the sum of their actuators, which no robot with muscles can have."""
    simple = [joint for joint in robot.iter("joint") if joint.get("type") in ("hinge", "slide")]
    for joint in robot.iter("joint"):
        if rng.random() < 0.5:
            joint.set("frictionloss", _text(rng.uniform(0.1, 3, 1)))
    for joint in simple:
        joint.set("user", _text(rng.uniform([100, 0, 0.05], [1000, 100, 0.5])))
        if ranges and rng.random() < 0.4:
            joint.set("actuatorfrcrange", _text([rng.uniform(-8, -1), rng.uniform(1, 8)]))
    if not simple:
        return
    names = [joint.get("name", "") for joint in simple]
    tendons, actuators = robot.find("tendon"), robot.find("actuator")
    assert tendons is not None and actuators is not None
    for index in range(2):
        tendon = ElementTree.SubElement(tendons, "fixed", name=f"fixed{index}", stiffness=_text(rng.uniform(0, 9, 1)))
        tendon.set("springlength", _text(np.sort(rng.normal(0, 0.5, 2))))
        tendon.set("range", _text([rng.uniform(-1, -0.1), rng.uniform(0.1, 1)]))
        tendon.set("damping", _text(rng.uniform(0, 2, 1)))
        tendon.set("frictionloss", _text(rng.uniform(0, 2, 1)))
        tendon.set("user", _text(rng.uniform([100, 0, 0.05], [1000, 100, 0.5])))
        for name in rng.choice(names, min(len(names), 3), replace=False):
            ElementTree.SubElement(tendon, "joint", joint=str(name), coef=_text(rng.normal(0, 1, 1)))
    for name in names:
        _add_servo(rng, actuators, {"joint": name})
    _add_servo(rng, actuators, {"tendon": "fixed0"})
    ElementTree.SubElement(actuators, "motor", tendon="fixed1", gear=_text(rng.normal(0, 3, 1)), ctrlrange="-1 1")
    if len(names) > 1:
        follower, leader = (str(name) for name in rng.choice(names, 2, replace=False))
        # Steep ones would throw about whatever is far from its reference.
        polynomial = _text(rng.normal(0, [0.3, 0.5, 0.1, 0.02, 0.005]))
        equality = ElementTree.SubElement(robot, "equality")
        ElementTree.SubElement(equality, "joint", joint1=follower, joint2=leader, polycoef=polynomial)


def _add_bonds(rng: np.random.Generator, robot: ElementTree.Element) -> None:
    """A connect and a weld of random bodies, or of one to the world, and a weld of sites; soft ones."""
    names = [body.get("name", "") for body in robot.iter("body")]
    equality = ElementTree.SubElement(robot, "equality")
    for kind in ("connect", "weld"):
        pair = rng.choice([*names, "world"], 2, replace=False)
        bond = ElementTree.SubElement(equality, kind, body1=str(pair[0]), body2=str(pair[1]))
        bond.set("anchor", _text(rng.normal(0, 0.2, 3)))
        bond.set("solref", _text(rng.uniform([0.05, 0.5], [0.3, 2])))
    sites = rng.choice([*names, "anchor"], 2, replace=False)
    ElementTree.SubElement(equality, "weld", site1=str(sites[0]), site2=str(sites[1]), solref="-50 -8")


def _add_lifts(rng: np.random.Generator, robot: ElementTree.Element) -> None:
    for body in robot.iter("body"):
        if rng.random() < 0.3:
            body.set("gravcomp", _text(rng.uniform(-0.5, 1.5, 1)))


def _add_servo(rng: np.random.Generator, actuators: ElementTree.Element, target: dict[str, str]) -> None:
    servo = ElementTree.SubElement(actuators, "general", target, biastype="affine", gaintype="affine")
    servo.set("gainprm", _text(rng.normal(0, [9, 2, 1])))
    servo.set("biasprm", _text(rng.normal(0, [1, 9, 1])))
    servo.set("gear", _text(rng.normal(0, 1, 1)))
    servo.set("ctrlrange", _text([rng.uniform(-2, -0.5), rng.uniform(0.5, 2)]))
    if rng.random() < 0.5:
        servo.set("forcerange", _text([rng.uniform(-5, -1), rng.uniform(1, 5)]))
