"""What is told of a task whose methods return something of the wrong shape, dtype or device, before the first step."""

import pytest
import torch
from tasks_with_memory import Counting
from torch import Tensor

import trot
from trot.envs.registry import make_task


class Spoilt(Counting):
    """Fine in itself; a test replaces one of its methods."""


def doubled(parts):
    return {name: part.double() for name, part in parts.items()}


def drawn(self, count, generator, like):
    return Counting.draw_memory(self, count, generator, like)


@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        (
            "control",
            lambda self, action: action.double(),
            r"control\(\) must be torch.float32 on cpu, not torch.float64",
        ),
        ("control", lambda self, action: action.to("meta"), r"control\(\) must be torch.float32 on cpu, .* on meta"),
        ("control", lambda self, action: action > 0, r"control\(\) must be torch.float32 on cpu, not torch.bool"),
        ("control", lambda self, action, measured: measured.total, r"control\(\) must be \(num_worlds, 1\)"),
        (
            "fallen",
            lambda self, measured: measured.position,
            r"fallen\(\) must be torch.bool on cpu, not torch.float32",
        ),
        (
            "looks_fallen",
            lambda self, observation: observation["position"],
            r"looks_fallen\(\) must be torch.bool on cpu, not torch.float32",
        ),
        (
            "observation",
            lambda self, measured, action: doubled(Counting.observation(self, measured, action)),
            r"observation\(\)\['position'\] must be torch.float32 on cpu, not torch.float64",
        ),
        ("observation", lambda self, measured, action: measured.position, r"observation\(\) must be a dictionary"),
        (
            "observation",
            lambda self, measured, action: {"left": measured.position < 0},
            r"observation\(\) has only yes or no and whole numbers; make one torch.float32",
        ),
        (
            "reward_terms",
            lambda self, measured, action: {"goal": measured.goal.half()},
            r"reward_terms\(\)\['goal'\] must be torch.float32 on cpu, not torch.float16",
        ),
        ("reward_terms", lambda self, measured, action: {}, r"reward_terms\(\) is empty"),
        ("draw_memory", lambda self, count, generator, like: None, r"draw_memory\(\) must be a dictionary"),
        (
            "draw_memory",
            lambda self, count, generator, like: doubled(drawn(self, count, generator, like)),
            r"draw_memory\(\)\['goal'\] must be torch.float32 on cpu, not torch.float64",
        ),
        (
            "draw_memory",
            lambda self, count, generator, like: (
                drawn(self, count, generator, like) if generator is None else doubled(drawn(self, count, None, like))
            ),
            r"draw_memory\(\)\['goal'\] must be torch.float32 on cpu, not torch.float64",
        ),
        (
            "draw_memory",
            lambda self, count, generator, like: drawn(self, 3, generator, like),
            r"draw_memory\(\)\['goal'\] must be \(num_worlds, width\), not \(3\)",
        ),
        (
            "draw_memory",
            lambda self, count, generator, like: (
                drawn(self, count, None, like) | ({} if generator is None else {"more": like.new_zeros(count)})
            ),
            r"draw_memory\(\) gives .* without a generator and .*'more': 1.* with one",
        ),
        (
            "next_memory",
            lambda self, measured, action: {"step": measured.steps},
            r"next_memory\(\)\['step'\] is not in what draw_memory\(\) gives",
        ),
        (
            "next_memory",
            lambda self, measured, action: {"total": measured.steps},
            r"next_memory\(\)\['total'\] must be \(num_worlds, 2\), not \(num_worlds, 1\)",
        ),
        (
            "next_memory",
            lambda self, measured, action: {"steps": measured.steps.long()},
            r"next_memory\(\)\['steps'\] must be torch.float32 on cpu, not torch.int64",
        ),
    ],
)
def test_mistakes_are_named(monkeypatch, method, body, message):
    monkeypatch.setattr(Spoilt, method, body, raising=False)
    with pytest.raises(ValueError, match=rf"Spoilt\.{message}"):
        trot.make_env(Spoilt, 4)


def test_yes_or_no_counts_as_one_or_zero_among_numbers(monkeypatch):
    def reward_terms(self, measured, action):
        return {"goal": measured.goal, "begun": measured.steps > 0}

    monkeypatch.setattr(Spoilt, "reward_terms", reward_terms, raising=False)
    env = trot.make_env(Spoilt, 1, stochastic_start=False)
    env.reset()
    rewards = [env.step(torch.zeros(1, 1))[1] for _ in range(2)]
    assert [reward.tolist() for reward in rewards] == [[100], [101]] and rewards[0].dtype == torch.float32


class Plain(Counting):
    def control(self, action: Tensor) -> Tensor:
        return 2 * action


class OwnDefault(Counting):
    def control(self, action: Tensor, gain: float = 3.0) -> Tensor:
        return gain * action


class Servo(Counting):
    def control(self, action, measured):
        return action - measured.position


class OptionalServo(Counting):
    def control(self, action, measured=None):
        return action - measured.position


class OtherName(Counting):
    def control(self, action, now):
        return action - now.position


@pytest.mark.parametrize(
    ("task", "control"),
    [(Counting, 0.5), (Plain, 1.0), (OwnDefault, 1.5), (Servo, 0.3), (OptionalServo, 0.3), (OtherName, 0.3)],
)
def test_control_gets_what_was_measured_if_its_signature_asks_for_it(task, control):
    env = trot.make_env(task, 1, dtype=torch.float64)
    env.reset()
    env.place(trot.State(torch.tensor([[0.2, 1.0]], dtype=torch.float64), env.state.joint_qd))
    *_, info = env.step(torch.tensor([[0.5]], dtype=torch.float64))
    torch.testing.assert_close(info["control"].item(), control, rtol=0, atol=1e-15)


class Own:
    horizon = 60


class OfItsOwn(Counting):
    def __init__(self):
        super().__init__()
        self.dt = 0.1


def test_names_of_earlier_versions_are_refused_wherever_they_stand():
    """Or the task would silently run with the defaults of the new names."""
    with pytest.raises(ValueError, match=r"Old\.horizon: a task calls this episode_length"):
        type("Old", (Counting,), {"horizon": 60})
    with pytest.raises(ValueError, match=r"Mixed\.horizon: a task calls this episode_length"):
        type("Mixed", (Own, Counting), {})
    with pytest.raises(ValueError, match=r"OfItsOwn\.dt: a task calls this control_dt"):
        trot.make_env(OfItsOwn, 2)


def test_a_class_of_a_file_is_the_same_one_whoever_asks_until_the_file_is_edited(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("from tasks_with_memory import Counting\nclass Mine(Counting):\n    episode_length = 7\n")
    first, second = (make_task(f"{file}:Mine") for _ in range(2))
    assert type(first) is type(second) and first.episode_length == 7
    file.write_text(file.read_text().replace("7", "80"))
    assert make_task(f"{file}:Mine").episode_length == 80
