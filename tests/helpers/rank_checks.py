"""What two ranks do together, held against one process that does it all.

A program: it makes all checks, trains and resumes runs in a folder, prints what it found as JSON, and then trains until
somebody ends it.
"""

import io
import json
import sys
from dataclasses import replace

import torch
from alike import distance, same_bits
from small_shac import FALLS, RUNS_OUT_OF_TIME, SMALL, end_inside

import trot
from trot.cli import main
from trot.envs.rank_env import RankEnv
from trot.envs.ranks import ranks_on
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms import shac as shac_module

RANDOM = trot.Randomize(
    mass=(0.8, 1.2),
    friction=(0.5, 1.5),
    motor_strength=(0.9, 1.1),
    push_interval=0.1,
    push_speed=0.3,
    observation_noise=(0.01,),
    action_delay=(0, 2),
)
RUN = ["--num-worlds", "4", "--horizon", "16", "--save-every", "3", "--keep-every", "6", "--no-lr-decay"]
RUN += ["--actor-hidden", "8", "--critic-hidden", "8", "--critic-passes", "2", "--device", "cpu"]


def make(ranks, algo="shac", randomize=None, seed=3, **changes):
    """With two worlds on each rank; without ranks, with all four."""
    algorithm, task = find_algorithm(algo), make_task("hopper")
    settings = replace(algorithm.resolve("hopper"), **(SMALL | changes))
    given = {"dtype": torch.float64, "randomize": randomize, "seed": seed}
    if ranks is None:
        env = trot.Env(task, settings.num_worlds, **given)
    else:
        env = RankEnv(task, settings.num_worlds, ranks, **given)
    return algorithm.learner(env, settings, seed)


def columns(learner):
    return dict(zip(learner.all_columns(), learner.metrics.tolist(), strict=True))


def furthest(ours, alone):
    return max(distance(ours.state_dict(), alone.state_dict()), distance(ours.metrics, alone.metrics))


def ten_iterations(ranks, **options):
    """How far two ranks get from one process, over ten iterations in which episodes end on either rank."""
    ours, alone = make(ranks, **options), make(None, **options)
    found = [furthest(ours, alone)]
    ended = []
    for iteration in range(10):
        if iteration in (2, 6):
            # One falls on rank 0, another runs out of time on rank 1.
            end_inside(alone.env)
            ours.load_state_dict(alone.state_dict())
        for one in (ours, alone):
            one.iterate()
        if iteration in (2, 6):
            ended.append(alone.window.done[1:-1].any(dim=0).nonzero().squeeze(1).tolist())
        found.append(furthest(ours, alone))
    return {"distances": found, "ended": ended, "columns": columns(ours), "steps": int(ours.steps)}


def plain(ranks):
    return ten_iterations(ranks)


def random_physics(ranks):
    return ten_iterations(ranks, randomize=RANDOM, policy="state_dependent", critic_hidden=(8, 6))


def without_critic(ranks):
    return ten_iterations(ranks, algo="bptt", horizon=12)


def go_on(ranks):
    """Save, load into new learners, and go on: on as many ranks to the bit, and in one process to rounding."""
    ours = make(ranks)
    for _ in range(3):
        ours.iterate()
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, alone = make(ranks, seed=9), make(None, seed=9)
    again.load_state_dict(saved)
    alone.load_state_dict(saved)
    whole = distance(saved, alone.state_dict())
    for _ in range(3):
        for one in (ours, again, alone):
            one.iterate()
    return {
        "loaded": whole,
        "to the bit": same_bits(ours.state_dict(), again.state_dict()),
        "alone": distance(ours.state_dict(), alone.state_dict()),
    }


def bad_gradient(ranks):
    """The gradient fails on rank 1 alone; both stop, and the window is kept whole."""
    exact = shac_module.policy_loss
    ours = make(ranks)
    ours.iterate()
    before = ours.state_dict()
    if ranks.number == 1:
        shac_module.policy_loss = lambda *given: exact(*given) * float("nan")
    ours.iterate()
    shac_module.policy_loss = exact
    after = ours.state_dict()
    kept = all(before[name].equal(after[name]) for name in before if name.startswith(("agent.policy", "critic.")))
    start = before["_extra_state"]["env"]["worlds"]["joint_q"]
    return {
        "stopped": columns(ours)["stopped"],
        "weights are kept": kept,
        "window": after["bad_window.start_joint_q"].equal(start) and bool(after["bad_window.kept"]),
        "noise": list(after["bad_window.noise"].shape),
    }


def staggered(ranks):
    """How far the episodes of all worlds are."""
    return make(ranks, staggered=True).env.get_state()["worlds"]["clock"].flatten().tolist()


def refusals(ranks):
    """What cannot be shared says so."""
    said = []
    for name, changes in (("shac", {"num_worlds": 5}), ("ppo", {})):
        algorithm = find_algorithm(name)
        settings = replace(algorithm.resolve("hopper"), **({"num_worlds": 4} | changes))
        try:
            algorithm.learner(RankEnv(make_task("hopper"), settings.num_worlds, ranks), settings, 0)
        except ValueError as error:
            said.append(str(error))
    return said


def train(root, name, iterations):
    return main(["train", "hopper", *RUN, "--iterations", str(iterations), "--runs", root, "--name", name])


def runs(root):
    """One that nothing stops, and one that goes on after six of eight iterations: the exit codes."""
    codes = [train(root, "whole", 8), train(root, "parts", 6)]
    return [*codes, main(["resume", f"{root}/parts", "--iterations", "8"])]


if __name__ == "__main__":
    assert (FALLS, RUNS_OUT_OF_TIME) == (1, 2)
    both = ranks_on("cpu")
    checks = (plain, random_physics, without_critic, go_on, staggered, bad_gradient, refusals)
    results = {check.__name__: check(both) for check in checks}
    results["runs"] = runs(sys.argv[1])
    if both.number == 0:
        print(json.dumps(results), flush=True)
    sys.exit(train(sys.argv[1], "lost", 100_000))
