"""What a frame of a trajectory looks like: floor, sky, light, a camera that follows, muscles by activation."""

from __future__ import annotations

import itertools
import math
from types import TracebackType
from typing import Self

import mujoco
import numpy as np
from numpy.typing import NDArray

from trot.view.motion.trajectory import Trajectory
from trot.view.video.offscreen import open_context

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float64]

AZIMUTH, ELEVATION = 110.0, -14.0
"""Degrees: from the right side of a robot that faces +x and a little from the front, a little above."""
ZOOM = 1.1
"""How much larger the view is than the robot."""
SMOOTHING = 0.35
"""Seconds over which the camera averages the robot's path, so that it does not hop with it."""
KEY_LIGHT, FILL_LIGHT = np.array([-0.45, -0.6, 1.0]), np.array([0.7, -0.4, 0.6])
"""Where the lights stand, seen from the robot."""
RELAXED, TENSE = np.array([0.2, 0.4, 0.85, 1.0]), np.array([0.9, 0.12, 0.08, 1.0])
"""Colour of a muscle at activation 0 and 1."""


class Scene:
    """Draws frames of one world; a context manager, since OpenGL is to be given back."""

    def __init__(self, trajectory: Trajectory, world: int, width: int, height: int, room: float = 1.0) -> None:
        """`room` is how much more than what the trajectory does is seen, as a factor."""
        self._trajectory, self._world = trajectory, world
        self._path, radius, lowest = _survey(trajectory, world)
        self._radius = room * radius
        spec = mujoco.MjSpec.from_string(trajectory.robot)
        _furnish(spec, lowest, self._radius, width, height)
        self._model = spec.compile()
        _part_neighbours(self._model)
        self._data = mujoco.MjData(self._model)
        self._muscles = np.flatnonzero(self._model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_TENDON))

        self._scene = mujoco.MjvScene(self._model, maxgeom=10_000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_FOG] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = True
        self._option = mujoco.MjvOption()
        # The waypoints of muscles would only hide them.
        self._option.sitegroup[:] = 0
        self._option.flags[mujoco.mjtVisFlag.mjVIS_ACTIVATION] = False
        self._camera = mujoco.MjvCamera()
        self._camera.azimuth, self._camera.elevation = AZIMUTH, ELEVATION
        half_view = np.tan(np.radians(self._model.vis.global_.fovy) / 2) * min(1, width / height)
        self._camera.distance = ZOOM * self._radius / half_view
        self._context = open_context(width, height)
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._renderer = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._renderer)
        self._pixels = np.zeros((height, width, 3), np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._renderer.free()
        self._context.free()

    def draw(self, frame: int) -> Pixels:
        """(height, width, 3) red, green, blue."""
        joint_q, control = (part[frame, self._world] for part in (self._trajectory.joint_q, self._trajectory.control))
        return self.draw_pose(joint_q, control, self._path[frame])

    def draw_pose(self, joint_q: NDArray[np.floating], control: NDArray[np.floating], target: Floats) -> Pixels:
        """The same for any pose, seen around a target."""
        self._data.qpos = joint_q
        for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight, mujoco.mj_tendon):
            stage(self._model, self._data)
        activation = control[self._muscles, None]
        self._model.tendon_rgba[self._model.actuator_trnid[self._muscles, 0]] = RELAXED + activation * (TENSE - RELAXED)
        self._camera.lookat = target
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, self._data, self._option, None, self._camera, everything, self._scene)
        for light, place in zip(self._scene.lights[1 : self._scene.nlight], (KEY_LIGHT, FILL_LIGHT), strict=False):
            # Shadows are sharp only near the light's axis, so the lights travel along.
            light.pos = target + 4 * self._radius * place
        mujoco.mjr_render(self._rectangle, self._scene, self._renderer)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._renderer)
        # OpenGL's first row is the lowest one.
        return np.ascontiguousarray(self._pixels[::-1])


def _survey(trajectory: Trajectory, world: int) -> tuple[Floats, float, float]:
    """Where to look in each frame, (frames, 3); how large the robot is around that; its lowest point."""
    model = trajectory.model()
    data = mujoco.MjData(model)
    moving = (model.body_weldid[model.geom_bodyid] > 0) & (model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE)
    if not moving.any():
        raise ValueError("the robot has no shapes: there is nothing to draw")
    reach = model.geom_rbound[moving]
    centres = np.zeros((len(trajectory.joint_q), int(moving.sum()), 3))
    for frame, joint_q in enumerate(trajectory.joint_q[:, world]):
        data.qpos = joint_q
        mujoco.mj_kinematics(model, data)
        centres[frame] = data.geom_xpos[moving]
    middle = (centres.min(axis=1) + centres.max(axis=1)) / 2
    path = _smooth(middle, trajectory.begins[:, world], SMOOTHING / trajectory.dt)
    radius = float((np.linalg.norm(centres - path[:, None], axis=2) + reach).max())
    return path, radius, min(0.0, float((centres[:, :, 2] - reach).min()))


def _smooth(path: Floats, begins: NDArray[np.bool_], width: float) -> Floats:
    """Average with a bell curve, each episode by itself: the camera jumps where the robot does."""
    smooth = path.copy()
    for first, behind in itertools.pairwise([*np.flatnonzero(begins), len(path)]):
        half = min(math.ceil(3 * width), behind - first - 1)
        bell = np.exp(-((np.arange(-half, half + 1) / width) ** 2) / 2)
        # Beyond its ends the path goes on as fast as it went there, or the camera would fall behind.
        longer = np.pad(path[first:behind], ((half, half), (0, 0)), mode="reflect", reflect_type="odd")
        for axis in range(3):
            smooth[first:behind, axis] = np.convolve(longer[:, axis], bell / bell.sum(), mode="valid")
    return smooth


def _part_neighbours(model: mujoco.MjModel) -> None:
    """Draw every other body of a chain a hair thicker: surfaces that coincide at a joint would show as speckles."""
    depth = np.zeros(model.nbody, np.int64)
    for body in range(1, model.nbody):
        # MuJoCo numbers a parent before its children.
        depth[body] = depth[model.body_parentid[body]] + 1
    thicker = (depth[model.geom_bodyid] % 2 == 0) & (model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE)
    model.geom_size[thicker, 0] *= 1.01


def _furnish(spec: mujoco.MjSpec, lowest: float, radius: float, width: int, height: int) -> None:
    """Give the robot a floor, a sky and light, and take away what its file brings of these."""
    for light in list(spec.lights):
        spec.delete(light)
    texture = mujoco.mjtTexture
    spec.add_texture(
        name="trot_sky", type=texture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.80, 0.88, 0.96], rgb2=[0.97, 0.98, 1.0], width=256, height=256,
    )  # fmt: skip
    spec.add_texture(
        name="trot_floor", type=texture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.88, 0.90, 0.92], rgb2=[0.80, 0.82, 0.85], mark=mujoco.mjtMark.mjMARK_EDGE, markrgb=[0.95, 0.96, 0.97],
        width=512, height=512,
    )  # fmt: skip
    floor = spec.add_material(name="trot_floor", texrepeat=[0.5, 0.5], texuniform=True, specular=0.1, shininess=0.1)
    floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "trot_floor"
    planes = [geom for geom in spec.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    if not planes:
        planes = [spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], pos=[0, 0, lowest])]
    for plane in planes:
        plane.material, plane.rgba = "trot_floor", [1, 1, 1, 1]
    directional = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    for place, strength, shadow in ((KEY_LIGHT, 0.5, True), (FILL_LIGHT, 0.2, False)):
        spec.worldbody.add_light(
            type=directional, dir=-place, diffuse=[strength] * 3, specular=[0.2] * 3, ambient=[0, 0, 0],
            castshadow=shadow,
        )  # fmt: skip
    view = spec.visual
    view.global_.offwidth, view.global_.offheight = width, height
    view.headlight.ambient, view.headlight.diffuse, view.headlight.specular = [0.45] * 3, [0.25] * 3, [0.0] * 3
    view.quality.shadowsize, view.quality.offsamples = 2048, 4
    # Muscles are many and thin: round ones would take a second per frame and look the same.
    view.quality.numslices, view.quality.numstacks = (16, 8) if spec.tendons else (48, 16)
    view.rgba.haze = [0.97, 0.98, 1.0, 1.0]
    # Near and far planes, and the reach of shadows, are measured in this.
    spec.stat.extent = radius
    view.map.shadowclip, view.map.znear, view.map.zfar = 3, 0.05, 100
