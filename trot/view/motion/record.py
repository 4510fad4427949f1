"""Let something move and record it: a run's policy, a task with an agent that knows nothing, a bare robot.

PyTorch is imported where something is simulated: to show a file takes none of its seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trot.view.motion.trajectory import SUFFIX, Trajectory

if TYPE_CHECKING:
    import torch

ROBOT_STEPS = 300
"""Of a bare robot file, which has no episodes."""

MOST_FRAMES = 1_000_000
"""Of all worlds together: some hundred megabytes."""

AgentKind = Literal["policy", "zero", "random"]


def load_or_record(source: str, *, agent: AgentKind | None = None, **how: Any) -> Trajectory:
    """A saved motion, or one that record() makes.

    By default it is a run's policy that acts, or the one that comes with trot for a task; where none does, chance.
    """
    from trot.envs.registry import names_task
    from trot.learn.packaged_policy import packaged_tasks

    if source.lower().endswith(SUFFIX):
        return Trajectory.load(source)
    trained = not names_task(source) or source in packaged_tasks()
    return record(source, agent=agent or ("policy" if trained else "random"), **how)


def record(
    source: str,
    *,
    checkpoint: str = "best",
    worlds: int = 1,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    stochastic: bool = False,
    agent: AgentKind = "policy",
    device: str | torch.device = "cpu",
) -> Trajectory:
    """Let something move, and record it.

    Args:
        source: A run folder, whose policy plays; a task's name, with the policy that comes with trot or with
            agent zero or random; path/to/file.py:Class, with one of the latter; or a robot file (.xml, .urdf), which
            moves from its reference pose without control, a URDF on added ground.
        checkpoint: Which policy of the run.
        worlds: How many of them.
        steps: As many frames follow the first one; by default an episode's, and 300 for a robot file.
        seconds: The same as time, where steps are not given.
        seed: Of the starts, the policy's noise and random actions.
        stochastic: With the policy's noise.
        agent: The policy, no action at all, or actions drawn uniformly from [-1, 1].
        device: To simulate on.
    """
    from trot.envs.registry import TASKS, make_env, names_task
    from trot.learn.agent import load_agent
    from trot.learn.learner import NOISE_STREAM
    from trot.learn.packaged_policy import load_packaged
    from trot.learn.play import agent_acts, chance_acts, nothing_acts
    from trot.runs.folder import RunFolder
    from trot.view.motion.frames import ROBOT_DT, record_env, record_robot

    if worlds > MOST_FRAMES:
        raise ValueError(f"{worlds:,} worlds are too many to record: at most {MOST_FRAMES:,}")

    def frames(dt: float, default: int) -> int:
        wanted = steps if steps is not None else default if seconds is None else max(1, round(seconds / dt))
        if wanted < 1:
            raise ValueError(f"steps must be at least 1, not {wanted}")
        if wanted * worlds > MOST_FRAMES:
            raise ValueError(
                f"{wanted:,} steps of {worlds:,} worlds are too long a motion to record: at most {MOST_FRAMES:,} in all"
            )
        return wanted

    if not names_task(source):
        if Path(source).suffix.lower() in (".xml", ".urdf"):
            if agent == "random":
                raise ValueError(f"'{source}' is a robot without a task: it moves without control, not at random")
            return record_robot(source, worlds, frames(ROBOT_DT, ROBOT_STEPS), device)
        if not Path(source).exists():
            raise FileNotFoundError(f"'{source}' is no run folder, robot file or task; tasks are {', '.join(TASKS)}")
        run = RunFolder.open(source)
        policy = load_agent(run, checkpoint) if agent == "policy" else None
        task_name = str(run.settings["task"])
    else:
        policy, task_name = (load_packaged(source).agent if agent == "policy" else None), source
    env = make_env(task_name, worlds, device, seed)
    if policy is not None:
        act = agent_acts(policy, env, stochastic, seed)
    else:
        act = chance_acts(env, seed + NOISE_STREAM) if agent == "random" else nothing_acts(env)
    return record_env(env, act, frames(env.task.control_dt, env.episode_length))
