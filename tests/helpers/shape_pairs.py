"""Two free bodies with a shape each, or one and something fixed, as MJCF; and states in which they overlap."""

from __future__ import annotations

import numpy as np
from manifold import quat_exp, quat_product

from trot.sim.load import load_model
from trot.sim.model import Model

SPHERE = 'type="sphere" size="0.11"'
CAPSULE = 'type="capsule" size="0.06 0.14"'
BOX = 'type="box" size="0.12 0.09 0.15"'
CYLINDER = 'type="cylinder" size="0.12 0.09"'
ELLIPSOID = 'type="ellipsoid" size="0.12 0.09 0.15"'
HEIGHTS = np.random.default_rng(5).uniform(size=(5, 7))
FIELD = 'type="hfield" hfield="hills"'
ASSETS = (
    f'<asset><hfield name="hills" nrow="5" ncol="7" size="0.6 0.5 0.2 0.1" '
    f'elevation="{" ".join(f"{height:.6f}" for height in HEIGHTS.ravel())}"/></asset>'
)
PAIRS = {
    "sphere, sphere": (SPHERE, SPHERE),
    "sphere, capsule": (SPHERE, CAPSULE),
    "capsule, capsule": (CAPSULE, CAPSULE),
    "sphere, box": (SPHERE, BOX),
    "capsule, box": (CAPSULE, BOX),
    "box, box": (BOX, BOX),
}
FIXED = {
    "sphere, plane": (SPHERE, 'type="plane" size="0 0 1"'),
    "capsule, plane": (CAPSULE, 'type="plane" size="0 0 1"'),
    "box, plane": (BOX, 'type="plane" size="0 0 1"'),
    "sphere, field": (SPHERE, FIELD),
    "capsule, field": (CAPSULE, FIELD),
    "box, field": (BOX, FIELD),
}
SPRINGS = 'friction="0.8" user="2e4 1.2e3 9e2"'
OTHER_SPRINGS = 'friction="0.6" user="3e4 2e3 7e2"'


def two_bodies(
    first: str, second: str, *, gravity: str = "0 0 0", springs: tuple[str, str] = (SPRINGS, OTHER_SPRINGS)
) -> Model:
    """The geoms sit askew on bodies of 2 and 3 kg."""
    return load_model(
        f"""
    <mujoco>
      <option gravity="{gravity}"/>
      <worldbody>
        <body name="first">
          <freejoint/>
          <inertial mass="2" pos="0.02 0 -0.01" diaginertia="0.02 0.03 0.025"/>
          <geom name="first" {first} {springs[0]} pos="0.02 0.01 -0.03" quat="1 0.2 -0.1 0.3"/>
        </body>
        <body name="second">
          <freejoint/>
          <inertial mass="3" pos="0 0.01 0.02" diaginertia="0.04 0.03 0.035"/>
          <geom name="second" {second} {springs[1]} pos="-0.01 0.03 0.02" quat="1 -0.3 0.2 0.1"/>
        </body>
      </worldbody>
    </mujoco>""",
        self_collision=True,
    )


def one_body(first: str, second: str, *, gravity: str = "0 0 0") -> Model:
    """The second shape stands in the world, tilted."""
    return load_model(f"""
    <mujoco>
      <option gravity="{gravity}"/>
      {ASSETS if "hfield" in second else ""}
      <worldbody>
        <geom name="second" {second} {OTHER_SPRINGS} pos="0.3 -0.2 0.4" quat="1 0.2 -0.15 0.1"/>
        <body name="first">
          <freejoint/>
          <inertial mass="2" pos="0.02 0 -0.01" diaginertia="0.02 0.03 0.025"/>
          <geom name="first" {first} {SPRINGS} pos="0.02 0.01 -0.03" quat="1 0.2 -0.1 0.3"/>
        </body>
      </worldbody>
    </mujoco>""")


def overlapping(model: Model, num_worlds: int, rng: np.random.Generator, distance: float = 0.3) -> np.ndarray:
    """joint_q with free bodies in any attitude, at most so far from each other or from what is fixed."""
    bodies = model.num_q // 7
    joint_q = np.zeros((num_worlds, model.num_q))
    middle = np.array([0.3, -0.2, 0.6]) if bodies == 1 else np.zeros(3)
    for body in range(bodies):
        joint_q[:, 7 * body : 7 * body + 3] = middle + rng.uniform(-distance / 2, distance / 2, (num_worlds, 3))
        joint_q[:, 7 * body + 3 : 7 * body + 7] = quat_exp(rng.normal(0, 1.5, (num_worlds, 3)))
    return joint_q


def parallel(model: Model, num_worlds: int, rng: np.random.Generator, angle: float) -> np.ndarray:
    """joint_q with the axes of two_bodies()' capsules side by side but for this angle, 1 cm deep, shifted along."""
    joint_q = np.zeros((num_worlds, 14))
    attitude = quat_exp(rng.normal(0, 1.5, (num_worlds, 3)))
    tilt = quat_exp(angle * np.array([[1.0, 0, 0]]))
    aside = 2 * model.feeler_radius[0] - 0.01
    centre = np.zeros((num_worlds, 3))
    shift = np.stack([np.full(num_worlds, aside), np.zeros(num_worlds), rng.uniform(-0.2, 0.2, num_worlds)], axis=1)
    for body, (offset, turn) in enumerate(((centre, np.array([[1.0, 0, 0, 0]])), (shift, tilt))):
        geom = model.source.geom(("first", "second")[body])
        wanted = quat_product(attitude, np.broadcast_to(turn, attitude.shape))
        back = geom.quat * [1, -1, -1, -1]
        quat = quat_product(wanted, np.broadcast_to(back, wanted.shape))
        joint_q[:, 7 * body : 7 * body + 3] = rotated(attitude, offset) - rotated(quat, geom.pos)
        joint_q[:, 7 * body + 3 : 7 * body + 7] = quat
    return joint_q


def rotated(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    pure = np.concatenate([np.zeros((len(quat), 1)), np.broadcast_to(vector, (len(quat), 3))], axis=1)
    return quat_product(quat_product(quat, pure), quat * [1, -1, -1, -1])[:, 1:]
