"""The runs of a comparison before any is trained: what each is to be, and mistakes told beforehand."""

from pathlib import Path

import pytest

from trot.cli import main
from trot.compare.plan import Variant, algorithm_variants, make_members, setting_variants
from trot.compare.together import trainings
from trot.runs.folder import RunFolder

REINFORCE = Path(__file__).parents[2] / "examples" / "own_algorithm" / "reinforce.py"


def members(folder, algos=("shac", "bptt"), seeds=(0, 1), minutes=None, options=(), changes=(), task="cartpole"):
    return make_members(task, algorithm_variants(algos), seeds, folder, "cpu", minutes, options, changes)


def make_run(member, **changes):
    """As a child that was stopped would leave it; changes of its settings, and its seconds of training."""
    asked = member.asked
    own = {**vars(asked.settings), **changes}
    content = {"task": asked.task, "algo": asked.algo, "seed": asked.seed, "device": "cpu", "settings": own}
    content |= {"iterations": own["iterations"], "schedule": vars(asked.schedule), "randomize": vars(asked.randomize)}
    return RunFolder.create(member.folder.parent, member.name, content)


def test_all_algorithms_take_turns_so_that_a_part_of_the_runs_tells_something(tmp_path):
    names = [member.name for member in members(tmp_path, seeds=(3, 1, 3), algos=("shac", "bptt", "shac"))]
    assert names == ["cartpole-shac-3", "cartpole-bptt-3", "cartpole-shac-1", "cartpole-bptt-1"]


def test_an_own_algorithm_and_an_own_task_have_short_names(tmp_path):
    task = f"{REINFORCE.parents[1] / 'walker' / 'my_task.py'}:Walker"
    (member,) = members(tmp_path, algos=(f"{REINFORCE}:REINFORCE",), seeds=(0,), task=task)
    assert member.name == "Walker-reinforce-0" and member.asked.task == task


def test_seeds_share_a_process_where_the_algorithm_can_do_that(tmp_path):
    runs = members(tmp_path, algos=("shac", "ppo"), seeds=(0, 1, 2), minutes=2)
    alone = trainings(runs, together=False)
    assert [one.members for one in alone] == [(run,) for run in runs]
    assert alone[0].command()[-4:] == ["--seed", "0", "--name", "cartpole-shac-0"]
    make_run(runs[2])  # the second seed of SHAC
    found = {one.name: one for one in trainings(runs, together=True)}
    assert list(found) == [
        "cartpole-shac-0_2", "cartpole-ppo-0", "cartpole-shac-1", "cartpole-ppo-1", "cartpole-ppo-2",
    ]  # fmt: skip
    shac, begun = found["cartpole-shac-0_2"], found["cartpole-shac-1"]
    assert shac.command()[-5:] == ["--seeds", "0", "2", "--name", "cartpole-shac"] and "--seed" not in shac.command()
    assert begun.command() == ["resume", str(runs[2].folder), "--device", "cpu", "--minutes", "2"]
    make_run(runs[0])
    both = trainings([runs[0], runs[2]], together=True)[0].command()
    assert both == ["resume", str(runs[0].folder), str(runs[2].folder), "--device", "cpu", "--minutes", "2"]


def test_settings_reach_all_or_the_one_that_is_named(tmp_path):
    changes = ["num_worlds=8", "bptt.num-worlds=16", "shac.actor_hidden=5,6", "lr_decay=false", "randomize.mass=0.5,2"]
    shac, bptt = members(tmp_path, seeds=(4,), options=["--iterations", "7"], changes=[*changes, "bptt.iterations=9"])
    assert (shac.asked.settings.num_worlds, bptt.asked.settings.num_worlds) == (8, 16)
    assert shac.asked.settings.actor_hidden == (5, 6) and bptt.asked.settings.actor_hidden == (64, 64)
    assert (shac.asked.settings.iterations, bptt.asked.settings.iterations) == (7, 9)
    assert not shac.asked.settings.lr_decay and shac.asked.randomize.mass == bptt.asked.randomize.mass == (0.5, 2)
    assert shac.asked.seed == bptt.asked.seed == 4


def test_a_run_is_begun_or_gone_on_with_or_finished(tmp_path):
    (member,) = members(tmp_path, algos=("shac",), seeds=(0,), minutes=2.0, options=["--iterations", "10"])
    assert member.command()[:2] == ["train", "cartpole"] and member.share_done() == 0
    run = make_run(member)
    assert member.command() == ["resume", str(member.folder), "--device", "cpu", "--minutes", "2.0"]
    run.append_metrics([{"iteration": 1, "seconds": 30.0}])
    assert member.share_done() == 0.25 and not member.finished, "a quarter of its time, a tenth of its iterations"
    run.append_metrics([{"iteration": 8, "seconds": 40.0}])
    assert member.share_done() == 0.8
    run.append_metrics([{"iteration": 9, "seconds": 121.0}])
    assert member.finished
    (longer,) = members(tmp_path, algos=("shac",), seeds=(0,), minutes=4.0, options=["--iterations", "10"])
    assert not longer.finished and longer.command()[-1] == "4.0"
    (endless,) = members(tmp_path, algos=("shac",), seeds=(0,), options=["--iterations", "10"])
    assert not endless.finished and endless.command()[-1] == "inf"
    run.append_metrics([{"iteration": 10, "seconds": 122.0}])
    assert longer.finished and endless.finished
    for one in (member, longer, endless):
        one.check()


@pytest.mark.parametrize(
    ("changes", "options", "differ"),
    [
        (["num_worlds=8"], [], "num_worlds was 64 and is 8"),
        ([], ["--iterations", "3"], "iterations was 1000 and is 3"),
        (["actor_hidden=7"], [], "actor_hidden was [128, 128] and is [7]"),
        (["stop_at=-600"], [], "stop_at was None and is -600.0"),
        ([], ["--preset", "general"], "iterations was 1000 and is 2000"),
    ],
)
def test_a_run_with_other_settings_is_not_taken_for_this_one(tmp_path, changes, options, differ):
    (before,) = members(tmp_path, algos=("shac",), seeds=(0,))
    make_run(before)
    (now,) = members(tmp_path, algos=("shac",), seeds=(0,), changes=changes, options=options)
    with pytest.raises(ValueError) as refused:
        now.check()
    assert f"'{now.folder}' was trained with other settings: " in str(refused.value)
    assert differ in str(refused.value) and "another --name" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algos", "shac", "bpt"], "there is no algorithm 'bpt'. Did you mean bptt?"),
        (["--algos", "shac", "--set", "wolds=3"], "perhaps you meant --worlds"),
        (["--algos", "shac", "--set", "num_worlds"], "--set takes NAME=VALUE or ALGO.NAME=VALUE, not 'num_worlds'"),
        (["--algos", "shac", "--set", "seed=3"], "--set seed=3: a comparison gives its runs their seed itself"),
        (["--algos", "shac", "--preset", "tunde"], "preset must be one of tuned, paper, general, gpu, not 'tunde'"),
        (["--algos", "shac", "--minutes", "0"], "minutes must be above 0 and finite, not 0"),
        (["--algos", "shac", "--parallel", "0"], "--parallel must be at least 1, not 0"),
        (["--algos", "shac", "--device", "meta"], "device must be cpu or cuda, not meta"),
        (["--algos", "shac", "--variants", "long"], "--variants takes NAME:SETTING=VALUE, NAME of letters,"),
        (["--algos", "shac", "--variants", "a/b:gamma=0.9"], "NAME of letters, digits, - and _, not 'a/b:gamma=0.9'"),
        (["--algos", "shac", "--variants", "a:gamma"], "--variants a:gamma: 'gamma' is not SETTING=VALUE"),
        (["--algos", "shac", "--variants", "a:seed=1"], "a comparison gives its runs their seed itself"),
        (["--algos", "shac", "--variants", "shac:gamma=0.9"], "two of those compared have the name 'shac'"),
        (["--algos", "shac", "--variants", "a:gama=0.9"], "perhaps you meant --gamma"),
        (["--algos"], "name one algorithm or more"),
        (["--algos", "shac", "--seeds"], "name one seed or more"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_trained(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "cartpole", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trot compare: ") and message in line
    assert list(tmp_path.iterdir()) == []


def test_two_algorithms_of_one_name_are_refused(tmp_path):
    other = tmp_path / "other.py"
    other.write_text("from trot.learn.algorithms.shac import SHAC\n")
    with pytest.raises(ValueError, match="two of those compared have the name 'shac'"):
        members(tmp_path, algos=("shac", f"{other}:SHAC"))


def test_variants_of_one_algorithm_differ_in_their_options_alone(tmp_path):
    variants = [Variant("short", "Short windows", "shac", ("--horizon", "4")), Variant("plain", "Plain", "shac")]
    given = ("cartpole", variants, (0,), tmp_path, "cpu", None, ["--iterations", "7"])
    short, plain = make_members(*given, ["num_worlds=8", "short.gamma=0.5"])
    assert (short.name, plain.name) == ("cartpole-short-0", "cartpole-plain-0")
    assert (short.asked.settings.horizon, plain.asked.settings.horizon) == (4, 64)
    assert (short.asked.settings.gamma, plain.asked.settings.gamma) == (0.5, 0.998)
    assert short.asked.settings.num_worlds == plain.asked.settings.num_worlds == 8
    with pytest.raises(ValueError, match=r"--set plain\.horizon=8: horizon is what is compared here"):
        make_members(*given, ["plain.horizon=8"])


def test_variants_say_otherwise_where_all_are_told_something(tmp_path):
    texts = ["long:gamma=0.995", "wide:actor_hidden=5,6:critic_lr=2e-3:lr_decay=false"]
    variants = [*algorithm_variants(["shac", "ppo"]), *setting_variants(texts, "shac")]
    changes = ["gamma=0.9", "long.critic_passes=3", "shac.lr_decay=true"]
    shac, ppo, long, wide = make_members("cartpole", variants, (0,), tmp_path, "cpu", None, [], changes[:2])
    assert [one.name for one in (shac, ppo, long, wide)] == [
        "cartpole-shac-0", "cartpole-ppo-0", "cartpole-long-0", "cartpole-wide-0",
    ]  # fmt: skip
    assert [one.asked.algo for one in (shac, ppo, long, wide)] == ["shac", "ppo", "shac", "shac"]
    assert [one.asked.settings.gamma for one in (shac, ppo, long, wide)] == [0.9, 0.9, 0.995, 0.9]
    assert (long.asked.settings.critic_passes, wide.asked.settings.critic_passes) == (3, 16)
    assert wide.asked.settings.actor_hidden == (5, 6) and wide.asked.settings.critic_lr == 2e-3
    assert shac.asked.settings.lr_decay and not wide.asked.settings.lr_decay
    few = setting_variants(["few:worlds=4"], "shac")
    (member,) = make_members("cartpole", few, (0,), tmp_path, "cpu", None, [], [])
    assert member.asked.settings.num_worlds == 4
    with pytest.raises(ValueError, match="num-worlds is what is compared here"):
        make_members("cartpole", few, (0,), tmp_path, "cpu", None, [], ["num_worlds=8"])
    with pytest.raises(ValueError, match=r"--set shac\.lr_decay=true: lr-decay is what is compared here"):
        make_members("cartpole", variants, (0,), tmp_path, "cpu", None, [], changes)
