"""A robot in several worlds as nodes of a viser scene.

/trot                      moves against the followed robot, so that the camera need not move
/trot/ground_0             a grid for each plane
/trot/plain_light          from everywhere, where there is no GPU
/trot/world_0/BODY         a frame per body; the geoms are its children, so that only bodies move
/trot/world_0/BODY/muscles tubes along every spatial tendon, blue at rest and red at full activation
/trot/world_0/BODY/forces  arrows at what touches the ground
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import viser
from numpy.typing import NDArray

from trot.view.browser.framing import lane_offsets, survey
from trot.view.browser.geoms import Floats, add_geom, shown_geoms
from trot.view.browser.poses import Kinematics, Numbers, Poses

ROOT = "/trot"
REST_RGB, FULL_RGB = np.array([51.0, 102.0, 217.0]), np.array([230.0, 31.0, 20.0])
FORCE_RGB = (20, 150, 60)
ENDLESS, FADE = 2000.0, 60.0
"""Metres: the sides of a ground without end, and the distance from the camera at which it is gone."""
GAP = 0.5
"""Metres between the robots of two worlds."""
DISTANCE = 1.65
"""Of the camera, in radii of what it sees: a ball of radius 1 fills viser's 75 degrees from 1 / sin(37.5)."""
ZENITH_RGB, HORIZON_RGB = np.array([176.0, 205.0, 235.0]), np.array([255.0, 255.0, 255.0])
SKY_ROWS, HORIZON_ROW = 64, 32
"""Of the picture behind everything, from the top down; below the horizon it is white, which the ground fades into."""
RESOLUTION = 2.0**-16
"""Metres and quaternion units that poses are rounded to: rounded numbers make a motion a quarter smaller."""
ACTIVATION_STEPS = 32
"""Colours between rest and full activation; few, for the same reason."""


class RobotScene:
    """Builds the nodes in a scene; show() moves them."""

    def __init__(self, scene: viser.SceneApi, model: mujoco.MjModel, joint_q: Numbers) -> None:
        """joint_q, (worlds, num_q), is where the robots begin."""
        self.model, self.num_worlds = model, len(joint_q)
        self.kinematics = Kinematics(model)
        low, high = self.kinematics.extent(joint_q[0])
        self.size = float(np.linalg.norm(high - low)) / 2
        self.offset = np.zeros((self.num_worlds, 3))
        self.places: list[viser.FrameHandle] = []
        """Where the worlds are."""
        self.weight = float(np.sum(model.body_mass) * np.linalg.norm(model.opt.gravity)) or 1.0
        self.leader = _travelling_body(model)
        self.tendon_colors = _TendonColors(model)

        self.root = scene.add_frame(ROOT, show_axes=False)
        scene.set_background_image(_sky(), "png")
        # Dark, but in a plain picture: see plain_drawing.py.
        scene.add_light_ambient(f"{ROOT}/plain_light", intensity=0.0)
        self._add_grounds(scene)
        self.bodies: list[list[viser.FrameHandle]] = []
        self.muscles: list[dict[int, viser.ArrowsHandle]] = []
        self.geoms: list[tuple[int, Any]] = []
        """Bodies and their shapes, of all worlds."""
        for world in range(self.num_worlds):
            path = f"{ROOT}/world_{world}"
            self.places.append(scene.add_frame(path, show_axes=False))
            names = [f"{path}/{_node_name(model, body)}" for body in range(model.nbody)]
            self.bodies.append([scene.add_frame(name, show_axes=False) for name in names])
            for geom in shown_geoms(model):
                body = int(model.geom_bodyid[geom])
                self.geoms.append((body, add_geom(scene, f"{names[body]}/geom_{geom}", model, geom)))
            self.muscles.append(self._add_muscles(scene, names, self.kinematics.poses(joint_q[world])))
        self._scene = scene
        self.forces: dict[tuple[int, int], viser.ArrowsHandle] = {}
        """By world and body, from the first time on that one is pushed."""
        self.spread(joint_q[None])

    def show(
        self, joint_q: Numbers, control: Numbers, follow: int | None = None,
        forces: Sequence[tuple[Floats, Floats]] = (),
    ) -> None:  # fmt: skip
        """Move every world, (worlds, num_q) and (worlds, num_controls), and keep one of them where it began.

        With arrows for the points and forces of every world; none for an empty list.
        """
        shift, pushed = np.zeros(3), set[tuple[int, int]]()
        for world in range(self.num_worlds):
            poses = self.kinematics.poses(joint_q[world])
            position, wxyz = _rounded(poses.position), _rounded(poses.wxyz)
            for body, node in enumerate(self.bodies[world]):
                node.position, node.wxyz = position[body], wxyz[body]
            segments = _rounded(poses.segments).astype(np.float32)
            colors = self.tendon_colors.by_control(control[world])[poses.segment_tendon]
            for body, tubes in self.muscles[world].items():
                here = poses.segment_body == body
                tubes.points, tubes.colors = segments[here], colors[here]
            if world == follow and self.leader is not None:
                # Height stays: a hop should look like one.
                shift[:2] = -position[self.leader, :2]
            if forces and len(forces[world][0]):
                pushed |= self._draw_forces(world, *forces[world])
        for place, arrows in self.forces.items():
            arrows.visible = place in pushed
        self.root.position = shift

    def _draw_forces(self, world: int, points: Floats, forces: Floats) -> set[tuple[int, int]]:
        """Arrows in the frames of the bodies that are pushed, for the same reason as muscles: returns which.

        A force of the robot's weight is as long as the robot is large.
        """
        arrows = forces * (self.size / self.weight)
        length = np.linalg.norm(arrows, axis=1, keepdims=True)
        # An impact of many weights would leave the picture.
        arrows *= np.minimum(1, 1.25 * self.size / np.maximum(length, 1e-9))
        bodies = self.kinematics.touched_bodies(points)
        places = {(world, body) for body in np.unique(bodies).tolist()}
        for _, body in places:
            here = bodies == body
            ends = [self.kinematics.to_body(body, end[here]) for end in (points, points + arrows)]
            handle = self.forces.get((world, body)) or self._add_arrows(world, body)
            handle.points = _rounded(np.stack(ends, axis=1)).astype(np.float32)
        return places

    def _add_arrows(self, world: int, body: int) -> viser.ArrowsHandle:
        handle = self.forces[world, body] = self._scene.add_arrows(
            f"{self.bodies[world][body].name}/forces", np.zeros((1, 2, 3)), FORCE_RGB,
            shaft_radius=0.015 * self.size, head_radius=0.035 * self.size, head_length=0.06 * self.size,
        )  # fmt: skip
        return handle

    def spread(self, joint_q: Numbers) -> None:
        """Get ready for a motion, (frames, worlds, num_q): lanes that do not touch, and a camera that sees it whole."""
        framing = survey(self.kinematics, joint_q, self.leader)
        self._box = (framing.low, framing.high)
        self.offset[:, 1] = lane_offsets(framing.lanes, GAP)
        for place, offset in zip(self.places, self.offset, strict=True):
            place.position = offset

    def camera(self, box: tuple[Floats, Floats] | None = None) -> tuple[Floats, Floats]:
        """Position and target of a camera that sees every robot, from the side that they run past.

        It sees all of a box, around the place that the followed robot is kept at; unless given, that of the motion that
        spread() was told.
        """
        low, high = box or self._box
        center, size = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
        width = float(np.ptp(self.offset[:, 1])) / 2
        direction = np.array([0.3, -1.0, 0.3]) if self.num_worlds == 1 else np.array([0.9, -0.75, 0.6])
        return center + direction / np.linalg.norm(direction) * (DISTANCE * size + 1.2 * width), center

    def _add_muscles(self, scene: viser.SceneApi, names: list[str], poses: Poses) -> dict[int, viser.ArrowsHandle]:
        """Tubes for each body that tendons begin on, in its frame.

        A browser moves frames at once, but redraws tubes a picture later. In the frame of a body the delay does not
        show; in the world's the muscles of a runner would trail behind the bones.
        """
        muscles = {}
        for body in np.unique(poses.segment_body).tolist():
            segments = poses.segments[poses.segment_body == body]
            # Arrows without heads. viser's lines would do, but they pale in front of a ground.
            muscles[body] = scene.add_arrows(
                f"{names[body]}/muscles", segments, np.zeros((len(segments), 3), np.uint8),
                shaft_radius=float(self.model.tendon_width.max()), head_radius=0.0, head_length=0.0,
            )  # fmt: skip
        return muscles

    def _add_grounds(self, scene: viser.SceneApi) -> None:
        model = self.model
        for index, plane in enumerate(np.flatnonzero(model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE))):
            # Half lengths; 0 is without end.
            width, height = (2 * float(side) or ENDLESS for side in model.geom_size[plane, :2])
            scene.add_grid(
                f"{ROOT}/ground_{index}", width, height,
                cell_color=(232, 235, 239), section_color=(208, 213, 220), plane_color=(244, 246, 249),
                plane_opacity=1.0, shadow_opacity=0.25, fade_distance=FADE,
                position=model.geom_pos[plane], wxyz=model.geom_quat[plane],
            )  # fmt: skip


class _TendonColors:
    """The colour of every tendon from the controls of the actuators that pull it; others have the file's."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.actuators = np.flatnonzero(model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_TENDON))
        self.tendons = model.actuator_trnid[self.actuators, 0]
        limit = np.abs(model.actuator_ctrlrange[self.actuators]).max(axis=1, initial=0)
        self.full = np.where(limit > 0, limit, 1.0)
        self.passive = np.round(255 * np.array(model.tendon_rgba[:, :3], np.float64))
        self.pulled = np.isin(np.arange(model.ntendon), self.tendons)

    def by_control(self, control: Numbers) -> NDArray[np.uint8]:
        activation = np.zeros(len(self.pulled))
        np.maximum.at(activation, self.tendons, np.abs(control[self.actuators]) / self.full)
        share = np.round(np.clip(activation, 0, 1) * ACTIVATION_STEPS)[:, None] / ACTIVATION_STEPS
        muscle = REST_RGB + share * (FULL_RGB - REST_RGB)
        return np.where(self.pulled[:, None], muscle, self.passive).astype(np.uint8)


def _sky() -> NDArray[np.uint8]:
    share = np.clip(np.arange(SKY_ROWS) / HORIZON_ROW, 0, 1)[:, None, None]
    return np.repeat(ZENITH_RGB + share * (HORIZON_RGB - ZENITH_RGB), 2, axis=1).astype(np.uint8)


def _node_name(model: mujoco.MjModel, body: int) -> str:
    """The body's own, without slashes: viser would take what is before one for a node that this one moves with."""
    return model.body(body).name.replace("/", "|") or f"body_{body}"


def _travelling_body(model: mujoco.MjModel) -> int | None:
    """The first body that can leave the picture, by a free joint or an endless slide."""
    for joint in range(model.njnt):
        kind = mujoco.mjtJoint(model.jnt_type[joint])
        endless = kind == mujoco.mjtJoint.mjJNT_SLIDE and not model.jnt_limited[joint]
        if kind == mujoco.mjtJoint.mjJNT_FREE or endless:
            return int(model.jnt_bodyid[joint])
    return None


def _rounded(values: Floats) -> Floats:
    return np.round(values / RESOLUTION) * RESOLUTION
