"""Robot files nobody would write: refused by name, or a model that moves or says that it cannot. Nothing else.

`-m campaign` tries 10,000; TROT_CAMPAIGN_SEED=N tries others. What ends the process that tries them is shown.
"""

import pytest
from campaign import SEED, in_a_campaign
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from odd_robots import changed_robot, mjcf, urdf
from robot_trial import Trials

from trot.sim.load import ModelError, load_model
from trot.sim.load_options import CAN_BE_LEFT_OUT

HELD = {"refused", "loaded", "stepped", "blew up, flagged"}
FILES = {
    "MJCF": st.builds(
        lambda text, leave_out, repair, touch: {
            "text": text, "leave_out": leave_out, "repair_inertia": repair, "self_collision": touch
        },
        mjcf(), st.sampled_from([(), CAN_BE_LEFT_OUT]), st.booleans(), st.booleans(),
    ),
    "URDF": st.builds(
        lambda text, floating_base, ground, repair: {
            "text": text, "floating_base": floating_base, "ground": ground, "repair_inertia": repair
        },
        urdf(), st.booleans(), st.booleans(), st.booleans(),
    ),
    "changed": st.builds(
        lambda changed, repair, touch: {
            "robot": changed[0], "text": changed[1], "repair_inertia": repair, "self_collision": touch
        },
        changed_robot(), st.booleans(), st.booleans(),
    ),
}  # fmt: skip
FEW = [("MJCF", 50, 2), ("URDF", 40, 2), ("changed", 60, 2)]
"""How many files, and for how many a kernel is built at most."""
MANY = [("MJCF", 4000, 60), ("URDF", 2000, 30), ("changed", 4000, 40)]


@pytest.fixture(scope="module")
def trials():
    made = Trials()
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "cases", "kernels"), [*FEW, *(in_a_campaign(*case) for case in MANY)])
def test_a_robot_file_is_refused_by_name_or_moves_or_says_that_it_cannot(trials, kind, cases, kernels):
    trials.begin(kernels)

    @seed(SEED)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(FILES[kind])
    def tries(case):
        word, said = trials.outcome(**case)
        assert word in HELD, f"TROT_CAMPAIGN_SEED={SEED}: {word}: {said}"

    tries()
    print(f"{kind}: {trials.outcomes}")
    assert trials.outcomes.keys() >= {"refused", "stepped"}, "files that are all bad, or all good, show nothing"


def test_a_file_that_ends_the_process_is_noticed(trials):
    """The trial itself: what a crash of native code would look like, and an error that is not our own."""
    assert trials.outcome("<mujoco/>")[0] == "refused"
    trials._process.kill()
    word, _ = trials.outcome("<mujoco/>")
    assert word.startswith("ended the process")
    word, said = trials.outcome(3)
    assert word == "another error" and "Traceback" in said
    assert trials.outcome("<mujoco/>")[0] == "refused"


def test_a_file_that_asks_for_more_memory_than_there_is_is_refused(trials):
    """A field of heights with 4e18 of them, in a process that may have 4 GiB."""
    field = '<hfield name="h" nrow="2000000000" ncol="2000000000" size="1 1 1 1"/>'
    word, said = trials.outcome(f"<mujoco><asset>{field}</asset></mujoco>")
    assert word == "refused" and said.startswith("robot: MuJoCo cannot read it, perhaps for want of memory: "), said


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ModelError, match=r"robot\.xml: "):
        load_model(path)
