"""The Gymnasium environments against gymnasium's own checker, its own vectorisation and the plain trot Env."""

import importlib
import itertools
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

import trot
from trot.envs.gymnasium import TrotEnv, TrotVectorEnv

IDS = (
    "trot/CartPole-v0",
    "trot/Hopper-v0",
    "trot/HalfCheetah-v0",
    "trot/Ant-v0",
    "trot/Humanoid-v0",
    "trot/MuscleHumanoid-v0",
    "trot/Quadruped-v0",
)

CARTPOLE_HORIZON = 240

# PyTorch may round one row of numbers differently than several.
ROUNDING = {"rtol": 1e-5, "atol": 1e-5}

ONLY_GYMNASIUM_IMPORTED = """
import gymnasium
envs = gymnasium.make_vec("trot.envs.gymnasium:trot/CartPole-v0", num_envs=2)
print(envs, envs.reset(seed=1)[0].shape)
"""


def some_actions(steps: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(-1, 1, (steps, *shape)).astype(np.float32)


@torch.no_grad()
def plain_run(task: str, actions: np.ndarray, seed: int) -> list[tuple]:
    """What trot.Env itself returns for these actions, (steps, worlds, width)."""
    env = trot.make_env(task, actions.shape[1])
    env.reset(seed)
    return [env.step(torch.from_numpy(action)) for action in actions]


def episodes_of(run: list[tuple]) -> list[tuple[int, float]]:
    """Length and return of every episode that ended, in the order they ended; several of one step by world."""
    episodes = []
    worlds = len(run[0][1])
    length, total = [0] * worlds, [0.0] * worlds
    for _, reward, terminated, truncated, _ in run:
        for world in range(worlds):
            length[world] += 1
            total[world] += reward[world].item()
            if terminated[world] or truncated[world]:
                episodes.append((length[world], total[world]))
                length[world], total[world] = 0, 0.0
    return episodes


@pytest.mark.parametrize("env_id", IDS)
def test_the_single_environment_passes_gymnasiums_checker(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Observations are positions and velocities, which nothing bounds; gymnasium's own robots have such spaces.
        warnings.filterwarnings("ignore", message=r".*Box observation space m\w+ value is -?infinity")
        check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", IDS)
def test_the_vector_environment_keeps_to_its_spaces(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gymnasium.make_vec(env_id, num_envs=3)
        assert isinstance(envs, TrotVectorEnv)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert envs.single_observation_space == gymnasium.make(env_id).observation_space
        assert envs.single_action_space == gymnasium.make(env_id).action_space
        envs.action_space.seed(3)
        observation, infos = envs.reset(seed=3)
        assert observation in envs.observation_space and infos == {}
        for _ in range(3):
            observation, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())
            assert observation in envs.observation_space and observation.dtype == np.float32
            assert reward.shape == terminated.shape == truncated.shape == (3,)
            assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, np.bool_, np.bool_)
            terms = [term for name, term in infos["reward_terms"].items() if not name.startswith("_")]
            np.testing.assert_allclose(sum(terms), reward, rtol=1e-4, atol=1e-4)
        envs.close()
        envs.close()


def test_worlds_and_infos_are_those_of_gymnasiums_own_vectorisation() -> None:
    # Without noise on the starts both play the same episodes; a hopper that twitches falls soon.
    many = TrotVectorEnv("hopper", 3, stochastic_start=False)
    single = [lambda: TrotEnv("hopper", stochastic_start=False)] * 3
    sync = SyncVectorEnv(single, autoreset_mode=AutoresetMode.SAME_STEP)
    np.testing.assert_array_equal(many.reset()[0], sync.reset()[0])
    steps_with_an_end = 0
    for action in some_actions(150, 3, 3):
        *ours, our_infos = many.step(action)
        *theirs, their_infos = sync.step(action)
        for mine, reference in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, reference, **ROUNDING)
        assert_same(finals(our_infos), finals(their_infos), worlds=np.full(3, True))
        steps_with_an_end += "final_info" in their_infos
        # gymnasium leaves out the worlds that ended, where these are in final_info; ours are there for all worlds.
        ended = ours[2] | ours[3]
        for name in ("reward_terms", "fault"):
            assert our_infos[f"_{name}"].all()
            if not ended.all():
                assert_same(our_infos[name], their_infos[name], worlds=~ended)
    assert steps_with_an_end >= 3


def finals(infos: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in infos.items() if "final" in name}


def assert_same(ours: Any, theirs: Any, worlds: np.ndarray) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_same(ours[name], theirs[name], worlds)
    elif theirs.dtype == object:
        for mine, reference in zip(ours, theirs, strict=True):
            assert (mine is None) == (reference is None)
            if mine is not None:
                np.testing.assert_allclose(mine, reference, **ROUNDING)
    else:
        np.testing.assert_allclose(ours[worlds], theirs[worlds], **ROUNDING)


def test_final_obs_at_the_time_limit_is_the_old_episodes_last() -> None:
    actions = some_actions(CARTPOLE_HORIZON, 3, 1)
    envs = gymnasium.make_vec("trot/CartPole-v0", num_envs=3)
    envs.reset(seed=4)
    for action in actions[:-1]:
        *_, infos = envs.step(action)
        assert "final_obs" not in infos
    observation, _, terminated, truncated, infos = envs.step(actions[-1])
    reference, _, _, _, plain = plain_run("cartpole", actions, seed=4)[-1]
    assert truncated.all() and not terminated.any()
    np.testing.assert_array_equal(np.stack(infos["final_obs"]), plain["final_obs"].numpy())
    np.testing.assert_array_equal(observation, reference.numpy())
    assert infos["_final_obs"].all() and not np.array_equal(np.stack(infos["final_obs"]), observation)


@pytest.mark.parametrize(("task", "steps", "width"), [("cartpole", 2 * CARTPOLE_HORIZON, 1), ("hopper", 250, 3)])
def test_episode_statistics_are_right(task: str, steps: int, width: int) -> None:
    actions = some_actions(steps, 4, width)
    envs = RecordEpisodeStatistics(TrotVectorEnv(task, 4))
    envs.reset(seed=6)
    for action in actions:
        envs.step(action)
    expected = episodes_of(plain_run(task, actions, seed=6))
    assert len(expected) >= 8
    assert list(envs.length_queue) == [length for length, _ in expected]
    np.testing.assert_allclose(list(envs.return_queue), [total for _, total in expected], rtol=1e-6)
    assert (task == "cartpole") == ({length for length, _ in expected} == {CARTPOLE_HORIZON})


def test_infos_can_be_split_by_world() -> None:
    envs = DictInfoToList(TrotVectorEnv("hopper", 2))
    envs.reset(seed=1)
    # A world whose action is not a number blows up: a fault, and the end of its episode.
    action = np.array([[0, 0, 0], [np.nan, 0, 0]], dtype=np.float32)
    *_, (sound, blown_up) = envs.step(action)
    assert not sound["fault"] and sound["faults"] == 0 and "final_info" not in sound
    assert blown_up["fault"] and blown_up["faults"] == 1 and blown_up["final_info"]["fault"]
    assert {"forward", "height", "upright", "effort"} == blown_up["final_info"]["reward_terms"].keys()
    *_, (_, blown_up) = envs.step(np.zeros((2, 3)))
    assert not blown_up["fault"] and blown_up["faults"] == 1


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_what_was_handed_out_is_the_receivers_to_keep_and_to_write_to(arrays: str) -> None:
    envs, twin = (TrotVectorEnv("cartpole", 2, arrays=arrays) for _ in range(2))
    kept = [envs.reset(seed=1)[0]]
    inside = [*envs.simulation.worlds.tensors().values()]
    twin.reset(seed=1)
    for action in some_actions(4, 2, 1):
        *returned, infos = envs.step(action)
        *reference, reference_infos = twin.step(action)
        for array, same in zip([*returned, infos["faults"]], [*reference, reference_infos["faults"]], strict=True):
            np.testing.assert_array_equal(array, same)
            array[:] = 1
            kept.append(array)
        inside += envs.simulation.worlds.tensors().values()
    assert not any(np.shares_memory(first, second) for first, second in itertools.combinations(kept, 2))
    assert not any(np.shares_memory(array, tensor) for array in kept for tensor in inside)


def test_tensors_stay_tensors_without_gradients() -> None:
    numpy_envs = gymnasium.make_vec("trot/Hopper-v0", num_envs=2)
    envs = gymnasium.make_vec("trot/Hopper-v0", num_envs=2, arrays="torch")
    numpy_envs.reset(seed=2)
    assert torch.is_tensor(envs.reset(seed=2)[0])
    for action in some_actions(120, 2, 3):
        *reference, reference_infos = numpy_envs.step(action)
        *returned, infos = envs.step(torch.from_numpy(action).requires_grad_())
        for tensor, array in zip(returned, reference, strict=True):
            assert torch.is_tensor(tensor) and not tensor.requires_grad
            np.testing.assert_array_equal(tensor.numpy(), array)
        ended = infos["_final_obs"].numpy()
        assert ended.any() == ("final_obs" in reference_infos)
        for world in np.flatnonzero(ended):
            np.testing.assert_array_equal(infos["final_obs"][world].numpy(), reference_infos["final_obs"][world])
        forward = infos["final_info"]["reward_terms"]["forward"]
        assert (forward.numpy()[~ended] == 0).all() and forward[ended].shape == (ended.sum(),)


@pytest.mark.gpu
def test_on_a_gpu_tensors_stay_there_and_arrays_come_back() -> None:
    envs = TrotVectorEnv("ant", 4, device="cuda", arrays="torch")
    observation, _ = envs.reset(seed=2)
    *returned, infos = envs.step(torch.zeros(4, 8, device="cuda"))
    tensors = [observation, *returned, infos["final_obs"], infos["faults"], infos["_final_info"]]
    assert all(tensor.is_cuda for tensor in tensors)
    in_numpy = TrotVectorEnv("ant", 4, device="cuda")
    np.testing.assert_array_equal(in_numpy.reset(seed=2)[0], observation.cpu().numpy())
    np.testing.assert_array_equal(in_numpy.step(np.zeros((4, 8)))[0], returned[0].cpu().numpy())


@pytest.mark.gpu
def test_with_tensors_a_step_never_waits_for_the_gpu() -> None:
    envs = TrotVectorEnv("ant", 4, device="cuda", arrays="torch")
    envs.reset(seed=2)
    action = torch.zeros(4, 8, device="cuda")
    # The first step copies constants to the device.
    envs.step(action)
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        envs.step(action)
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@pytest.mark.parametrize("env_id", ["trot/CartPole-v0", "trot/Ant-v0"])
def test_a_seed_repeats_every_bit(env_id: str) -> None:
    envs = gymnasium.make_vec(env_id, num_envs=2)
    actions = some_actions(5, *envs.action_space.shape)
    runs = []
    for seed in (8, np.int64(8), 9):
        observation, _ = envs.reset(seed=seed)
        runs.append([observation, *(envs.step(action)[0] for action in actions)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_single_episode_ends_with_its_own_last_observation() -> None:
    actions = some_actions(CARTPOLE_HORIZON, 1, 1)
    env = gymnasium.make("trot/CartPole-v0")
    env.reset(seed=4)
    for (action,), (_, reward, *_, info) in zip(actions, plain_run("cartpole", actions, seed=4), strict=True):
        observation, our_reward, terminated, truncated, _ = env.step(action)
        assert our_reward == reward.item()
        np.testing.assert_array_equal(observation, info["final_obs"][0].numpy())
    assert truncated is True and terminated is False
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    env.reset()
    env.step(action)


def test_copies_of_the_single_environment_start_apart() -> None:
    envs = gymnasium.make_vec("trot/CartPole-v0", num_envs=2, vectorization_mode="sync")
    first, second = envs.reset()[0]
    assert not np.array_equal(first, second)


def test_options_reach_the_worlds() -> None:
    envs = gymnasium.make_vec(
        "trot/Ant-v0", num_envs=2, stochastic_start=False, randomize=trot.Randomize(mass=(0.5, 2))
    )
    first, second = envs.reset(seed=1)[0]
    np.testing.assert_array_equal(first, second)
    first, second = envs.step(np.zeros((2, 8)))[0]
    assert not np.array_equal(first, second)


def test_pictures_show_the_worlds_as_they_are() -> None:
    from trot.view.video.offscreen import NoOpenGL, open_context

    try:
        open_context(16, 16).free()
    except NoOpenGL as error:
        pytest.skip(str(error))
    env = TrotEnv("ant", render_mode="rgb_array", width=96, height=64)
    assert env.metadata["render_modes"] == ["rgb_array"] and env.metadata["render_fps"] == 60
    env.reset(seed=0)
    first = env.render().astype(int)
    assert first.shape == (64, 96, 3) and env.render().dtype == np.uint8 and first.std() > 10
    # To draw changes nothing; the renderer rounds a colour the other way now and then.
    assert np.abs(env.render().astype(int) - first).max() <= 1
    for _ in range(20):
        env.step(np.ones(8, np.float32))
    # The legs are elsewhere, and the robot still in the middle: its orange and blue against grey.
    later = env.render().astype(int)
    assert (np.abs(later - first) > 40).any(axis=2).sum() > 20
    rows, columns = np.nonzero(np.ptp(later, axis=2) > 60)
    assert abs(rows.mean() - 32) < 10 and abs(columns.mean() - 48) < 12
    env.close()
    assert TrotEnv("cartpole").render() is None

    envs = TrotVectorEnv("ant", 2, render_mode="rgb_array", width=96, height=64)
    envs.reset(seed=0)
    one, other = envs.render()
    assert one.shape == other.shape == (64, 96, 3) and not np.array_equal(one, other)
    envs.close()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="arrays must be 'numpy' or 'torch', not 'jax'"):
        TrotVectorEnv("cartpole", arrays="jax")
    for cls in (TrotEnv, TrotVectorEnv):
        with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array', not 'human'"):
            cls("cartpole", render_mode="human")
    envs = TrotVectorEnv("cartpole", 2)
    with pytest.raises(TypeError, match="one whole number for all worlds"):
        envs.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="start anew by themselves"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ValueError, match="action must be"):
        envs.reset()
        envs.step(np.zeros((3, 1)))


def test_the_id_alone_finds_the_module() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", ONLY_GYMNASIUM_IMPORTED], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "TrotVectorEnv(trot/CartPole-v0, num_envs=2) (2, 5)\n"


def test_importing_again_registers_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "trot.envs.gymnasium")
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module("trot.envs.gymnasium")
    assert gymnasium.registry == before
    assert {env_id for env_id in before if env_id.startswith("trot/")} == set(IDS)


def test_without_gymnasium_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "trot.envs.gymnasium")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r'pip install "trot\[gym\]"'):
        importlib.import_module("trot.envs.gymnasium")
