"""The source that a GPU runs, with 32 lanes to a world, beside the CPU's, with one: here on the CPU both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from lanes import COMPILER, ORDERS, StepInLanes

from trot.sim.build import Variant
from trot.sim.launch import launcher
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.step import Pass, Physics

pytestmark = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"), reason="needs g++, and Linux to switch between lanes"
)
ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"
WORLDS, SUBSTEPS, CONTROL_DT = 3, 2, 0.002

KINDS = {
    "as on a GPU": Variant(torch.float64, store_factor=True, store_motion=True),
    "with less memory": Variant(torch.float64, store_factor=True),
    "each lane for itself": Variant(torch.float64, sums_in_lanes=False),
}
ROBOTS = ("every_joint", "every_pair", "every_law", "every_bond", "every_muscle", "ant", "humanoid", "muscle_humanoid")
RUNNERS = ("ant", "humanoid", "muscle_humanoid")
"""Nothing ties them to the world or to another."""
ALWAYS = {("humanoid", "as on a GPU"), ("muscle_humanoid", "as on a GPU"), ("every_joint", "with less memory")}
CASES = [
    pytest.param(robot, kind, marks=() if (robot, kind) in ALWAYS else pytest.mark.campaign)
    for robot in ROBOTS
    for kind in KINDS
]


def model_of(robot: str, request: pytest.FixtureRequest) -> Model:
    if robot.startswith("every"):
        found: Model = request.getfixturevalue(robot)
        return found
    return load_model(ASSETS / f"{robot}.xml")


@pytest.mark.parametrize(("robot", "kind"), CASES)
def test_lanes_together_do_what_one_lane_does(
    robot: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model = model_of(robot, request)
    draw = torch.Generator().manual_seed(3)
    start = model.default_state(WORLDS, "cpu", torch.float64)
    # Far from the origin, where only what is taken relative to the robot keeps its digits.
    if robot in RUNNERS:
        start.joint_q[:, 0] += 500.0
    state = [start.joint_q, torch.randn(start.joint_qd.shape, generator=draw, dtype=torch.float64), start.activation]
    control = torch.randn(WORLDS, model.num_controls, generator=draw, dtype=torch.float64)
    bars = [None if x is None else torch.randn(x.shape, generator=draw, dtype=torch.float64) for x in state]

    physics = Physics(launcher(model, Variant(torch.float64), torch.device("cpu")), CONTROL_DT, SUBSTEPS)
    one_lane = Pass(physics, start.joint_q, state[1], control, None, activation=start.activation)
    following = one_lane.forward(keep=True)
    by_q, by_qd, by_activation, by_control, _ = one_lane.backward(bars[0], bars[1], False, bars[2])
    expected = [one for one in (*following, by_q, by_qd, by_activation, by_control) if one is not None]

    lanes = StepInLanes(model, KINDS[kind], tmp_path)
    found = {order: lanes(state, control, bars, CONTROL_DT, SUBSTEPS, order) for order in ORDERS}
    for mine, theirs in zip(found["first to last"], expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11 * float(theirs.abs().max()))
    for order in ORDERS:
        for one, other in zip(found[order], found["first to last"], strict=True):
            assert one.equal(other), f"the result changes where lanes go on {order}: a barrier is missing"
