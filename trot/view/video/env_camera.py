"""Pictures of an environment's worlds as they are now, for render() of the Gymnasium environments."""

from __future__ import annotations

import mujoco
import numpy as np

from trot.envs.env import Env
from trot.view.motion.frames import robot_text
from trot.view.motion.trajectory import Trajectory
from trot.view.video.scene import Pixels, Scene

ROOM = 1.4
"""How much more than the robot at its start is seen: it may stretch."""


class EnvCamera:
    """Draws without a window; needs OpenGL, and raises ValueError where there is none."""

    def __init__(self, env: Env, width: int, height: int) -> None:
        task, model = env.task, env.task.model
        options = {"ground": task.ground, "floating_base": task.floating_base, **task.robot_options}
        start = model.default_q[None, None].astype(np.float32)
        still = Trajectory(
            task=task.name,
            robot=robot_text(task.robot, model, **options),
            dt=task.control_dt,
            joint_q=start,
            joint_qd=np.zeros((1, 1, model.num_dofs), np.float32),
            action=np.zeros((1, 1, env.num_actions), np.float32),
            control=np.zeros((1, 1, model.num_controls), np.float32),
            reward_terms={},
            begins=np.ones((1, 1), np.bool_),
        )
        self._env, self._model = env, still.model()
        self._data = mujoco.MjData(self._model)
        self._moving = np.flatnonzero(
            (self._model.body_weldid[self._model.geom_bodyid] > 0)
            & (self._model.geom_type != int(mujoco.mjtGeom.mjGEOM_PLANE))
        )
        self._scene = Scene(still, 0, width, height, ROOM)

    def picture(self, world: int) -> Pixels:
        """(height, width, 3) of one world, with the robot in the middle."""
        worlds, model = self._env.worlds, self._env.task.model
        joint_q = worlds.joint_q[world].detach().double().cpu().numpy()
        control = np.zeros(model.num_controls)
        if model.num_acts:
            control[np.array(model.act_actuator)] = worlds.activation[world].detach().double().cpu().numpy()
        self._data.qpos = joint_q
        mujoco.mj_kinematics(self._model, self._data)
        places = self._data.geom_xpos[self._moving]
        return self._scene.draw_pose(joint_q, control, (places.min(axis=0) + places.max(axis=0)) / 2)

    def close(self) -> None:
        """Give OpenGL back."""
        self._scene.__exit__(None, None, None)
