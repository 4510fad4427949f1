"""Times of a task that no simulation can carry out are refused by name, before anything is built from them."""

import numpy as np
import pytest

import trot
from trot.envs.tasks.cartpole import CartPole

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("control_dt", 0.0, r"Bent\.control_dt must be a positive float, in seconds, not 0\.0"),
        ("control_dt", -0.01, r"Bent\.control_dt must be .* not -0\.01"),
        ("control_dt", NAN, r"Bent\.control_dt must be .* not nan"),
        ("control_dt", INF, r"Bent\.control_dt must be .* not inf"),
        ("control_dt", "1/60", r"Bent\.control_dt must be .* not '1/60'"),
        ("control_dt", 1e300, r"Bent\.control_dt / substeps is .*single precision"),
        ("control_dt", 1e-300, r"Bent\.control_dt / substeps is .*single precision"),
        ("substeps", 0, r"Bent\.substeps must be an int of .* at least 1, not 0"),
        ("substeps", -4, r"Bent\.substeps must be .*not -4"),
        ("substeps", 4.0, r"Bent\.substeps must be an int .*not 4\.0"),
        ("substeps", NAN, r"Bent\.substeps must be an int .*not nan"),
        ("substeps", 2**32 + 1, r"Bent\.substeps must be .*32 bits .*not 4294967297"),
        ("episode_length", 0, r"Bent\.episode_length must be an int of .* at least 1, not 0"),
        ("episode_length", -1, r"Bent\.episode_length must be .*not -1"),
        ("episode_length", NAN, r"Bent\.episode_length must be an int .*not nan"),
        ("episode_length", INF, r"Bent\.episode_length must be an int .*not inf"),
        ("episode_length", 2**63, r"Bent\.episode_length must be .*64 bits"),
    ],
)
def test_refused_by_name(attribute, value, message):
    task = type("Bent", (CartPole,), {attribute: value})
    with pytest.raises(ValueError, match=message):
        trot.make_env(task, 2)


def test_a_length_may_be_numpys():
    env = trot.make_env(type("Bent", (CartPole,), {"episode_length": np.int64(2)}), 2)
    env.reset()
    assert [bool(env.step(env.worlds.previous_action)[3].all()) for _ in range(3)] == [False, True, False]
