"""Muscles with curves for a random robot: straight tendons, and around spheres and cylinders on its bodies."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import numpy as np


def with_hill_muscles(robot: str, rng: np.random.Generator, count: int) -> str:
    """The robot with `count` muscles more, each over two or three of its sites and around a shape in between."""
    tree = ElementTree.fromstring(robot)
    sites = [name for site in tree.iter("site") if (name := site.get("name"))]
    bodies = list(tree.iter("body"))
    tendons, actuators = tree.find("tendon"), tree.find("actuator")
    assert tendons is not None and actuators is not None
    for index in range(count):
        path = rng.choice(sites, min(len(sites), int(rng.integers(2, 4))), replace=False)
        tendon = ElementTree.SubElement(tendons, "spatial", name=f"hill{index}")
        for place, site in enumerate(path):
            ElementTree.SubElement(tendon, "site", site=str(site))
            if place + 1 < len(path) and rng.random() < 0.8:
                _wrap(rng, tendon, bodies[rng.integers(len(bodies))], f"wrap{index}_{place}")
        shortest = rng.uniform(0.2, 0.6)
        muscle = ElementTree.SubElement(actuators, "muscle", name=f"hill{index}", tendon=f"hill{index}")
        muscle.set("lengthrange", _text([shortest, shortest + rng.uniform(0.1, 0.6)]))
        muscle.set("force", _text(rng.uniform(20, 200, 1)))
        muscle.set("tausmooth", _text([rng.choice([0.0, rng.uniform(0.1, 0.5)])]))
    return ElementTree.tostring(tree, encoding="unicode")


def _wrap(rng: np.random.Generator, tendon: ElementTree.Element, body: ElementTree.Element, name: str) -> None:
    kind, radius = rng.choice(["sphere", "cylinder"]), rng.uniform(0.03, 0.2)
    middle, towards = rng.normal(0, 0.15, 3), rng.normal(size=3)
    size = [radius] if kind == "sphere" else [radius, 0.3]
    ElementTree.SubElement(
        body, "geom", name=name, type=str(kind), size=_text(size), pos=_text(middle), quat=_text(rng.normal(size=4)),
        contype="0", conaffinity="0", mass="0",
    )  # fmt: skip
    around = ElementTree.SubElement(tendon, "geom", geom=name)
    if rng.random() < 0.5:
        side = middle + towards / np.linalg.norm(towards) * radius * rng.uniform(1.1, 3)
        ElementTree.SubElement(body, "site", name=f"{name}_side", pos=_text(side))
        around.set("sidesite", f"{name}_side")


def _text(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)
