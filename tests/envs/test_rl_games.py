"""examples/rl_games_ppo.py: what rl_games is handed, step by step, and whole runs where it is installed."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from tasks_with_memory import Counting, Tally

import trot
from trot.runs.folder import RunFolder
from trot.view.plots.curves import CURVE_COLUMNS, load_runs

SCRIPT = Path(__file__).parents[2] / "examples" / "rl_games_ppo.py"


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("gymnasium", reason='needs gymnasium: pip install "trot[gym]"')
    spec = importlib.util.spec_from_file_location("rl_games_ppo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class Toppling(Counting):
    """Falls once its actions add up to more than 1.5."""

    def fallen(self, measured: Tally) -> torch.Tensor:
        return measured.total[:, :1] > 1.5


def worlds_of(example, num_worlds):
    return example.VectorEnv(trot.make_env(Toppling, num_worlds, stochastic_start=False))


def column(observation, worlds, name):
    return observation[:, worlds.env.observation_layout[name]].squeeze(1).tolist()


def test_spaces_are_those_of_the_task(example):
    info = worlds_of(example, 2).get_env_info()
    assert info["observation_space"].shape == (5,)
    assert (info["action_space"].low.tolist(), info["action_space"].high.tolist()) == ([-1], [1])


def test_an_end_by_time_begins_anew_and_is_told(example):
    """Episodes of four steps pay 100, 101, 102 and 103."""
    worlds = worlds_of(example, 2)
    worlds.reset()
    for step in range(4):
        observation, reward, done, info = worlds.step(torch.zeros(2, 1))
        assert reward.tolist() == [100 + step] * 2
        assert done.tolist() == info["time_outs"].tolist() == [step == 3] * 2
    assert column(observation, worlds, "steps") == [0, 0]


def test_a_fall_is_done_and_no_time_out_also_in_the_last_step(example):
    """The action of one step is judged in the next: the first world falls in step 3, the second in step 4."""
    worlds = worlds_of(example, 3)
    worlds.reset()
    seen = []
    for actions in ([1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        observation, _, done, info = worlds.step(torch.tensor(actions)[:, None])
        seen.append((done.tolist(), info["time_outs"].tolist(), column(observation, worlds, "steps")))
    nobody = [False, False, False]
    assert seen == [
        (nobody, nobody, [1, 1, 1]),
        (nobody, nobody, [2, 2, 2]),
        ([True, False, False], nobody, [0, 3, 3]),
        ([False, True, True], [False, False, True], [1, 0, 0]),
    ]


def test_returns_are_whole_episodes_of_what_the_task_pays(example):
    """Whatever the learner does to the rewards it was given; an episode may begin in one epoch and end in the next."""
    worlds = worlds_of(example, 2)
    worlds.reset()
    for steps, finished, mean_return in ((3, 0, 0.0), (1, 2, 406.0), (5, 4, 406.0)):
        for _ in range(steps):
            _, reward, _, _ = worlds.step(torch.zeros(2, 1))
            reward.mul_(0.01)
        assert worlds.end_epoch() == 2 * steps
        assert (int(worlds.episodes.finished), float(worlds.episodes.mean_return)) == (finished, mean_return)


@pytest.mark.parametrize(
    ("task", "steps", "updates"),
    [("cartpole", 3_840_000, 20), ("ant", 327_680_000, 20), ("muscle_humanoid", 655_360_000, 24)],
)
def test_ppo_takes_the_steps_and_updates_of_the_papers_program(example, task, steps, updates, tmp_path):
    config = example.rl_games_params(example.Options(task, "ppo"), tmp_path)["config"]
    batch = config["num_actors"] * config["horizon_length"]
    assert batch * config["max_epochs"] == steps
    assert batch / config["minibatch_size"] * config["mini_epochs"] == updates


@pytest.mark.parametrize(
    ("task", "steps", "random_steps"),
    [
        ("cartpole", 4_096_000, 16_384),
        ("ant", 81_920_000, 65_536),
        ("humanoid", 40_960_000, 8_192),
        ("muscle_humanoid", 327_680_000, 32_768),
        ("hopper", 40_960_000, 32_768),
    ],
)
def test_sac_takes_the_steps_of_the_papers_program(example, task, steps, random_steps, tmp_path):
    config = example.rl_games_params(example.Options(task, "sac"), tmp_path)["config"]
    epoch = config["num_actors"] * config["num_steps_per_episode"]
    assert epoch * config["max_epochs"] == steps
    assert epoch * (config["num_warmup_steps"] - 1) == random_steps


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_time_outs_end_an_episode_unless_asked_otherwise(example, algo, tmp_path):
    for time_outs, bootstrapped in ((None, False), ("end", False), ("bootstrap", True)):
        given = {} if time_outs is None else {"time_outs": time_outs}
        config = example.rl_games_params(example.Options("ant", algo, **given), tmp_path)["config"]
        assert config["value_bootstrap"] is bootstrapped


def test_a_task_without_settings_is_named(example, tmp_path):
    with pytest.raises(ValueError, match="no settings for the task 'walker'; there are for: cartpole, ant"):
        example.train(example.Options("walker", runs=tmp_path))


def test_no_epochs_are_refused(example):
    with pytest.raises(ValueError, match="epochs must be at least 1, not -1"):
        example.Options(epochs=-1)


def test_without_rl_games_it_says_what_to_install(example, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rl_games", None)
    with pytest.raises(ImportError, match=r"pip install -e \"\.\[rl-games\]\""):
        example.train(example.Options(runs=tmp_path))
    assert not list(tmp_path.iterdir())


def switches():
    backends = torch.backends
    return (
        backends.cuda.matmul.allow_tf32,
        backends.cudnn.allow_tf32,
        backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(),
        torch.get_num_threads(),
    )


def rows_but_seconds(run):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in run.read_metrics()]


@pytest.fixture
def small_settings(example, monkeypatch):
    """Fewer worlds and updates, for both algorithms; an episode of the CartPole is 240 steps."""
    monkeypatch.setitem(example.PPO_OF, "cartpole", example.PPO(4, 120, 240, (8,), 4))
    monkeypatch.setitem(example.SAC_OF, "cartpole", example.SAC(4, 16, (8,), 4, 5e-4, 5e-3, 2, horizon=120))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_counts_as_rl_games_does_and_can_be_drawn(example, algo, small_settings, tmp_path):
    pytest.importorskip("rl_games", reason='needs rl_games: pip install "trot[rl-games]"')
    before = switches()
    run = example.train(example.Options("cartpole", algo, runs=tmp_path))
    assert switches() == before
    rows = run.read_metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert [row["steps"] for row in rows] == [480, 960, 1440, 1920]
    assert [row["episodes"] for row in rows] == [0, 4, 4, 8]
    assert rows[-1]["episode_length"] == 240
    (saved,) = (run.path / "rl_games" / "nn").iterdir()
    counted = re.search(r"_rew_+(-?[\d.]+\d)", saved.name)
    assert rows[-1]["episode_return"] == pytest.approx(float(counted[1]), rel=1e-6)
    (drawn,) = load_runs([RunFolder.open(run.path).path], CURVE_COLUMNS)
    assert (drawn.algo, drawn.label) == (f"rl_games-{algo}", f"{algo.upper()} (rl_games)")


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_seed_of_zero_is_one_too(example, algo, small_settings, tmp_path):
    pytest.importorskip("rl_games", reason='needs rl_games: pip install "trot[rl-games]"')
    first, again, other = (
        rows_but_seconds(example.train(example.Options("cartpole", algo, seed, runs=tmp_path))) for seed in (0, 0, 1)
    )
    assert first == again
    assert first[-1] != other[-1]
