"""rl_games' PPO and SAC on trot's tasks, at the settings the SHAC paper compared with: a check of trot's own.

    pip install -c constraints.txt -e ".[rl-games]"
    python examples/rl_games_ppo.py --task cartpole --algo ppo --seed 1
    trot plot runs

A run is a folder like those of `trot train`, with returns counted by the same rule, so that `trot plot` and `trot list`
show both side by side. Its policy lies in rl_games' own form below rl_games/nn, which other commands do not read.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from trot.command_line import parse
from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.learn.episodes import Episodes
from trot.learn.torch_threads import one_torch_thread
from trot.progress import Progress
from trot.runs.folder import RunFolder

Params = dict[str, Any]
"""As rl_games reads them from its YAML files."""


@dataclass(frozen=True)
class PPO:
    """What differs from task to task."""

    worlds: int
    horizon: int
    minibatch: int
    hidden: tuple[int, ...]
    epochs: int
    mini_epochs: int = 5


@dataclass(frozen=True)
class SAC:
    """What differs from task to task."""

    worlds: int
    minibatch: int
    hidden: tuple[int, ...]
    epochs: int
    lr: float
    """Of actor and critics."""
    alpha_lr: float
    random_until: int
    """The first epoch that does not act at random."""
    horizon: int = 128


PPO_OF = {
    "cartpole": PPO(32, 240, 1920, (64, 64), 500),
    "ant": PPO(2048, 32, 16384, (128, 64, 32), 5000),
    "humanoid": PPO(1024, 32, 8192, (256, 128, 64), 5000),
    "muscle_humanoid": PPO(1024, 32, 8192, (512, 512, 256), 20000, mini_epochs=6),
    "half_cheetah": PPO(1024, 32, 8192, (128, 64, 32), 5000),
    "hopper": PPO(1024, 32, 8192, (128, 64, 32), 5000),
}
SAC_OF = {
    "cartpole": SAC(32, 1024, (64, 64), 1000, 5e-4, 5e-3, 5),
    "ant": SAC(128, 4096, (256, 128, 64), 5000, 5e-4, 5e-3, 5),
    "humanoid": SAC(64, 2048, (512, 256), 5000, 3e-4, 2e-4, 2),
    "muscle_humanoid": SAC(256, 4096, (512, 512, 512, 256), 10000, 3e-4, 2e-4, 2),
    "half_cheetah": SAC(64, 2048, (256, 128, 64), 5000, 5e-4, 5e-3, 5),
    "hopper": SAC(64, 2048, (256, 128, 64), 5000, 5e-4, 5e-3, 5),
}


@dataclass(frozen=True)
class Options:
    """Train a task of trot's with rl_games."""

    task: str = "cartpole"
    """One of `trot tasks`."""
    algo: Literal["ppo", "sac"] = "ppo"
    seed: int = 1
    epochs: int | None = None
    """As many as in the paper's program unless given. rl_games' SAC ends no sooner than its first episode."""
    device: str = "cpu"
    time_outs: Literal["end", "bootstrap"] = "end"
    """end: as if the robot had fallen, like the paper's program. bootstrap: rl_games' way, which takes the value of the
    observation before the last step, because it is not told the last one."""
    runs: Path = Path("runs")
    """Where run folders are made."""

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.epochs}")

    @property
    def of_task(self) -> PPO | SAC:
        known = PPO_OF if self.algo == "ppo" else SAC_OF
        if self.task not in known:
            raise ValueError(f"there are no settings for the task '{self.task}'; there are for: {', '.join(known)}")
        return known[self.task]


class VectorEnv:
    """trot's worlds as rl_games calls them. It keeps the rewards of an epoch, to count returns by trot's rule."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.episodes = Episodes(env.num_worlds, torch.zeros((), dtype=env.dtype, device=env.device))
        self._epoch: list[tuple[Tensor, Tensor]] = []

    def get_env_info(self) -> dict[str, Any]:
        seen = Box(-np.inf, np.inf, (self.env.num_observations,), np.float32)
        return {"observation_space": seen, "action_space": Box(-1, 1, (self.env.num_actions,), np.float32)}

    @torch.no_grad()
    def reset(self) -> Tensor:
        return self.env.reset()[0]

    @torch.no_grad()
    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Act: observation, of the next episode where one ended; reward; done; which ended by time alone."""
        observation, reward, terminated, truncated, _ = self.env.step(actions)
        done = terminated | truncated
        self._epoch.append((reward, done))
        return observation, reward.clone(), done, {"time_outs": truncated & ~terminated}

    def set_train_info(self, env_frames: int, *agent: Any) -> None:
        """Worlds do not depend on how far training is."""

    def get_env_state(self) -> None:
        """Nothing: runs are not resumed."""

    def end_epoch(self) -> int:
        """Count the steps since the last call; returns how many they were, over all worlds."""
        reward, done = (torch.stack(part) for part in zip(*self._epoch, strict=True))
        self._epoch.clear()
        self.episodes.count(reward, done)
        return reward.numel()


def rl_games_params(options: Options, folder: Path) -> Params:
    """All that rl_games is told; it writes below the folder."""
    own = options.of_task
    common = {
        "name": "policy",
        "env_name": "trot",
        "train_dir": str(folder),
        "full_experiment_name": "rl_games",
        "device": options.device,
        "num_actors": own.worlds,
        "max_epochs": own.epochs if options.epochs is None else options.epochs,
        "gamma": 0.99,
        "normalize_input": True,
        # On unless said otherwise: it takes long to start and changes the numbers.
        "torch_compile": False,
        "value_bootstrap": options.time_outs == "bootstrap",
        "print_stats": False,
        # Never: only the last policy is saved.
        "save_best_after": sys.maxsize,
    }
    parts = _ppo_parts(own) if isinstance(own, PPO) else _sac_parts(own)
    parts["config"] |= common
    # rl_games would choose the number of PyTorch's threads; trot's rule is to leave the cores to the physics.
    return {"seed": options.seed, "torch_threads": 0, **parts}


def _ppo_parts(own: PPO) -> Params:
    space = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": 0},
        "fixed_sigma": True,
    }
    config = {
        "ppo": True,
        "horizon_length": own.horizon,
        "minibatch_size": own.minibatch,
        "mini_epochs": own.mini_epochs,
        "tau": 0.95,
        "learning_rate": 3e-4,
        "lr_schedule": "adaptive",
        "kl_threshold": 0.008,
        "e_clip": 0.2,
        "clip_value": True,
        "critic_coef": 4,
        "entropy_coef": 0.0,
        "bounds_loss_coef": 1e-4,
        "truncate_grads": True,
        "grad_norm": 1.0,
        "normalize_advantage": True,
        "normalize_value": True,
        "reward_shaper": {"scale_value": 0.01},
    }
    return {
        "algo": {"name": "a2c_continuous"},
        "model": {"name": "continuous_a2c_logstd"},
        "network": {
            "name": "actor_critic",
            "separate": False,
            "space": {"continuous": space},
            "mlp": _layers(own.hidden, "elu"),
        },
        "config": config,
    }


def _sac_parts(own: SAC) -> Params:
    config = {
        "num_steps_per_episode": own.horizon,
        "num_warmup_steps": own.random_until,
        "batch_size": own.minibatch,
        "replay_buffer_size": 1_000_000,
        "critic_tau": 0.005,
        "actor_lr": own.lr,
        "critic_lr": own.lr,
        "alpha_lr": own.alpha_lr,
        "init_alpha": 1,
        "learnable_temperature": True,
        "reward_shaper": {"scale_value": 1},
        # As in the paper's program; today's defaults are 2, 5 and 1.
        "policy_frequency": 1,
        "critic_grad_clip": 0,
        "target_entropy_coef": 0.5,
    }
    return {
        "algo": {"name": "sac"},
        "model": {"name": "soft_actor_critic"},
        "network": {"name": "soft_actor_critic", "log_std_bounds": [-5, 2], "mlp": _layers(own.hidden, "relu")},
        "config": config,
    }


def _layers(hidden: tuple[int, ...], activation: str) -> Params:
    return {"units": list(hidden), "activation": activation, "initializer": {"name": "default"}}


def train(options: Options) -> RunFolder:
    """A run from beginning to end."""
    own = options.of_task
    try:
        import rl_games.torch_runner  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{error}; rl_games is an extra: pip install -e ".[rl-games]"') from error
    env = make_env(options.task, own.worlds, options.device, options.seed)
    algo = f"rl_games-{options.algo}"
    described = {
        "task": options.task,
        "algo": algo,
        "label": f"{options.algo.upper()} (rl_games)",
        "seed": options.seed,
        "device": env.device.type,
        "iterations": own.epochs if options.epochs is None else options.epochs,
        "time_outs": options.time_outs,
        "settings": {**asdict(own), "num_worlds": own.worlds},
    }
    with RunFolder.create(options.runs, f"{options.task}-{algo}-{options.seed}", described) as run:
        print(f"{options.task}, {algo}, seed {options.seed}, on {env.device}. Run folder: {run.path}", flush=True)
        # What rl_games prints is long, and our line of progress says what matters.
        with (run.path / "rl_games.log").open("w") as log, contextlib.redirect_stdout(log), one_torch_thread():
            _run(VectorEnv(env), rl_games_params(options, run.path), options.seed, run)
    return run


def _run(worlds: VectorEnv, params: Params, seed: int, run: RunFolder) -> None:
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.algo_observer import AlgoObserver
    from rl_games.torch_runner import Runner

    steps, best_return, epochs = 0, -float("inf"), params["config"]["max_epochs"]

    class WriteRows(AlgoObserver):  # type: ignore[misc]
        def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
            """After each epoch. Of PPO `frame` is one epoch late, so steps are counted here.

            The time is that of acting and learning; what is logged and saved between epochs does not count.
            """
            nonlocal steps, best_return
            steps += worlds.end_epoch()
            episodes = worlds.episodes
            finished, mean_return = int(episodes.finished), float(episodes.mean_return)
            best_return = max(best_return, mean_return) if finished else best_return
            row = {
                "iteration": epoch_num,
                "steps": steps,
                "seconds": round(total_time, 3),
                "episode_return": mean_return,
                "episode_length": float(episodes.mean_length),
                "episodes": finished,
                "faults": int(worlds.env.worlds.faults.sum()),
                "best_return": best_return,
            }
            run.append_metrics([row])
            progress.update(epoch_num, {"return": mean_return, "steps/s": steps / total_time})

    vecenv.register("trot", lambda name, num_actors: worlds)
    env_configurations.register("trot", {"vecenv_type": "trot"})
    with _same_precision():
        runner = Runner(WriteRows())
        runner.load_config(copy.deepcopy(params))
    with Progress(epochs) as progress:
        # Again, because rl_games ignores a seed of 0.
        torch.manual_seed(seed)
        runner.run_train({"train": True})


@contextlib.contextmanager
def _same_precision() -> Iterator[None]:
    """Undo what rl_games' Runner switches for the whole process when it is made: TF32 for float32 products."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, precision = before
        torch.set_float32_matmul_precision(precision)


if __name__ == "__main__":
    try:
        train(parse(Options, "rl_games_ppo.py", Options.__doc__, sys.argv[1:]))
    except (ImportError, ValueError) as mistake:
        sys.exit(f"rl_games_ppo.py: {mistake}")
