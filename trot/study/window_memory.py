"""What a window of steps keeps for its backward pass, worked out before the first of them."""

from __future__ import annotations

from trot.envs.device import require_room
from trot.envs.env import Env
from trot.sim.build import Variant
from trot.sim.launch import launcher_for


def require_window_room(env: Env, steps: int) -> None:
    """Refuse a window that the device has no memory for, with one line that says what to do."""
    variant = Variant(env.dtype, per_world_parameters=env.physics_differ)
    run = launcher_for(env.task.model, variant, env.device, env.num_worlds, env.task.substeps)
    kept = steps * run.kept_bytes(env.task.substeps)
    what = f"the backward pass through {steps} steps of {env.task.substeps} substeps"
    require_room(env.num_worlds, kept, env.device, what, "Use fewer worlds or steps")
