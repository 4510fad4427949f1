"""The loops behind record(), and a robot as text that needs no other file."""

from __future__ import annotations

import os
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from trot.envs.env import Env
from trot.learn.play import Act, play
from trot.learn.torch_threads import one_torch_thread
from trot.sim.load import compile_robot, load_model
from trot.sim.load_options import make_options
from trot.sim.model import Floats, Model
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.weld import rotation
from trot.view.motion.trajectory import Trajectory

ROBOT_DT, ROBOT_SUBSTEPS = 1 / 60, 48
"""How a bare robot file is simulated: enough substeps for what is stiff and light."""


def record_env(env: Env, act: Act, steps: int) -> Trajectory:
    """Play, and keep every frame."""
    model = env.task.model
    # First of all: a robot that cannot be saved is told before the simulation and not after it.
    task = env.task
    options = {"ground": task.ground, "floating_base": task.floating_base, **task.robot_options}
    robot = robot_text(task.robot, model, **options)
    like = torch.zeros(env.num_worlds, env.num_actions, dtype=env.dtype, device=env.device)
    lower, upper = (torch.tensor(bound).to(like) for bound in (model.control_lower, model.control_upper))

    actions, controls = [like], [like.new_zeros(env.num_worlds, model.num_controls)]
    states, terms = list[State](), dict[str, list[Tensor]]()
    ended = [torch.zeros(env.num_worlds, dtype=torch.bool, device=env.device)]
    with one_torch_thread():
        for played in play(env, act, steps, on_start=lambda: states.append(env.state)):
            states.append(played.info["final_state"])
            actions.append(played.action)
            controls.append(played.info["control"].clamp(lower, upper))
            for name, values in played.info["reward_terms"].items():
                terms.setdefault(name, [torch.zeros_like(values)]).append(values)
            ended.append(played.done)
    # A frame begins an episode where the step before it ended one.
    begins = torch.stack([torch.ones_like(ended[0]), *ended[:-1]])
    return Trajectory(
        task=env.task.name,
        robot=robot,
        dt=env.task.control_dt,
        joint_q=_frames([state.joint_q for state in states]),
        joint_qd=_frames([state.joint_qd for state in states]),
        action=_frames(actions),
        control=_frames(controls),
        reward_terms={name: _frames(values) for name, values in terms.items()},
        begins=begins.cpu().numpy(),
    )


@torch.no_grad()
def record_robot(path: str, worlds: int, steps: int, device: str | torch.device) -> Trajectory:
    """Let a robot go at its reference pose, without control. A URDF gets a ground to fall on, having none."""
    ground = path.lower().endswith(".urdf")
    model = load_model(path, ground=ground)
    robot = robot_text(path, model, ground=ground)
    states = [model.default_state(worlds, device)]
    control = torch.zeros(worlds, model.num_controls, device=device)
    for frame in range(1, steps + 1):
        states.append(step(model, states[-1], control, ROBOT_DT, ROBOT_SUBSTEPS))
        if not states[-1].finite.all():
            raise ValueError(f"the physics of '{path}' blew up after {frame * ROBOT_DT:.2f} s")
    begins = np.zeros((steps + 1, worlds), np.bool_)
    begins[0] = True
    return Trajectory(
        task=path,
        robot=robot,
        dt=ROBOT_DT,
        joint_q=_frames([state.joint_q for state in states]),
        joint_qd=_frames([state.joint_qd for state in states]),
        action=np.zeros((steps + 1, worlds, 0), np.float32),
        control=np.zeros((steps + 1, worlds, model.num_controls), np.float32),
        reward_terms={},
        begins=begins,
    )


def robot_text(source: str | os.PathLike[str], model: Model, **options: Any) -> str:
    """The robot as MJCF, with what loading added to it and with its meshes, so that the text stands alone."""
    spec, compiled = compile_robot(source, make_options(**options))
    if (compiled.nq, compiled.nbody, compiled.nu) != (model.source.nq, model.source.nbody, model.source.nu):
        raise ValueError(f"cannot save the robot: it is not the one of the file '{source}'")
    for mesh in spec.meshes:
        _embed(mesh, compiled)
    # Textures are the renderer's own.
    for texture in list(spec.textures):
        spec.delete(texture)
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    spec.compile()
    return str(spec.to_xml())


def _embed(mesh: mujoco.MjsMesh, compiled: mujoco.MjModel) -> None:
    """Replace the file of a mesh by its numbers. The compiler had moved them to the centre of mass."""
    index = mesh.id
    first, count = compiled.mesh_vertadr[index], compiled.mesh_vertnum[index]
    vertices: Floats = compiled.mesh_vert[first : first + count] @ rotation(compiled.mesh_quat[index]).T
    first_face, num_faces = compiled.mesh_faceadr[index], compiled.mesh_facenum[index]
    mesh.file, mesh.scale = "", [1, 1, 1]
    mesh.uservert = (vertices + compiled.mesh_pos[index]).ravel().tolist()
    mesh.userface = compiled.mesh_face[first_face : first_face + num_faces].ravel().tolist()


def _frames(rows: list[Tensor]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return torch.stack(rows).float().cpu().numpy()
