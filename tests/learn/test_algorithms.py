"""Every algorithm that trot knows, on a toy task whose optimum is known, through the commands that a user types."""

import json
from dataclasses import replace
from pathlib import Path

import docking
import numpy as np
import pytest
import torch

import bench.train
from trot.cli import main
from trot.envs.registry import make_env
from trot.learn.algorithms import ALGORITHMS, find_algorithm
from trot.learn.capture import fast_phases
from trot.learn.evaluate import evaluate
from trot.learn.play import play
from trot.learn.torch_threads import one_torch_thread
from trot.runs.folder import RunFolder

TASK = f"{docking.__file__}:Docking"
EPISODES = 64
REINFORCE = f"{Path(__file__).parents[2] / 'examples' / 'own_algorithm' / 'reinforce.py'}:REINFORCE"

SHAC = {"horizon": 8, "critic_hidden": (16,), "actor_hidden": (16,), "actor_lr": 2e-2, "critic_lr": 1e-2}
RELATIVE = SHAC | {"critic_passes": 4}
# Whole episodes, few passes and small steps: with less it comes near and then away again, a matter of rounding.
PPO = {"horizon": docking.STEPS, "hidden": (16,), "lr": 3e-3, "batches": 2, "reward_scale": 0.1}
PPO |= {"passes": 3, "target_kl": 1e-3}
SAC = {"horizon": 8, "hidden": (32, 32), "batch": 64, "random_iterations": 2, "memory": 20_000, "gamma": 0.95}
SAC |= {"actor_lr": 3e-3, "critic_lr": 3e-3, "temperature_lr": 3e-2, "entropy_per_action": -3.0}
MBPO = {"horizon": 8, "hidden": (32, 32), "batch": 128, "random_iterations": 4, "memory": 6000, "gamma": 0.95}
MBPO |= {"actor_lr": 1e-3, "critic_lr": 3e-3, "temperature_lr": 2e-3, "initial_temperature": 0.5, "updates": 4}
MBPO |= {"entropy_per_action": -1.0, "target_keep": 0.98, "real_share": 0.1, "rollouts": 1000}
MBPO |= {"rollout_epochs": (1, 4), "rollout_lengths": (1, 3), "model_hidden": (32, 32), "model_interval": 18}
MBPO |= {"model_batch": 128, "model_passes": 60, "model_lr": 3e-3}
SE_MBPO = MBPO | {"random_iterations": 5, "memory": 12_000, "model_batch": 256}
SE_MBPO |= {"num_neighbours": 2, "neighbours": "full"}
SMALL = {
    "shac": SHAC,
    "shac-no-critic": SHAC,
    "bptt": SHAC | {"horizon": docking.STEPS},
    "ppo": PPO,
    "sac": SAC,
    "redq": SAC | {"updates": 6},
    "pods": {
        "actor_hidden": (16,),
        "halvings": 6,
        "line_search": "best",
        "imitation_lr": 1e-2,
        "imitation_steps": 100,
    },
    "mbpo": MBPO,
    "se-mbpo": SE_MBPO,
    "sapo": RELATIVE | {"temperature_lr": 3e-2, "entropy_per_action": -3.0},
    "rpo": RELATIVE | {"entropy_weight": 0.0},
    "ahac": RELATIVE | {"shortest_horizon": 6, "horizon_lr": 0.1, "gamma": 0.95},
    "ppo-finish": PPO | {"value_hidden": (16,), "value_only_iterations": 2},
    "shac-mixed": RELATIVE,
    REINFORCE: {"horizon": 8, "hidden": (16,)},
}
"""What makes an algorithm small enough for a test; a new one needs a line here."""
ENOUGH_ITERATIONS = {"shac": 150, "shac-no-critic": 150, "bptt": 100, "ppo": 150, "sac": 300, "redq": 70, "pods": 45}
ENOUGH_ITERATIONS |= {"mbpo": 75, "se-mbpo": 40, "sapo": 60, "rpo": 120, "ahac": 120, "shac-mixed": 120}
ENOUGH_ITERATIONS["ppo-finish"] = 150
SHARE_OF_THE_WAY = 0.98
"""From doing nothing to the optimum, at least."""

EVERY = pytest.mark.parametrize("algo", list(ALGORITHMS))
WITH_THE_EXAMPLE = pytest.mark.parametrize("algo", [*ALGORITHMS, REINFORCE], ids=[*ALGORITHMS, "own file"])


def options(algo):
    return [
        word
        for name, value in SMALL[algo].items()
        for word in (f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else [value]))
    ]


def small_preset(algo):
    """The algorithm, with settings that are small enough for a test unless others are given."""
    algorithm = find_algorithm(algo)
    return replace(algorithm, presets={"small": lambda task: replace(algorithm.resolve(task), **SMALL[algo])})


def rows(run):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in run.read_metrics()]


def tensors(content):
    """All tensors of a checkpoint, by their path in it."""
    found = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found |= {f"{name}/{path}": tensor for path, tensor in tensors(value).items()}
        elif isinstance(value, torch.Tensor):
            found[name] = value
    return found


def test_the_best_policy_by_riccati_is_what_the_simulation_pays():
    env = make_env(TASK, EPISODES, dtype=torch.float64)
    counted = iter(range(docking.STEPS))
    start, returns = [], torch.zeros(EPISODES, dtype=torch.float64)
    act = lambda observation: docking.best_actions(observation, next(counted))  # noqa: E731
    for played in play(env, act, docking.STEPS, on_start=lambda: start.append(env.worlds.observation.numpy())):
        assert played.action.abs().max() < 1
        returns += played.reward
    np.testing.assert_allclose(returns.numpy(), docking.best_return(start[0]), rtol=1e-12)


# SE-MBPO takes long, and is MBPO but for the neighbours of its steps.
@pytest.mark.parametrize(
    "algo", [pytest.param(algo, marks=[pytest.mark.campaign] * (algo == "se-mbpo")) for algo in ALGORITHMS]
)
def test_it_comes_near_the_optimum(algo):
    algorithm = find_algorithm(algo)
    changes = SMALL[algo] | {"num_worlds": 32, "iterations": ENOUGH_ITERATIONS[algo]}
    settings = replace(algorithm.resolve(TASK), **changes)
    learner = algorithm.learner(make_env(TASK, settings.num_worlds), settings, 0)
    phases = fast_phases(learner)
    with one_torch_thread():
        for iteration in range(settings.iterations):
            for phase in phases.values():
                phase(iteration)
    found = np.array(evaluate(learner.agent, TASK, EPISODES, seed=5).returns)
    env = make_env(TASK, EPISODES, seed=5)
    start = env.reset()[0].double().numpy()
    idle = np.zeros(EPISODES)
    for played in play(env, lambda observation: torch.zeros(EPISODES, 1), docking.STEPS):
        idle += played.reward.double().numpy()
    best = docking.best_return(start)
    # Nobody beats the optimum, but for rounding.
    assert (found <= best + 1e-4).all()
    share = (found - idle).mean() / (best - idle).mean()
    assert share > SHARE_OF_THE_WAY, f"{algo} came {share:.1%} of the way"


@WITH_THE_EXAMPLE
def test_it_goes_through_every_command(algo, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ["train", TASK, "--algo", algo, "--device", "cpu", "--num-worlds", "4", "--iterations", "6", *options(algo)]
    assert main([*train, "--name", "whole"]) == 0
    # Good enough as soon as every world has ended an episode; then not.
    assert main([*train, "--name", "parts", "--stop-at", "-1e9"]) == 0
    whole, parts = (RunFolder.open(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert 0 < len(rows(parts)) < 6
    assert main(["resume", str(parts.path), "--stop-at", "1e9"]) == 0
    assert rows(whole) == rows(parts) and len(rows(whole)) == 6
    assert [row["steps"] for row in rows(whole)] == sorted({row["steps"] for row in rows(whole)})
    assert json.loads((whole.path / "settings.json").read_text())["settings"]["num_worlds"] == 4
    name = Path("runs", "whole")
    assert main(["eval", str(name), "--episodes", "3", "--checkpoint", "last", "--device", "cpu"]) == 0
    assert main(["export", str(name), "--checkpoint", "last"]) == 0
    assert main(["list"]) == 0
    assert main(["plot", str(name)]) == 0 and main(["plot", "--health", str(name)]) == 0
    monkeypatch.setattr(bench.train, "find_algorithm", small_preset)
    few = ["--worlds", "4", "--iterations", "1", "--device", "cpu"]
    assert main(["bench", "train", "--tasks", TASK, "--algo", algo, *few]) == 0
    assert main(["view", str(name), "--html", "motion.html", "--checkpoint", "last"]) == 0
    printed = capsys.readouterr().out
    assert find_algorithm(algo).name in printed and (tmp_path / "motion.html").stat().st_size > 10_000


@WITH_THE_EXAMPLE
def test_it_resumes_to_the_bit(algo, tmp_path):
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.resolve(TASK), **(SMALL[algo] | {"num_worlds": 4, "iterations": 8}))

    def learner(seed):
        return algorithm.learner(make_env(TASK, 4, seed=seed), settings, seed)

    whole, resumed = learner(0), learner(1)
    for _ in range(4):
        whole.iterate()
    resumed.load_state_dict(whole.state_dict())
    for _ in range(4):
        whole.iterate()
        resumed.iterate()
        assert whole.metrics.equal(resumed.metrics)
    first, second = tensors(whole.state_dict()), tensors(resumed.state_dict())
    assert first.keys() == second.keys()
    assert [name for name in first if not first[name].equal(second[name])] == []


@pytest.mark.gpu
@WITH_THE_EXAMPLE
def test_graphs_give_the_bits_of_eager_iterations(algo):
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.resolve(TASK), **(SMALL[algo] | {"num_worlds": 32, "iterations": 8}))
    eager, captured = (algorithm.learner(make_env(TASK, 32, "cuda"), settings, 0) for _ in range(2))
    phases = fast_phases(captured)
    for iteration in range(getattr(settings, "random_iterations", 0) + 3):
        eager.iterate()
        for phase in phases.values():
            phase(iteration)
    torch.cuda.synchronize()
    first, second = tensors(eager.state_dict()), tensors(captured.state_dict())
    assert [name for name in first if not first[name].equal(second[name])] == []
