"""Robot files that nobody would write: strategies for MJCF and URDF text, and for changes to real files."""

import random
from copy import deepcopy
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import strategies as st

import trot

ASSETS = Path(trot.__path__[0]) / "envs" / "assets"
ROBOTS = ("ant.xml", "cartpole.xml", "half_cheetah.xml", "hopper.xml", "humanoid.xml", "muscle_humanoid.xml")

ODD_VALUES = (
    "0", "-1", "1e30", "-1e30", "nan", "inf", "-inf", "abc", "", " ", "1e-30", "1e300", "1e400", "1 2", "0x1", "é",
    "1 2 3 4 5 6 7 8 9", "2147483648", "-2147483649", "true", "auto", "0 0 0", "0 0 0 0", "nan nan nan", "1e20", "1e-9",
)  # fmt: skip
ODD_NAMES = (
    "", " ", "a b", "é", "<", '"', "world", "../x", "x" * 300, "%s%n", "{}", "a/b", "nan", "0", "\n", "\x00", "\x07",
    "\ud800", "\U0001f600",
)  # fmt: skip
CHOICES = 2**16
CHOICE = st.integers(0, CHOICES - 1)
"""The only strategy there is: others for every value would take longer than the robots."""


class Chance:
    """Choices that hypothesis makes, and makes simpler where a test fails: the first of each list is the simplest."""

    def __init__(self, draw):
        self._draw = draw

    def one_in(self, count):
        # Not at an end of the range, which hypothesis draws more often than others.
        return self._draw(CHOICE) % count == count // 2

    def pick(self, values):
        return values[self._draw(CHOICE) % len(values)]

    def usual(self, values, odd=ODD_VALUES, one_in=400):
        """One of the values, or, once in so many times, an odd one."""
        choice = self._draw(CHOICE)
        rare, which = choice % one_in == one_in // 2, choice // one_in
        return odd[which % len(odd)] if rare else values[which % len(values)]


def numbers(count, low=-1.0, high=1.0):
    """Texts of so many numbers in a range."""
    chance = random.Random(f"{count} {low} {high}")
    return [" ".join(f"{chance.uniform(low, high):.4g}" for _ in range(count)) for _ in range(100)]


POSITIVE, SWITCH, ZERO, ENDS = numbers(1, 0.05, 2), ["true", "false"], ["0"], numbers(6, -0.3, 0.3)
ATTRIBUTES = {
    "body": {"pos": numbers(3), "quat": numbers(4), "gravcomp": ZERO, "mocap": ["false"]},
    "joint": {
        "axis": ["0 0 1", "0 1 0", "1 0 0", "1 1 0"], "pos": numbers(3, -0.2, 0.2), "damping": POSITIVE,
        "stiffness": POSITIVE, "armature": POSITIVE, "range": ["0 1"], "limited": ["auto", "true", "false"],
        "ref": numbers(1), "springref": numbers(1), "user": numbers(1, 0, 1e3), "margin": POSITIVE,
        "actuatorfrcrange": ["-1 1"], "frictionloss": POSITIVE,
    },
    "geom": {
        "size": numbers(3, 0.05, 0.3), "mass": POSITIVE, "density": numbers(1, 100, 2000), "friction": numbers(1, 0, 2),
        "pos": numbers(3, -0.3, 0.3), "quat": numbers(4), "user": numbers(3, 0, 1e4), "contype": ["1", "0", "3"],
        "conaffinity": ["1", "0"], "condim": ["3", "1"], "solref": numbers(2), "margin": POSITIVE,
        "rgba": numbers(4, 0, 1), "group": ["0", "3"],
    },
    "site": {"pos": numbers(3, -0.3, 0.3), "size": POSITIVE, "type": ["sphere", "box"]},
    "inertial": {"pos": numbers(3, -0.1, 0.1), "mass": POSITIVE, "diaginertia": ["1 1 1", "0.1 0.1 0.1", "1 1 3"],
                 "quat": numbers(4)},
    "option": {
        "gravity": numbers(3, -10, 10), "timestep": POSITIVE, "density": ZERO, "viscosity": ZERO, "wind": numbers(3),
        "integrator": ["Euler", "RK4"], "iterations": ["10"], "solver": ["CG"], "magnetic": numbers(3),
    },
    "compiler": {
        "angle": ["radian", "degree"], "autolimits": SWITCH, "inertiafromgeom": ["auto", "true"], "boundmass": POSITIVE,
        "boundinertia": POSITIVE, "settotalmass": POSITIVE, "balanceinertia": SWITCH, "eulerseq": ["xyz", "zyx"],
        "fusestatic": SWITCH, "discardvisual": SWITCH, "strippath": SWITCH, "inertiagrouprange": ["0 5"],
    },
    "size": {"nuser_jnt": ["1", "0", "5"], "nuser_geom": ["3", "0", "1"], "njmax": ["100"], "nconmax": ["10"],
             "nkey": ["2"]},
    "flag": {
        flag: ["enable", "disable"]
        for flag in ("gravity", "contact", "limit", "spring", "damper", "actuation", "clampctrl", "override")
    },
    "actuator": {
        "gear": numbers(1, -5, 5), "ctrlrange": ["-1 1", "0 1"], "ctrllimited": SWITCH, "forcerange": ["-5 5", "0 5"],
        "forcelimited": SWITCH, "group": ["0", "31"], "lengthrange": ["0 1"],
    },
    "general": {
        "gear": numbers(1, -5, 5), "ctrlrange": ["-1 1"], "gainprm": numbers(2), "biasprm": numbers(3),
        "gaintype": ["fixed", "affine", "muscle"], "biastype": ["affine", "none"],
        "dyntype": ["none", "none", "none", "muscle", "integrator"],
    },
    "muscle": {"gear": numbers(1, -5, 5), "force": POSITIVE, "ctrlrange": ["0 1"], "scale": POSITIVE},
    "fixed": {"stiffness": POSITIVE, "range": ["-1 1"], "damping": POSITIVE, "frictionloss": POSITIVE,
              "user": numbers(3, 0.1, 1e3), "springlength": ["0.1 0.3"]},
    "tendon": {"stiffness": ZERO, "limited": ["false"], "margin": ZERO, "damping": ZERO},
    "origin": {"xyz": numbers(3, -0.5, 0.5), "rpy": numbers(3)},
    "limit": {"lower": numbers(1, -1, 0), "upper": numbers(1, 0, 1), "effort": POSITIVE, "velocity": POSITIVE},
    "dynamics": {"damping": POSITIVE, "friction": ZERO},
    "inertia": {"ixx": ["1"], "iyy": ["1"], "izz": POSITIVE, "ixy": ZERO, "ixz": ZERO, "iyz": ZERO},
}  # fmt: skip
TARGETS = {
    "motor": "joint", "general": "joint", "position": "joint", "velocity": "joint", "muscle": "tendon",
    "intvelocity": "joint", "damper": "joint", "cylinder": "joint", "adhesion": "body",
}  # fmt: skip
FOREIGN = ("foreign", "class", "childclass", "mesh", "plugin", "hfield")
EXTRAS = (
    '<contact><exclude body1="body0" body2="world"/></contact>',
    '<contact><pair geom1="geom0" geom2="ground"/></contact>',
    '<equality><weld body1="body0" body2="world"/></equality>',
    '<equality><weld body1="body0" body2="body1" relpose="0 0 nan 1 0 0 0" solref="-1 0"/></equality>',
    '<equality><connect body1="body0" anchor="0 0 1e38" solref="1e-30 1"/></equality>',
    '<equality><joint joint1="joint0" active="false"/></equality>',
    '<equality><joint joint1="joint0" polycoef="0.1 2 1 0 1"/></equality>',
    '<equality><joint joint1="joint0" joint2="joint1" polycoef="0.1 2 1 0 1"/></equality>',
    '<keyframe><key qpos="0 0 0" qvel="nan"/></keyframe>',
    '<sensor><gyro site="site0"/></sensor>',
    '<custom><numeric name="a" data="1 2 nan"/><text name="b" data="&lt;joint"/></custom>',
    '<include file="no_such_file.xml"/>',
    '<extension><plugin plugin="no.such.plugin"/></extension>',
    '<asset><mesh name="n0" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>',
    '<asset><mesh name="n0" vertex="0 0 0 1 0 0"/></asset>',
    '<asset><mesh file="/etc/passwd"/><hfield name="n0" nrow="2" ncol="2" size="1 1 1 1"/></asset>',
    '<asset><hfield name="n0" nrow="2000000000" ncol="2000000000" size="1 1 1 1"/></asset>',
    '<default><default class="n0"><geom size="nan"/><joint damping="-1"/></default></default>',
    '<default><joint type="ball"/><geom type="mesh" mesh="n0"/></default>',
    '<deformable><flex name="f" body="body0" vertex="0 0 0"/></deformable>',
    '<worldbody><body mocap="true"><geom size="1"/></body></worldbody>',
    '<worldbody><replicate count="3" offset="0 0 1"><body><joint/><geom size="0.1"/></body></replicate></worldbody>',
    '<worldbody><composite type="cable" count="5 1 1" size="1"/></worldbody>',
    '<worldbody><flexcomp name="c" type="grid" count="3 3 1" spacing=".1 .1 .1"/></worldbody>',
    '<worldbody><attach model="none" prefix="a"/></worldbody>',
    '<worldbody><frame euler="0 0 1"><geom type="plane" size="0 0 1"/></frame></worldbody>',
    '<statistic meansize="nan"/>',
    '<visual><global offwidth="-1"/></visual>',
    "<nothing/>",
)
"""What few robots have: each is refused, ignored or simulated."""


def element(chance, tag, often=(), table=None, **fixed):
    """With some attributes of its kind, those in `often` nearly always, and now and then a foreign one."""
    table = ATTRIBUTES[table or tag]
    names = sorted(table)
    chosen = {chance.pick(names) for _ in range(chance.pick([0, 1, 2, 3]))}
    chosen |= {attribute for attribute in often if not chance.one_in(500)}
    given = {attribute: chance.usual(table[attribute]) for attribute in sorted(chosen)} | fixed
    if chance.one_in(500):
        given[chance.pick(FOREIGN)] = "n0"
    return ElementTree.Element(tag, given)


class Labels:
    """Names that are given once each, so that most files have no two things of one name."""

    def __init__(self, chance):
        self._chance, self._given = chance, {}

    def new(self, kind):
        names = self._given.setdefault(kind, [])
        names.append(f"{kind}{len(names)}" if not self._chance.one_in(500) else self._chance.pick(ODD_NAMES))
        return names[-1]

    def has(self, kind):
        return kind in self._given

    def any(self, kind):
        return self._chance.usual(self._given.get(kind) or ["nobody"], ODD_NAMES)

    def some(self, kind, count):
        """Different ones, one after the other in the file."""
        names = self._given[kind]
        first = self._chance.pick(range(len(names)))
        return (names[first:] + names[:first])[:count]


def _mjcf_body(chance, labels, depth):
    body = element(chance, "body", ["pos"], name=labels.new("body"))
    if depth == 0 and chance.one_in(2):
        ElementTree.SubElement(body, "freejoint", name=labels.new("free"))
    else:
        for _ in range(chance.pick([1, 1, 1, 2, 0])):
            kind = chance.usual(["hinge", "slide", "hinge", "ball"], ["free", "x", ""], 150)
            body.append(element(chance, "joint", ["axis"], name=labels.new("joint"), type=kind))
    for _ in range(chance.pick([1, 1, 1, 2])):
        odd = ("cylinder", "ellipsoid", "plane", "mesh", "hfield", "x")
        kind = chance.usual(["sphere", "capsule", "box"], odd, 40)
        geom = element(chance, "geom", ["size"], name=labels.new("geom"), type=kind)
        if kind == "capsule" and chance.one_in(3):
            geom.set("fromto", chance.usual(ENDS))
        body.append(geom)
    if chance.one_in(2):
        body.append(element(chance, "site", ["pos"], name=labels.new("site")))
    if chance.one_in(12):
        body.append(element(chance, "inertial", ["pos", "mass", "diaginertia"]))
    if depth < 4:
        for _ in range(chance.pick([0, 1, 0, 2])):
            body.append(_mjcf_body(chance, labels, depth + 1))
    return body


def _tendon(chance, labels):
    if chance.one_in(6) and labels.has("joint"):
        tendon = element(chance, "fixed", name=labels.new("tendon"))
        ElementTree.SubElement(tendon, "joint", joint=labels.any("joint"), coef="1")
        return tendon
    tendon = element(chance, "spatial", table="tendon", name=labels.new("tendon"))
    for site in labels.some("site", chance.usual([2, 3], [0, 1], 20)):
        kind = "geom" if chance.one_in(40) else "site"
        ElementTree.SubElement(tendon, kind, {kind: site if kind == "site" else labels.any(kind)})
    return tendon


def _actuator(chance, labels):
    kind = chance.usual(["motor", "motor", "position", "velocity"], sorted(TARGETS), 8)
    target = chance.pick([TARGETS[kind]] * 12 + ["tendon"] * 2 + ["site"])
    if not labels.has(target):
        target = "joint" if labels.has("joint") else "free"
    table = kind if kind in ATTRIBUTES else "actuator"
    attribute = "joint" if target == "free" else target
    return element(chance, kind, ["gear", "ctrlrange"], table, **{attribute: labels.any(target)})


@st.composite
def mjcf(draw):
    """A robot of MuJoCo's format, as text."""
    chance = Chance(draw)
    labels = Labels(chance)
    robot = ElementTree.Element("mujoco", model=labels.new("model"))
    robot.extend(element(chance, tag) for tag in ("compiler", "option", "size") if chance.one_in(3))
    if chance.one_in(8):
        ElementTree.SubElement(robot, "option").append(element(chance, "flag"))
    world = ElementTree.SubElement(robot, "worldbody")
    if not chance.one_in(6):
        ElementTree.SubElement(world, "geom", type="plane", size="0 0 1", name="ground")
    world.extend(element(chance, "site", name=labels.new("site")) for _ in range(2))
    world.extend(_mjcf_body(chance, labels, 0) for _ in range(chance.pick([1, 1, 1, 2])))
    ElementTree.SubElement(robot, "tendon").extend(_tendon(chance, labels) for _ in range(chance.pick([0, 0, 1, 2])))
    actuators = [_actuator(chance, labels) for _ in range(chance.pick([0, 1, 2, 3]))]
    ElementTree.SubElement(robot, "actuator").extend(actuators)
    if chance.one_in(6):
        robot.append(ElementTree.fromstring(chance.pick(EXTRAS)))
    return _spoilt(chance, ElementTree.tostring(robot, encoding="unicode"))


def _spoilt(chance, text):
    """Now and then not even XML, or nested beyond reason."""
    if chance.one_in(50):
        cut = chance.pick(range(len(text)))
        return text[:cut] + chance.pick(ODD_NAMES) + text[cut + chance.pick(range(4)) :]
    if chance.one_in(100):
        depth = chance.pick([30, 400, 5000, 100_000])
        nested = '<body><joint type="slide"/><geom size="0.1"/>' * depth + "</body>" * depth
        return text.replace("</worldbody>", f"{nested}</worldbody>", 1)
    return text


def _link(chance, name):
    link = ElementTree.Element("link", name=name)
    if not chance.one_in(10):
        inertial = ElementTree.SubElement(link, "inertial")
        inertial.append(element(chance, "origin"))
        ElementTree.SubElement(inertial, "mass", value=chance.usual(POSITIVE))
        inertial.append(element(chance, "inertia", ATTRIBUTES["inertia"]))
    for tag in chance.pick([["collision"], ["collision", "visual"], ["visual"], []]):
        part = ElementTree.SubElement(link, tag)
        part.append(element(chance, "origin"))
        kind = chance.usual(["sphere", "box"], ["cylinder", "mesh", "capsule", "x"], 30)
        size = {"radius": chance.usual(POSITIVE), "size": chance.usual(numbers(3, 0.1, 1)), "length": "1"}
        ElementTree.SubElement(ElementTree.SubElement(part, "geometry"), kind, size, filename="no_such.stl")
    return link


def _urdf_joint(chance, number):
    kind = chance.usual(["revolute", "continuous", "prismatic", "revolute", "fixed", "floating", "planar"])
    joint = ElementTree.Element("joint", name=chance.usual([f"joint{number}"], ODD_NAMES), type=kind)
    joint.append(element(chance, "origin"))
    earlier = [f"link{index}" for index in range(number)]
    ElementTree.SubElement(joint, "parent", link=chance.usual(earlier, ODD_NAMES))
    ElementTree.SubElement(joint, "child", link=chance.usual([f"link{number}"], earlier))
    ElementTree.SubElement(joint, "axis", xyz=chance.usual(["0 0 1", "0 1 0", "1 0 0", "1 1 0"]))
    joint.append(element(chance, "limit", ["lower", "upper", "effort", "velocity"]))
    if chance.one_in(2):
        joint.append(element(chance, "dynamics"))
    if chance.one_in(20):
        ElementTree.SubElement(joint, "mimic", joint="joint1")
    return joint


@st.composite
def urdf(draw):
    """A robot of ROS' format, as text."""
    chance = Chance(draw)
    robot = ElementTree.Element("robot", name=chance.usual(["robot"], ODD_NAMES))
    count = chance.pick([3, 2, 4, 5, 1])
    robot.extend(_link(chance, chance.usual([f"link{index}"], ODD_NAMES)) for index in range(count))
    robot.extend(_urdf_joint(chance, number) for number in range(1, count))
    if chance.one_in(10):
        robot.append(ElementTree.fromstring('<mujoco><compiler discardvisual="false" fusestatic="false"/></mujoco>'))
    return _spoilt(chance, ElementTree.tostring(robot, encoding="unicode"))


@cache
def _parsed(robot):
    return ElementTree.parse(ASSETS / robot).getroot()


@st.composite
def changed_robot(draw):
    """One of trot's own files, by name, and its text after some changes."""
    chance = Chance(draw)
    robot = chance.pick(ROBOTS)
    root = deepcopy(_parsed(robot))
    for _ in range(chance.pick([1, 2, 3])):
        parent, child = chance.pick([(parent, child) for parent in root.iter() for child in parent] or [(root, root)])
        _change(chance, parent, child)
    return robot, ElementTree.tostring(root, encoding="unicode")


def _change(chance, parent, child):
    change = chance.pick(["number", "number", "number", "number", "value", "lose", "drop", "double", "rename"])
    if change == "drop" and child is not parent:
        parent.remove(child)
    elif change == "double" and child is not parent:
        parent.append(deepcopy(child))
    elif change == "rename":
        child.tag = chance.pick(["body", "joint", "geom", "site", "motor", "freejoint", "x", "inertial"])
    elif child.attrib:
        _change_attribute(chance, child, change)


def _change_attribute(chance, child, change):
    attribute = chance.pick(sorted(child.attrib))
    words = child.attrib[attribute].split()
    if change == "lose":
        del child.attrib[attribute]
    elif change == "value" or not words:
        child.attrib[attribute] = chance.pick(ODD_VALUES)
    else:
        words[chance.pick(range(len(words)))] = chance.pick(ODD_VALUES)
        child.attrib[attribute] = " ".join(words)
