"""What a recorded page says beside the robot: by numbers worked out by hand, and names as text."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from trot.view.browser.page_numbers import HEIGHT, WIDTH, numbers
from trot.view.motion.trajectory import Trajectory


def motion(task, terms, begins):
    frames = len(begins)
    nothing = np.zeros((frames, 1, 1), np.float32)
    return Trajectory(
        task=task, robot="", dt=0.5, joint_q=nothing, joint_qd=nothing, action=nothing, control=nothing,
        reward_terms={name: np.array(values, np.float32)[:, None] for name, values in terms.items()},
        begins=np.array(begins)[:, None],
    )  # fmt: skip


def embedded(text):
    return json.loads(re.search(r"const motion = (\{.*?\});", text)[1])


def test_return_reward_and_terms_of_every_frame():
    text = numbers(motion("walk", {"up": [0, 1, 1, 1], "cost": [0, -0.5, 0, 0.25]}, [True, False, False, False]), 0)
    assert "<h1>walk</h1>return 2.8 in 1.5 s" in text
    found = embedded(text)
    assert found["values"] == [[0, 0.5, 1.5, 2.8], [0, 0.5, 1, 1.25], [0, 1, 1, 1], [0, -0.5, 0, 0.25]]
    assert (found["dt"], found["digits"]) == (0.5, [1, 3, 3, 3])
    # The curve rises from the lower edge to the upper one.
    assert (found["x"][0], found["x"][-1]) == (3, WIDTH - 3) and (found["y"][0], found["y"][-1]) == (HEIGHT - 3, 3)


def test_several_episodes_and_none_at_all():
    text = numbers(motion("walk", {"up": [0, 1, 2, 5, 8]}, [True, False, True, False, True]), 0)
    # 1, and 2 + 5; whether the third would have gone on after its 8 nobody knows.
    assert "3 episodes in 2.0 s; return 4.0 on average of those before the last" in text
    bare = numbers(motion("robot.xml", {}, [True, False]), 0)
    assert "<h1>robot.xml</h1>0.5 s" in bare and "<table>" not in bare and embedded(bare)["values"] == []


def test_names_are_text():
    hostile = "</script><img src=x onerror=alert(1)>"
    text = numbers(motion(hostile, {hostile: [0, 1]}, [True, False]), 0)
    assert "<img" not in text and text.count("</script>") == 1 and "&lt;img" in text
