"""Writes muscle_humanoid.xml one folder up: python trot/envs/assets/muscle_humanoid/generate.py.

skeleton.csv has one row per body, a parent before its children. Metres and quaternions w x y z, all in the body's own
frame, except for the offset of its joint, which is in the parent's frame; in the reference pose all frames are aligned:
x left, y up, z forward. The joint is at the origin of the body, and a hinge turns about x. The size of the box is its
whole length along each of its axes.

muscles.csv has one row per waypoint, in the order in which the muscle runs, in the frame of the body that it sits on.
"""

from __future__ import annotations

import csv
from itertools import groupby
from math import sqrt
from operator import itemgetter
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

FOLDER = Path(__file__).resolve().parent
ROBOT_FILE = FOLDER.with_suffix(".xml")

SPRING_STIFFNESS = 5.0
"""N m/rad for a body of REFERENCE_MASS; it grows with the square root of the mass."""
LIMIT_STIFFNESS = 1000.0
"""N m/rad for a body of REFERENCE_MASS, like LIMIT_DAMPING in proportion to the mass."""
LIMIT_DAMPING = 10.0
"""N m s/rad, which a hinge with limits feels at all times."""
REFERENCE_MASS = 15.0
"""kg."""
JOINT_DAMPING = 2.0
"""N m s/rad."""
PEAK_TENSION = 0.36
"""Of a muscle's isometric strength."""

HEADER = """\
<!-- Muscle Humanoid: the lower half of a human figure, moved by 152 muscles. Written by muscle_humanoid/generate.py:
     change the tables or the script there, not this file. Figures: the lower body of the musculoskeletal model of
     "Scalable Muscle-Actuated Human Simulation and Control" (2019), with the constants of Humanoid MTU of "Accelerated
     Policy Learning with Parallel Differentiable Simulation" (ICLR 2022); damping includes what its limits add at all
     times. 37 kg. Body frames: x left, y up, z forward; the pelvis turns them to the world's z up, x forward.
     The spring of a ball joint pulls with stiffness times 2 sin(angle / 2), that of the figures with stiffness times
     sin(angle / 2), so the stiffness here is half of theirs. The left foot's toe bodies are swapped, as in the figures.
     Geom user: contact stiffness, damping, friction stiffness. Joint user: stiffness of the limit. -->
"""

FRAME = """\
<mujoco model="muscle_humanoid">
  <compiler angle="radian"/>
  <default>
    <geom type="box" contype="0" conaffinity="1" condim="3" friction="0.5" user="5e3 2e3 1e3" rgba="0.3 0.5 0.7 0.25"/>
    <joint axis="1 0 0" armature="0.05"/>
    <site size="0.004" rgba="0.85 0.25 0.2 1"/>
    <tendon width="0.004" rgba="0.85 0.25 0.2 1"/>
    <motor ctrlrange="0 1"/>
    <default class="foot">
      <geom rgba="0.9 0.6 0.2 0.4"/>
    </default>
  </default>
  <worldbody>
    <light pos="0 0 6" directional="true"/>
    <geom name="ground" type="plane" size="0 0 1" contype="1" conaffinity="0" rgba="0.8 0.8 0.8 1"/>
  </worldbody>
  <tendon/>
  <actuator/>
</mujoco>
"""
START = {"pos": "0 0 1", "quat": "0.5 0.5 0.5 0.5"}
"""Of the pelvis: its x, y, z are the world's y, z, x."""

Row = dict[str, str]
"""A line of a table, by the names of its columns."""


def build_xml() -> str:
    """The text of the robot file."""
    waypoints = _read("muscles.csv")
    muscles = [(name, list(rows)) for name, rows in groupby(waypoints, key=itemgetter("muscle"))]
    robot = ElementTree.fromstring(FRAME)
    world, tendons, actuators = (_child(robot, name) for name in ("worldbody", "tendon", "actuator"))
    bodies = {"": world}
    for row in _read("skeleton.csv"):
        body = bodies[row["body"]] = _add_body(bodies[row["parent"]], row)
        for name, path in muscles:
            _add_sites(body, row["body"], name, path)
    for name, path in muscles:
        _add_muscle(tendons, actuators, name, path)
    ElementTree.indent(robot)
    return HEADER + ElementTree.tostring(robot, encoding="unicode").replace(" />", "/>") + "\n"


def _add_body(parent: Element, row: Row) -> Element:
    """The body with its joint and its box."""
    name = {"name": row["body"]}
    if row["joint"] == "free":
        body = SubElement(parent, "body", name | START)
        SubElement(body, "freejoint", name="root")
    else:
        body = SubElement(parent, "body", name | {"pos": _columns(row, "offset")})
        SubElement(body, "joint", name | _joint_constants(row))
    half_size = " ".join(_number(float(row[f"size_{axis}"]) / 2) for axis in "xyz")
    place = {"pos": _columns(row, "centre"), "quat": _columns(row, "quat", "wxyz")}
    colour = {"class": "foot"} if row["body"].startswith(("talus", "foot")) else {}
    SubElement(body, "geom", colour | name | {"size": half_size, **place, "mass": row["mass_kg"]})
    return body


def _joint_constants(row: Row) -> dict[str, str]:
    share = float(row["mass_kg"]) / REFERENCE_MASS
    stiffness, damping = SPRING_STIFFNESS * sqrt(share), JOINT_DAMPING
    if row["joint"] == "ball":
        # Half, for the reason that the header gives.
        return {"type": "ball", "stiffness": _number(stiffness / 2), "damping": _number(damping)}
    return {
        "type": "hinge",
        "range": f"{row['lower_rad']} {row['upper_rad']}",
        "stiffness": _number(stiffness),
        "damping": _number(damping + LIMIT_DAMPING * share),
        "user": _number(LIMIT_STIFFNESS * share),
    }


def _add_sites(body: Element, body_name: str, muscle: str, path: list[Row]) -> None:
    """Those waypoints of the muscle that sit on the body."""
    for number, waypoint in enumerate(path):
        if waypoint["body"] == body_name:
            place = " ".join(waypoint[axis] for axis in "xyz")
            SubElement(body, "site", name=_site_name(muscle, number), pos=place)


def _add_muscle(tendons: Element, actuators: Element, name: str, path: list[Row]) -> None:
    tendon = SubElement(tendons, "spatial", name=name)
    for number in range(len(path)):
        SubElement(tendon, "site", site=_site_name(name, number))
    # A pull is a negative force on a tendon.
    pull = -PEAK_TENSION * float(path[0]["strength_n"])
    SubElement(actuators, "motor", name=name, tendon=name, gear=_number(pull))


def _site_name(muscle: str, number: int) -> str:
    return f"{muscle}.{number}"


def _read(file: str) -> list[Row]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def _columns(row: Row, name: str, axes: str = "xyz") -> str:
    return " ".join(row[f"{name}_{axis}"] for axis in axes)


def _number(value: float) -> str:
    return f"{value:.8g}"


def _child(parent: Element, name: str) -> Element:
    child = parent.find(name)
    assert child is not None
    return child


if __name__ == "__main__":
    ROBOT_FILE.write_text(build_xml(), encoding="utf-8", newline="\n")
