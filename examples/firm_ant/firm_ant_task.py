"""trot's own Ant on ground and limits that give nothing back: it runs more slowly, and it still runs in MuJoCo.

trot's Ant runs on springs, those of the ground and those of its limits (docs/transfer.md). Here both are stiffer and
lose what is put into them, as MuJoCo's do, and friction, masses and pushes vary. Learning from nothing it stands still,
so let it run first:

trot train ant --iterations 700
trot train examples/firm_ant/firm_ant_task.py:FirmAnt --start-from runs/ant-shac-0 --iterations 400
trot eval runs/FirmAnt-shac-0 --in mujoco
"""

from __future__ import annotations

import trot
from trot.envs.task import ASSETS
from trot.envs.tasks.ant import Ant

SPRINGY_GROUND, FIRM_GROUND = 'user="4e4 1e4 3e3"', 'user="1e5 1e5 3e3"'
"""Stiffness, N/m, damping, N s/m², and friction stiffness, N s/m. Firm: a foot that parts at 1 m/s is not pushed."""
SPRINGY_LIMITS, FIRM_LIMITS = 'user="1e3"', 'user="1e4 1e4"'
"""Stiffness, N m/rad, and damping, N m s/rad²."""


def firm_robot() -> str:
    """The Ant's file with other constants."""
    text = (ASSETS / "ant.xml").read_text()
    for springy, firm in ((SPRINGY_GROUND, FIRM_GROUND), (SPRINGY_LIMITS, FIRM_LIMITS)):
        if text.count(springy) != 1:
            raise ValueError(f"ant.xml does not have {springy} once")
        text = text.replace(springy, firm)
    return text


class FirmAnt(Ant):
    """The Ant, without a spring to bounce on, and pushed while it learns."""

    robot = firm_robot()
    randomize = trot.Randomize(
        friction=(0.6, 1.2), mass=(0.9, 1.1), push_interval=2.0, push_speed=0.5, push_turning=0.5
    )
