"""Contact that is scaled as it says, gradients of single worlds against the learner's own, statistics by NumPy."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
import small_shac
import torch
from made_run import make_run

import trot
from trot.cli import main
from trot.envs.registry import make_task
from trot.envs.tasks.hopper import Hopper
from trot.learn.algorithms.shac import Shac
from trot.learn.learner import NOISE_STREAM
from trot.runs.folder import RunFolder
from trot.study import contact_gradients
from trot.study.contact_gradients import Signal, contact, with_scaled_contact, world_gradients
from trot.study.contact_study import summary

FIELDS = ("shape_stiffness", "shape_damping", "shape_friction_stiffness", "shape_friction")


@pytest.mark.parametrize(
    ("constant", "scaled"),
    [("stiffness", {"shape_stiffness", "shape_damping"}), ("friction_slope", {"shape_friction_stiffness"})],
)
def test_a_factor_multiplies_what_it_says_and_nothing_else(constant, scaled):
    task = make_task("ant")
    before = {name: getattr(task.model, name).copy() for name in FIELDS}
    changed = with_scaled_contact(task, constant, 3.0)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(changed.model, name), before[name] * (3.0 if name in scaled else 1.0))
        np.testing.assert_array_equal(getattr(task.model, name), before[name])
    others = {name for name in vars(task.model) if name not in FIELDS}
    assert all(getattr(changed.model, name) is getattr(task.model, name) for name in others)
    assert changed.name == "ant" and type(changed) is type(task)


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent", "deterministic"])
def test_gradients_of_single_worlds_add_up_to_the_learners(policy):
    shac = small_shac.prepared(policy=policy)
    shac.rollout()
    total = small_shac.vector(shac.policy_gradient())
    by_actions = shac.adjoints.answers
    apart = world_gradients(shac.policy, shac.window.inputs, shac.noise, by_actions)
    np.testing.assert_allclose(apart.sum(dim=0), total, rtol=1e-9, atol=1e-12)
    only = torch.zeros_like(by_actions)
    only[:, 2] = by_actions[:, 2]
    actions = shac.policy(shac.window.inputs, shac.noise)
    alone = small_shac.vector(torch.autograd.grad(actions, list(shac.policy.parameters()), only))
    np.testing.assert_allclose(apart[2], alone, rtol=1e-9, atol=1e-12)


def test_statistics_of_gradients_against_numpy():
    gradients = np.random.default_rng(0).normal(size=(7, 5)) + np.array([1, 0, 0, -2, 0.5])
    signal = Signal.of(torch.tensor(gradients))
    mean, variance = gradients.mean(axis=0), gradients.var(axis=0, ddof=1).sum()
    first, second = gradients[::2].mean(axis=0), gradients[1::2].mean(axis=0)
    assert signal.norm == pytest.approx(np.linalg.norm(mean))
    assert signal.variance == pytest.approx(variance)
    assert signal.signal_to_noise == pytest.approx(np.linalg.norm(mean) / np.sqrt(variance / 7))
    assert signal.cosine == pytest.approx(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def test_noise_alone_has_the_figures_that_the_help_tells():
    noise = torch.randn(400, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    signal = Signal.of(noise)
    assert signal.signal_to_noise == pytest.approx(1, abs=0.1) and signal.cosine == pytest.approx(0, abs=0.15)


def by_hand(task, settings, seed, windows, load=None):
    """(worlds * windows mean) gradient of the loss, by the learner's own way."""
    env = trot.make_env(task, settings.num_worlds, seed=seed, dtype=torch.float64)
    shac = Shac(env, settings, seed)
    if load is not None:
        load(shac)
    found = []
    for _ in range(windows):
        shac.rollout()
        found.append(small_shac.vector(shac.policy_gradient()))
        env.end_window()
    return np.mean(found, axis=0)


def test_a_case_has_the_gradient_that_training_in_such_physics_would_have():
    case = contact(
        "hopper", "stiffness", 4.0, num_worlds=6, horizon=8, windows=2, device="cpu", seed=3, dtype=torch.float64
    )
    task, settings = make_task("hopper"), trot_settings(6, 8)
    softer = by_hand(task, settings, 3, 2)
    changes = {name: 4 * getattr(task.model, name) for name in ("shape_stiffness", "shape_damping")}
    task.model = replace(task.model, **changes)
    expected = by_hand(task, settings, 3, 2)
    assert case.signal.norm == pytest.approx(np.linalg.norm(expected), rel=1e-9)
    assert np.linalg.norm(softer) != pytest.approx(np.linalg.norm(expected), rel=1e-3)
    assert case.blown_up == case.not_finite == 0 and len(case.returns) == 0 and math.isnan(case.last_return)


def trot_settings(num_worlds, horizon):
    from trot.learn.algorithms import find_algorithm

    return replace(find_algorithm("shac").resolve("hopper", "paper"), num_worlds=num_worlds, horizon=horizon)


def test_the_share_of_steep_worlds_is_that_of_the_metrics():
    """The first window of a new policy is that of a training's first iteration."""
    shac = Shac(trot.make_env("hopper", 16, dtype=torch.float64), trot_settings(16, 32), 0)
    shac.iterate()
    told = small_shac.metrics(shac)["steep_worlds"]
    assert 0 < told < 1
    case = contact("hopper", num_worlds=16, horizon=32, windows=1, device="cpu", dtype=torch.float64)
    assert case.steep == told


def test_worlds_that_blow_up_are_told():
    case = contact("hopper", "stiffness", 1e12, num_worlds=4, horizon=32, windows=2, device="cpu")
    assert case.blown_up > 0
    assert contact("hopper", "stiffness", 1.0, num_worlds=4, horizon=32, windows=2, device="cpu").blown_up == 0


def test_a_gradient_that_is_not_finite_is_told_and_left_out(monkeypatch):
    own = contact_gradients.world_gradients

    def broken(*given):
        found = own(*given)
        found[1, 0] = math.inf
        return found

    monkeypatch.setattr(contact_gradients, "world_gradients", broken)
    case = contact("hopper", num_worlds=4, horizon=8, windows=1, device="cpu")
    assert case.not_finite == 0.25 and math.isfinite(case.signal.norm)


TRAIN = ["--num-worlds", "4", "--horizon", "32", "--actor-hidden", "8", "--critic-hidden", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a few iterations."""
    root = tmp_path_factory.mktemp("runs")
    assert (
        main(["train", "hopper", *TRAIN, "--iterations", "8", "--seed", "2", "--name", "h", "--runs", str(root)]) == 0
    )
    return RunFolder.open(root / "h")


def test_a_run_brings_its_policy_and_its_value_function(trained):
    given = {"num_worlds": 4, "windows": 1, "device": "cpu", "seed": 5, "dtype": torch.float64}
    case = contact(trained.path, **given)
    saved = trained.load_checkpoint("last")["learner"]

    def load(shac):
        state = {name: value for name, value in saved.items() if not name.startswith("bad_window")}
        shac.double()
        shac.load_state_dict({**shac.state_dict(), **state, "_extra_state": shac.get_extra_state()})
        shac.generator.manual_seed(5 + NOISE_STREAM)

    settings = contact_gradients.shac_settings(contact_gradients.find_subject(trained.path))
    assert settings.horizon == 32 and settings.actor_hidden == (8,)
    expected = by_hand("hopper", settings, 5, 1, load)
    assert case.signal.norm == pytest.approx(np.linalg.norm(expected), rel=1e-9)
    assert np.linalg.norm(by_hand("hopper", settings, 5, 1)) != pytest.approx(np.linalg.norm(expected), rel=1e-2)


def test_a_training_in_the_robots_own_physics_is_that_of_trot_train(trained):
    case = contact(trained.path, num_worlds=2, windows=1, train=8, device="cpu", seed=2)
    rows = trained.read_metrics()
    told = [row["episode_return"] if row["episodes"] else math.nan for row in rows]
    assert math.isfinite(told[-1])
    np.testing.assert_array_equal(case.returns, told)
    assert case.stopped_in is None


def test_a_training_whose_gradient_fails_tells_where():
    class Steep(Hopper):
        def reward_terms(self, measured, action):
            return {"steep": 1e38 * measured.forward_speed * measured.height}

    case = contact(Steep(), num_worlds=2, windows=1, train=2, horizon=8, device="cpu")
    assert case.stopped_in == 1 and np.isnan(case.returns).all()
    assert "training stopped in iteration 1" in summary([case])


@pytest.mark.gpu
def test_a_case_and_its_training_run_on_cuda():
    case = contact("hopper", "stiffness", 3.0, num_worlds=8, windows=2, train=2, device="cuda")
    assert case.not_finite == 0 and math.isfinite(case.signal.norm) and len(case.returns) == 2


def test_the_command_writes_numbers_and_a_figure(tmp_path, capsys):
    options = ["--factors", "10", "1", "--num-worlds", "4", "--horizon", "8", "--windows", "1", "--device", "cpu"]
    assert main(["study", "contact", "hopper", *options, "--studies", str(tmp_path)]) == 0
    folder = tmp_path / "contact-hopper"
    with (folder / "contact.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["constant"], float(row["factor"])) for row in rows] == [
        ("stiffness", 1.0), ("stiffness", 10.0), ("friction_slope", 1.0), ("friction_slope", 10.0)
    ]  # fmt: skip
    case = contact("hopper", "friction_slope", 10.0, 4, 8, windows=1, device="cpu")
    assert float(rows[3]["norm"]) == case.signal.norm and float(rows[3]["cosine_of_halves"]) == case.signal.cosine
    assert rows[0]["norm"] == rows[2]["norm"] != rows[3]["norm"]
    text = (folder / "contact.svg").read_text()
    assert "Signal to noise" in text and "friction slope" in text and "Return" not in text
    assert (folder / "contact.png").stat().st_size > 10_000
    assert "friction slope" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cartpole"], "CartPole has no contact to vary"),
        (["hopper", "--factors", "1", "0"], "factors must be above 0 and finite, not 0"),
        (["hopper", "--windows", "0"], "windows must be at least 1, not 0"),
        (["hopper", "--num-worlds", "90000000"], "Use fewer worlds"),
        (["nowhere"], "'nowhere' is neither a task nor a run folder"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, capsys):
    assert main(["study", "contact", *arguments, "--device", "cpu", "--studies", str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trot study: ") and said in error


def test_runs_that_have_no_such_gradient_are_refused(tmp_path, trained):
    run, _ = make_run(tmp_path, "hopper")
    with pytest.raises(ValueError, match=r"the checkpoint 'best' of .* holds no value function: .* of last"):
        contact(run.path, checkpoint="best", device="cpu")
    with pytest.raises(FileNotFoundError, match="has no checkpoint 'iteration_5'; it has"):
        contact(trained.path, checkpoint="iteration_5", device="cpu")
    run.change_settings(algo="ppo")
    with pytest.raises(ValueError, match="was trained by ppo, whose gradient this is not: give one of shac,"):
        contact(run.path, device="cpu")
    bare = RunFolder.create(tmp_path, "bare", {**run.settings, "algo": "shac"})
    with pytest.raises(ValueError, match="has no checkpoints yet: trot resume"):
        contact(bare.path, device="cpu")
