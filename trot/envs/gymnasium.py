"""The tasks as Gymnasium environments, many worlds or one. Importing this module registers their ids."""

from __future__ import annotations

import importlib
import operator
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.registry import TASKS, make_env
from trot.envs.task import Task

try:
    import gymnasium
    from gymnasium.spaces import Box
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise ImportError('trot.envs.gymnasium needs Gymnasium 1.1 or later: pip install "trot[gym]"') from error

Array = Any
"""A NumPy array or a tensor, as TrotVectorEnv was told."""
Rows = NDArray[np.float32]
Pixels = NDArray[np.uint8]

RENDER_MODES = ("rgb_array",)
CAMERA = ("trot.view.video.env_camera", "EnvCamera")
"""By name, for whoever asks for pictures: environments know nothing of what draws them."""


class Camera(Protocol):
    """What draws an environment."""

    def picture(self, world: int) -> Pixels: ...

    def close(self) -> None: ...


class TrotVectorEnv(VectorEnv[Array, Array, Array]):
    """Many worlds that step together; those whose episode ended start anew in the same step. No gradients.

    arrays="numpy" hands out fresh NumPy arrays, arrays="torch" fresh tensors on the device. Infos are laid out as
    gymnasium's SyncVectorEnv does it, with two differences: the infos of a step hold its reward terms and faults for
    all worlds, also for those that final_info repeats them for; and with arrays="torch" final_obs is one tensor, and
    it and final_info are always there, because to ask whether an episode ended would be to wait for the GPU.
    """

    def __init__(
        self,
        task: str | type[Task[Any]] | Task[Any],
        num_envs: int = 1,
        device: str | torch.device = "cpu",
        seed: int = 0,
        arrays: Literal["numpy", "torch"] = "numpy",
        stochastic_start: bool = True,
        randomize: Randomize | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 360,
    ) -> None:
        self.render_mode, self._pictures = render_mode, _Pictures(render_mode, width, height)
        if arrays not in ("numpy", "torch"):
            raise ValueError(f"arrays must be 'numpy' or 'torch', not {arrays!r}")
        self.simulation = make_env(task, num_envs, device, seed, stochastic_start=stochastic_start, randomize=randomize)
        """The worlds themselves, for what gymnasium has no word for: get_state(), last_faults(), gradients."""
        self.num_envs, self.arrays = num_envs, arrays
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": round(1 / self.simulation.task.control_dt),
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.single_observation_space, self.single_action_space = _spaces(self.simulation)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @torch.no_grad()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode in every world; with a seed, bit for bit the same one. Unknown options are ignored."""
        if options is not None and "reset_mask" in options:
            raise ValueError("reset_mask is not for this environment: worlds start anew by themselves")
        seed = _whole_number(seed)
        super().reset(seed=seed)
        observation, _ = self.simulation.reset(seed)
        return self._handed_out(observation), {}

    @torch.no_grad()
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Act in every world; actions beyond [-1, 1] are clamped."""
        action = _action_tensor(actions, self.simulation)
        observation, reward, terminated, truncated, info = self.simulation.step(action)
        out = self._handed_out
        step_info = {
            "reward_terms": {name: out(term) for name, term in info["reward_terms"].items()},
            "fault": out(info["fault"]),
        }
        infos = _laid_out({**step_info, "faults": out(info["faults"])}, out(torch.ones_like(terminated)))
        ended = out(terminated | truncated)
        if self.arrays == "torch" or ended.any():
            final_obs = out(info["final_obs"])
            infos["final_obs"] = final_obs if self.arrays == "torch" else _as_objects(final_obs, ended)
            infos["_final_obs"] = ended
            infos |= _laid_out({"final_info": step_info}, ended)
        return out(observation), out(reward), out(terminated), out(truncated), infos

    def render(self) -> tuple[Pixels, ...] | None:
        """With render_mode "rgb_array" a picture of every world, (height, width, 3); after an end, of the new start."""
        pictures = self._pictures.of(self.simulation)
        return None if pictures is None else tuple(pictures)

    def close_extras(self, **kwargs: Any) -> None:
        """Give OpenGL back."""
        self._pictures.close()

    def _handed_out(self, tensor: Tensor) -> Array:
        """A copy that its receiver may keep and write to."""
        return tensor.clone() if self.arrays == "torch" else tensor.to("cpu", copy=True).numpy()


class TrotEnv(gymnasium.Env[Rows, Rows]):
    """One world. After the end of an episode it waits for reset(), as gymnasium's single environments do.

    Without a seed in reset() starts differ from run to run, and between copies of the environment.
    """

    def __init__(
        self,
        task: str | type[Task[Any]] | Task[Any],
        device: str | torch.device = "cpu",
        stochastic_start: bool = True,
        randomize: Randomize | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 360,
    ) -> None:
        self.render_mode, self._pictures = render_mode, _Pictures(render_mode, width, height)
        seed = int(self.np_random.integers(2**63))
        self.simulation = make_env(task, 1, device, seed, stochastic_start=stochastic_start, randomize=randomize)
        """The world itself, for what gymnasium has no word for."""
        self.observation_space, self.action_space = _spaces(self.simulation)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": round(1 / self.simulation.task.control_dt),
        }
        self._in_episode = False

    @torch.no_grad()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Rows, dict[str, Any]]:
        """Begin a new episode; with a seed, bit for bit the same one. Options are ignored."""
        seed = _whole_number(seed)
        super().reset(seed=seed)
        observation, _ = self.simulation.reset(seed)
        self._in_episode = True
        return _only_row(observation), {}

    @torch.no_grad()
    def step(self, action: Rows) -> tuple[Rows, float, bool, bool, dict[str, Any]]:
        """Act; numbers beyond [-1, 1] are clamped. The observation that ends an episode is that episode's last."""
        if not self._in_episode:
            raise gymnasium.error.ResetNeeded("the episode has ended, or none has begun: call reset() first")
        batch = _action_tensor(action, self.simulation).unsqueeze(0)
        _, reward, terminated, truncated, info = self.simulation.step(batch)
        self._in_episode = not (terminated | truncated).item()
        step_info = {
            "reward_terms": {name: term.item() for name, term in info["reward_terms"].items()},
            "fault": bool(info["fault"]),
        }
        return _only_row(info["final_obs"]), reward.item(), bool(terminated), bool(truncated), step_info

    def render(self) -> Any:
        """With render_mode "rgb_array" a picture, (height, width, 3); after an episode's end, of the next start."""
        pictures = self._pictures.of(self.simulation)
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Give OpenGL back."""
        self._pictures.close()


class _Pictures:
    """What render() needs, made when it is first called: OpenGL is not everywhere."""

    def __init__(self, render_mode: str | None, width: int, height: int) -> None:
        if render_mode not in (None, *RENDER_MODES):
            modes = " or ".join(repr(mode) for mode in RENDER_MODES)
            raise ValueError(f"render_mode must be None or {modes}, not {render_mode!r}")
        self._size = (width, height)
        self._camera: Camera | None = None
        self._wanted = render_mode is not None

    def of(self, simulation: Env) -> list[Pixels] | None:
        """A picture of every world; None where no mode was asked for."""
        if not self._wanted:
            return None
        if self._camera is None:
            module, name = CAMERA
            self._camera = getattr(importlib.import_module(module), name)(simulation, *self._size)
        camera: Camera = self._camera
        return [camera.picture(world) for world in range(simulation.num_worlds)]

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
            self._camera = None


def _spaces(simulation: Env) -> tuple[Box[Any], Box[Any]]:
    """What one world sees and does."""
    seen = Box(-np.inf, np.inf, (simulation.num_observations,), np.float32)
    return seen, Box(-1, 1, (simulation.num_actions,), np.float32)


def _whole_number(seed: Any) -> int | None:
    """NumPy's whole numbers are seeds too; a list of them is not, because all worlds draw from one stream."""
    try:
        return None if seed is None else operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be one whole number for all worlds, not {seed!r}") from None


def _action_tensor(action: Array, simulation: Env) -> Tensor:
    # A copy, because PyTorch warns of arrays that it may not write to.
    tensor = action if isinstance(action, Tensor) else torch.from_numpy(np.array(action, dtype=np.float32))
    return tensor.to(simulation.device, simulation.dtype)


def _only_row(batch: Tensor) -> Rows:
    return batch[0].to("cpu", copy=True).numpy()


def _laid_out(info: dict[str, Any], mask: Array) -> dict[str, Any]:
    """As gymnasium lays out infos: beside each name the mask `_name` of worlds that have it, and 0 in the others."""
    laid_out = {}
    for name, value in info.items():
        laid_out[name] = _laid_out(value, mask) if isinstance(value, dict) else value * mask
        laid_out[f"_{name}"] = mask
    return laid_out


def _as_objects(rows: Rows, mask: NDArray[np.bool_]) -> NDArray[np.object_]:
    """As gymnasium lays out final_obs: an array of rows, None in the worlds that have none."""
    objects = np.full(len(rows), None, dtype=object)
    for world in np.flatnonzero(mask):
        objects[world] = rows[world]
    return objects


def _register() -> None:
    for task, home in TASKS.items():
        env_id = f"trot/{home.partition(':')[2]}-v0"
        if env_id not in gymnasium.registry:
            # No max_episode_steps: an Env has its task's clock, and a second one around it could only disagree.
            gymnasium.register(
                env_id,
                entry_point="trot.envs.gymnasium:TrotEnv",
                vector_entry_point="trot.envs.gymnasium:TrotVectorEnv",
                kwargs={"task": task},
            )


_register()
