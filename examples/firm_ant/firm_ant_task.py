"""trot's own Ant on ground and limits that give nothing back: it runs more slowly, and it still runs in MuJoCo.

trot's Ant runs on springs, those of the ground and those of its limits (docs/transfer.md). Here both are stiffer and
lose what is put into them, as MuJoCo's do, and friction, masses and pushes vary. Learning from nothing it stands still,
so let it run first:

trot train ant --iterations 700
trot train examples/firm_ant/firm_ant_task.py:FirmAnt --start-from runs/ant-shac-0 --iterations 400
trot eval runs/FirmAnt-shac-0 --in mujoco
"""

from __future__ import annotations

from pathlib import Path

import trot
from trot.envs.tasks.ant import Ant


class FirmAnt(Ant):
    """The Ant, without a spring to bounce on, and pushed while it learns."""

    robot = Path(__file__).parent / "firm_ant.xml"
    randomize = trot.Randomize(
        friction=(0.6, 1.2), mass=(0.9, 1.1), push_interval=2.0, push_speed=0.5, push_turning=0.5
    )
