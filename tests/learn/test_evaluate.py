"""Agents from disk, and episodes that count once."""

import docking
import numpy as np
import pytest
import torch
from made_run import make_agent, make_run, rewrite_settings

from trot import cli
from trot.envs.registry import make_env
from trot.envs.start import Start
from trot.envs.tasks.hopper import Hopper
from trot.learn import evaluate as evaluate_module
from trot.learn.agent import AgentDescription, load_agent
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.eval_command import eval_command, summary
from trot.learn.evaluate import Evaluation, evaluate
from trot.learn.play import agent_acts, play
from trot.learn.saved_settings import settings_from
from trot.runs.folder import RunFolder


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(tmp_path):
    """One to be spoilt."""
    return make_run(tmp_path)[0]


def hopper_agent():
    return make_agent(11, 3)


@pytest.mark.parametrize("kind", ["gaussian", "state_dependent", "deterministic"])
@pytest.mark.parametrize("normalize", [True, False])
def test_an_agent_comes_back_from_disk(tmp_path, kind, normalize):
    run, agent = make_run(tmp_path, "hopper", policy=kind, normalize_observations=normalize)
    loaded = load_agent(RunFolder.open(run.path))
    observation, noise = torch.randn(2, 5, 11), torch.randn(2, 5, 3)
    assert loaded(observation).equal(agent(observation))
    assert loaded(observation, noise).equal(agent(observation, noise))
    assert loaded(observation, noise).equal(loaded(observation)) == (kind == "deterministic")
    seen = agent.normalizer(observation) if normalize else observation
    assert agent(observation).equal(torch.tanh(agent.policy.distribution(seen)[0]))
    assert not load_agent(run, "last")(observation).equal(loaded(observation))
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_lists_become_tuples_again(cartpole):
    assert load_agent(cartpole[0]).description.hidden == (16, 8)
    assert settings_from(cartpole[0].settings["settings"], ShacSettings, "SHAC").actor_hidden == (16, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("gamma"), "SHAC lack gamma"),
        (lambda s: s.update(colour=1), "SHAC do not have colour"),
        (lambda s: s.update(policy="clever"), "policy must be one of gaussian, .* not 'clever'"),
        (lambda s: s.update(gamma=2), "gamma must be between 0 and 1"),
        (lambda s: s.update(gamma="much"), "wrong kind"),
    ],
)
def test_settings_that_are_no_algorithms_are_named(cartpole, change, message):
    saved = dict(cartpole[0].settings["settings"])
    change(saved)
    with pytest.raises(ValueError, match=message):
        settings_from(saved, ShacSettings, "SHAC")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("agent"), "lacks 'agent'"),
        (lambda s: s["agent"].pop("num_actions"), "lack num_actions"),
        (lambda s: s["agent"].update(colour=1), "do not have colour"),
        (lambda s: s["agent"].update(kind="clever"), "kind must be one of gaussian, .* not 'clever'"),
        (lambda s: s["agent"].update(activation="sine"), "activation must be one of elu, relu, silu, not 'sine'"),
        (lambda s: s.update(agent=3), "must be an object"),
        (lambda s: s["agent"].update(hidden=[4, 4]), "does not fit the run's settings"),
        (lambda s: s["agent"].update(num_observations=6), "does not fit the run's settings"),
        (lambda s: s["agent"].update(num_observations="5"), "does not describe an agent"),
    ],
)
def test_settings_that_describe_no_agent_are_one_line(run, change, message):
    run = rewrite_settings(run, change)
    with pytest.raises(ValueError, match=message) as caught:
        load_agent(run)
    assert "\n" not in str(caught.value) and str(run.path) in str(caught.value)


@pytest.mark.parametrize("content", [{}, {"agent": 3}, {"learner": {}}])
def test_a_checkpoint_without_an_agent(run, content):
    run.save_checkpoint("best", content)
    with pytest.raises(ValueError, match=r"'best' of .* holds no agent"):
        load_agent(run)


def test_a_checkpoint_without_some_tensors(run):
    saved = load_agent(run).saved()
    del saved["policy.log_std"]
    run.save_checkpoint("best", {"agent": saved})
    with pytest.raises(ValueError, match="does not fit"):
        load_agent(run)


class TumblingHopper(Hopper):
    """Falls sooner or later, by its start, or runs out of time."""

    start = Start(joint_noise=0.3, velocity_noise=3.0)
    episode_length = 60


@torch.no_grad()
def test_only_the_first_episode_of_each_world_counts():
    agent, worlds = hopper_agent(), 24
    env = make_env(TumblingHopper, worlds, seed=4)
    observation, _ = env.reset()
    episodes, falls = [[(0.0, 0)] for _ in range(worlds)], 0
    while any(len(own) == 1 for own in episodes):
        observation, reward, terminated, truncated, info = env.step(agent(observation))
        assert not info["fault"].any()
        for world, own in enumerate(episodes):
            total, length = own[-1]
            own[-1] = (total + float(reward[world]), length + 1)
            if terminated[world] or truncated[world]:
                falls += len(own) == 1 and bool(terminated[world])
                own.append((0.0, 0))
    assert any(len(own) > 2 for own in episodes), "no world had a second episode that could be counted by mistake"
    assert 0 < falls < worlds

    result = evaluate(agent, TumblingHopper(), worlds, "cpu", 4, stochastic=False)
    assert result.returns == pytest.approx([own[0][0] for own in episodes], abs=1e-9)
    assert result.lengths == tuple(own[0][1] for own in episodes)
    assert (result.falls, result.faults) == (falls, 0)


def test_nothing_falls_in_cartpole(cartpole):
    result = evaluate(cartpole[1], "cartpole", 8)
    assert result.lengths == (240,) * 8
    assert (result.falls, result.faults) == (0, 0)
    assert all(-1e5 < value < 0 for value in result.returns)


def test_worlds_that_blow_up_are_faults_and_not_falls():
    agent = hopper_agent()
    with torch.no_grad():
        agent.normalizer.mean.fill_(torch.nan)
    result = evaluate(agent, "hopper", 6)
    assert (result.returns, result.lengths, result.falls, result.faults) == ((0.0,) * 6, (1,) * 6, 0, 6)


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_seed_decides(stochastic):
    agent = hopper_agent()
    first, again, other = (evaluate(agent, "hopper", 6, "cpu", seed, stochastic) for seed in (1, 1, 2))
    assert first == again
    assert first.returns != other.returns


def test_noise_changes_the_episodes_but_not_their_starts():
    agent = hopper_agent()
    plain, noisy = (evaluate(agent, "hopper", 6, stochastic=stochastic) for stochastic in (False, True))
    assert plain.returns != noisy.returns
    with torch.no_grad():
        agent.policy.log_std.fill_(-30)
    almost_plain = evaluate(agent, "hopper", 6, stochastic=True)
    assert almost_plain.lengths == plain.lengths
    assert almost_plain.returns == pytest.approx(plain.returns, abs=1e-3)


def test_numbers_of_an_evaluation():
    result = Evaluation((1.0, 2.0, 6.0), (10, 20, 60), falls=1, faults=0)
    assert (result.mean_return, result.min_return, result.max_return, result.mean_length) == (3, 1, 6, 30)
    assert result.std_return == pytest.approx(7**0.5)
    assert Evaluation((5.0,), (3,), 0, 0).std_return == 0


def test_nothing_outside_changes():
    agent = make_agent(5, 1)
    before = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        evaluate(agent, "cartpole", 2, stochastic=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.random.get_rng_state().equal(before)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in agent.parameters())


def test_networks_play_on_one_thread():
    seen = []
    agent = make_agent(5, 1)
    agent.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        evaluate(agent, "cartpole", 2)
    finally:
        torch.set_num_threads(threads)
    assert seen == [1] * 240


def test_an_agent_of_another_task_is_refused(cartpole):
    with pytest.raises(ValueError, match="5 observations and 1 actions, but the task 'hopper' has 11 and 3"):
        evaluate(cartpole[1], "hopper", 2)
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        evaluate(cartpole[1], "cartpole", 0)


def test_the_command_prints_both(cartpole, capsys):
    run, agent = cartpole
    assert eval_command([str(run.path), "--episodes", "4", "--device", "cpu", "--seed", "5"]) == 0
    printed = capsys.readouterr()
    head, columns, deterministic, stochastic = printed.out.splitlines()
    assert "cartpole" in head and "best" in head and "4 episodes" in head
    assert columns.split() == ["return", "std", "min", "max", "length", "distance", "falls", "faults"]
    for line, noisy in ((deterministic, False), (stochastic, True)):
        result = evaluate(agent, "cartpole", 4, "cpu", 5, noisy)
        numbers = (result.mean_return, result.std_return, result.min_return, result.max_return, 240)
        numbers += (np.mean(result.distances),)
        expected = [f"{number:.1f}" for number in numbers]
        assert line.split() == ["stochastic" if noisy else "deterministic", *expected, "0", "0"]
    assert printed.err == ""


def test_the_command_plays_in_mujoco_beside(cartpole, capsys):
    run, agent = cartpole
    assert eval_command([str(run.path), "--episodes", "4", "--device", "cpu", "--seed", "5", "--in", "mujoco"]) == 0
    *_, deterministic, stochastic = capsys.readouterr().out.splitlines()
    result = evaluate(agent, "cartpole", 4, "cpu", 5, simulator="mujoco")
    assert deterministic.startswith("deterministic, MuJoCo ") and stochastic.startswith("stochastic, MuJoCo ")
    assert deterministic.split()[2] == f"{result.mean_return:.1f}"


def test_of_several_runs_the_command_tells_the_mean_and_how_sure_it_is(cartpole, tmp_path, capsys):
    others = [make_run(tmp_path / str(width), actor_hidden=(width,))[0] for width in (4, 6)]
    paths = [str(run.path) for run in (cartpole[0], *others)]
    options = ["--episodes", "3", "--device", "cpu", "--seed", "5", "--actions", "deterministic"]
    assert eval_command([*paths, *options]) == 0
    head, _, *lines, title, told = capsys.readouterr().out.splitlines()
    assert head == "cartpole: checkpoint best of 3 runs of shac, 3 episodes each, on cpu"
    means = [evaluate(load_agent(RunFolder.open(path)), "cartpole", 3, "cpu", 5).mean_return for path in paths]
    # All three folders have the same name.
    assert [line.split(", deterministic")[0] for line in lines] == paths
    assert [line.split()[2] for line in lines] == [f"{mean:.1f}" for mean in means]
    # With two degrees of freedom 95 % of Student's distribution lie within 4.30265.
    mean, deviation = np.mean(means), np.std(means, ddof=1)
    half = 4.30265 * deviation / np.sqrt(3)
    assert title == "Mean over 3 runs"
    assert told == (
        f"deterministic: return {mean:.1f}, standard deviation {deviation:.1f}, 95 % interval of the mean "
        f"{mean - half:.1f} to {mean + half:.1f}, lowest {min(means):.1f}, highest {max(means):.1f}"
    )


def test_returns_above_0_have_a_share_and_figures_a_range():
    runs = [Evaluation((returns,), (9,), 0, 0, (0.0,), {"error": error}) for returns, error in ((90, 0.1), (110, 0.3))]
    # One degree of freedom: 12.7062 times the standard error of 10.
    assert summary(runs) == (
        "return 100.0, standard deviation 14.1, 95 % interval of the mean -27.1 to 227.1, lowest 90.0, 90 % of the "
        "mean, highest 110.0; error 0.200, 0.100 to 0.300"
    ).replace("90 % of", "90% of")


def test_runs_of_other_tasks_and_algorithms_have_tables_of_their_own(cartpole, tmp_path, capsys):
    hopper = make_run(tmp_path, "hopper")[0].path
    options = ["--episodes", "1", "--device", "cpu", "--actions", "stochastic"]
    assert eval_command([str(cartpole[0].path), str(hopper), *options]) == 0
    first, _, line, second, _, other = capsys.readouterr().out.splitlines()
    assert first.startswith("cartpole: checkpoint best of ") and second.startswith("hopper: checkpoint best of ")
    assert line.startswith("stochastic ") and other.startswith("stochastic ")


def test_figures_of_a_task_are_means_over_all_steps():
    """The sled's speed, told by the task, against the sum over a rollout by hand."""

    class Told(docking.Docking):
        def figures(self, measured):
            return {"speed": measured.joint_qd.abs()}

    task = Told()
    agent = AgentDescription(2, 1, (), kind="deterministic", normalize=False).build()
    result = evaluate(agent, task, 3, seed=2)
    env, speeds = make_env(task, 3, seed=2), []
    for played in play(env, agent_acts(agent, env, False, 2), docking.STEPS):
        speeds.append(played.info["final_state"].joint_qd.abs())
    assert result.figures == {"speed": pytest.approx(torch.cat(speeds).double().mean().item())}
    starts = make_env(task, 3, seed=2)
    starts.reset()
    went = played.info["final_state"].joint_q[:, 0] - starts.state.joint_q[:, 0]
    assert result.distances == pytest.approx(went.tolist(), abs=1e-6)


def test_long_ones_say_how_far_they_are(cartpole, capsys, monkeypatch):
    monkeypatch.setattr(evaluate_module, "SECONDS_BETWEEN_LINES", 0.0)
    evaluate(cartpole[1], "cartpole", 3)
    assert capsys.readouterr().err == ""
    evaluate(cartpole[1], "cartpole", 3, show_progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 239 and lines[7] == "step 8 of 240: 0 of 3 episodes ended"


def test_mistakes_on_the_command_line_are_one_line(cartpole, tmp_path, capsys):
    for arguments, message in (
        ([str(tmp_path / "nowhere")], "no such run folder"),
        ([str(cartpole[0].path), "--checkpoint", "first"], "no checkpoint 'first'; it has: best, last"),
        ([], "name one run or more: trot eval RUN..."),
    ):
        assert cli.main(["eval", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


@pytest.mark.gpu
def test_on_cuda_as_on_the_cpu(cartpole):
    agent = cartpole[1]
    result = evaluate(agent, "cartpole", 64, "cuda", stochastic=True)
    assert result.lengths == (240,) * 64
    assert result == evaluate(agent, "cartpole", 64, "cuda", stochastic=True)
    assert not next(agent.parameters()).is_cuda
    # Other random numbers, so the same only on average.
    there, here = (evaluate(agent, "cartpole", 1024, device).mean_return for device in ("cuda", "cpu"))
    assert there == pytest.approx(here, rel=0.1)
