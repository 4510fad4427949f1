"""Several seeds that learn in one batch: each learns what it would learn alone, and is saved as if it were.

In float64, where sums in another order differ by less than 1e-9 after ten iterations.
"""

import io
from dataclasses import replace

import pytest
import torch
from alike import ROUNDING, distance, same_bits
from small_shac import SMALL

import trot
from trot.envs.registry import make_task
from trot.learn.algorithms import ALGORITHMS, find_algorithm
from trot.learn.algorithms import shac as shac_module
from trot.learn.member_learner import make_member_learner

SEEDS, EACH = (0, 3, 7), SMALL["num_worlds"]
RANDOM = trot.Randomize(
    mass=(0.8, 1.2),
    friction=(0.5, 1.5),
    motor_strength=(0.9, 1.1),
    push_interval=0.05,
    push_speed=0.2,
    observation_noise=(0.05,),
    action_delay=(0, 2),
)
WITH_MEMBERS = ("shac", "shac-no-critic", "bptt", "sapo", "rpo", "ahac", "shac-mixed")


class Together:
    """Members in one batch, and beside them the same seeds alone; whatever happens to one happens to the other."""

    def __init__(self, algo="shac", randomize=None, robot="hopper", **changes):
        algorithm, task = find_algorithm(algo), make_task(robot)
        settings = replace(algorithm.resolve("hopper"), **(SMALL | changes))
        self.group = make_member_learner(algorithm, task, settings, SEEDS, dtype=torch.float64, randomize=randomize)
        self.alone = [
            algorithm.learner(trot.Env(task, EACH, seed=seed, dtype=torch.float64, randomize=randomize), settings, seed)
            for seed in SEEDS
        ]

    def iterate(self, times=1):
        for _ in range(times):
            for learner in (self.group, *self.alone):
                learner.iterate()
        return self

    def end_inside(self, falls=(), late=()):
        """Let these (member, world) fall, or run out of time, in the third step of the next window."""
        for learner, first in ((self.group, None), *((one, index) for index, one in enumerate(self.alone))):
            start = learner.env.window_start.clone()
            for member, world in falls:
                for row in self._row(member, world, first):
                    start.joint_q[row, 1:3], start.joint_qd[row, 1] = torch.tensor([-0.3, 1.5]), -3.0
            for member, world in late:
                for row in self._row(member, world, first):
                    start.clock[row] = learner.env.episode_length - 3
            learner.env.worlds = start
            learner.env.place(learner.env.state)
            learner.env.end_window()

    def _row(self, member, world, alone):
        return [member * EACH + world] if alone is None else [world] if alone == member else []

    def distances(self):
        """Of each member from its seed alone: in all that is saved, and in the metrics."""
        return [
            max(distance(state, one.state_dict()), distance(self.group.metrics[member], one.metrics))
            for member, (state, one) in enumerate(zip(self.group.member_states(), self.alone, strict=True))
        ]

    def column(self, name):
        return self.group.metrics[:, self.group.all_columns().index(name)].tolist()


VARIANTS = [
    {},
    {"algo": "shac-no-critic", "policy": "state_dependent"},
    {"algo": "bptt", "horizon": 12, "policy": "deterministic"},
    {"randomize": RANDOM, "normalize_observations": False, "lr_decay": False},
    {"max_grad_norm": 0.1, "critic_passes": 1, "critic_batches": 3, "critic_hidden": (8, 6), "actor_hidden": (8, 6)},
]


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent"])
def test_symmetric_policies_together_are_those_of_each_seed_alone(policy):
    both = Together(robot="ant", symmetric=True, policy=policy).iterate(5)
    assert max(both.distances()) < ROUNDING
    assert both.group.policy.mirror is not None


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_ten_iterations_together_are_ten_iterations_of_each_seed_alone(options):
    both = Together(**options)
    assert both.distances() == [0, 0, 0], "they begin to the bit"
    for iteration in range(10):
        if iteration in (2, 6):
            both.end_inside(falls=[(0, 1), (2, 0), (2, 3)], late=[(0, 2), (1, 2), (2, 1)])
        both.iterate()
        assert max(both.distances()) < ROUNDING
        if iteration in (2, 6):
            inside = both.group.window.done[:, 1:-1].any(dim=1).nonzero().tolist()
            assert {(0, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 3)} <= set(map(tuple, inside))
    assert both.column("episodes")[2] >= 6 and min(both.column("episodes")) >= 2
    # Seeds learn different things.
    weights = both.group.policy.network[0].weight
    assert (weights[0] - weights[1]).abs().max() > 1e-2


def spoil(monkeypatch, member, in_call):
    """Make the loss of one member NaN in one window of the group's and of the seed's alone."""
    exact, calls = shac_module.policy_loss, {}

    def spoilt(reward, *rest):
        loss = exact(reward, *rest)
        who = "group" if loss.dim() else calls.setdefault("alone", 0) % len(SEEDS)
        calls[who] = calls.get(who, 0) + 1
        if not loss.dim():
            calls["alone"] += 1
        if calls[who] != in_call:
            return loss
        nan = torch.tensor(float("nan"), dtype=loss.dtype)
        if loss.dim():
            return loss * torch.where(torch.arange(len(SEEDS)) == member, nan, 1.0)
        return loss * nan if who == member else loss

    monkeypatch.setattr(shac_module, "policy_loss", spoilt)


def test_a_bad_gradient_stops_one_member_alone(monkeypatch):
    both = Together().iterate(2)
    spoil(monkeypatch, member=1, in_call=2)
    both.iterate()
    assert both.column("stopped") == [0, 0, 0]
    start = {name: tensor[EACH : 2 * EACH].clone() for name, tensor in both.group.env.window_start.tensors().items()}
    before = both.group.member_states()
    for _ in range(3):
        both.iterate()
        assert both.column("stopped") == [0, 1, 0]
        assert max(both.distances()) < ROUNDING
    after = both.group.member_states()
    networks = [name for name in before[0] if name.startswith(("agent.policy", "critic."))]
    moved = [
        [name for name in networks if not one[name].equal(other[name])]
        for one, other in zip(before, after, strict=True)
    ]
    assert moved == [networks, [], networks]
    kept = {name.removeprefix("bad_window."): tensor for name, tensor in after[1].items() if "bad_window" in name}
    assert kept["kept"] and all(kept[f"start_{name}"].equal(tensor) for name, tensor in start.items())
    assert not after[0]["bad_window.kept"] and not after[2]["bad_window.kept"]


def test_a_weight_that_is_not_finite_stops_one_member_alone():
    both = Together().iterate(1)
    with torch.no_grad():
        both.group.policy.network[0].bias[2, 0] = torch.inf
        both.alone[2].policy.network[0].bias[0] = torch.inf
    both.iterate(2)
    assert both.column("stopped") == [0, 0, 1]
    assert max(both.distances()[:2]) < ROUNDING


def test_a_member_goes_on_alone_and_comes_back():
    both = Together(randomize=RANDOM).iterate(3)
    both.end_inside(falls=[(1, 0)], late=[(1, 3)])
    both.alone[1].load_state_dict(both.group.member_states()[1])
    both.iterate(3)
    assert max(both.distances()) < ROUNDING
    both.group.load_member(1, both.alone[1].state_dict())
    assert same_bits(both.group.member_states()[1], both.alone[1].state_dict())
    both.iterate(3)
    assert max(both.distances()) < ROUNDING


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("by_member", [True, False])
def test_all_members_go_on_to_the_bit(dtype, by_member):
    def group(seeds):
        settings = replace(find_algorithm("shac").resolve("hopper"), **SMALL)
        return make_member_learner(
            find_algorithm("shac"), make_task("hopper"), settings, seeds, dtype=dtype, randomize=RANDOM
        )

    whole, resumed, file = group(SEEDS), group((4, 5, 6)), io.BytesIO()
    for _ in range(4):
        whole.iterate()
    whole.env.window_start.clock[[1, 6]] = whole.env.episode_length - 9
    torch.save(whole.member_states() if by_member else whole.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    if by_member:
        for member, state in enumerate(saved):
            resumed.load_member(member, state)
    else:
        resumed.load_state_dict(saved)
    for _ in range(4):
        whole.iterate()
        resumed.iterate()
        assert whole.metrics.equal(resumed.metrics)
    assert all(map(same_bits, whole.member_states(), resumed.member_states()))


def test_what_is_saved_of_a_member_is_apart_from_the_others():
    """A view would drag the tensors of all members into its checkpoint."""
    state = Together().group.member_states()[1]
    for name, part in state.items():
        if isinstance(part, torch.Tensor):
            assert part.untyped_storage().nbytes() == part.numel() * part.element_size(), name


def test_a_state_that_does_not_fit_changes_nothing():
    both = Together().iterate(1)
    before = both.group.member_states()
    other = both.alone[0].state_dict()
    other["agent.policy.log_std"] = other["agent.policy.log_std"][:2]
    with pytest.raises(ValueError, match=r"agent\.policy\.log_std is \(2,\); it must be \(3,\)"):
        both.group.load_member(0, other)
    del other["agent.policy.log_std"]
    with pytest.raises(ValueError, match=r"the saved state differs in agent\.policy\.log_std"):
        both.group.load_member(0, other)
    assert all(map(same_bits, both.group.member_states(), before))


@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - set(WITH_MEMBERS)))
def test_other_algorithms_say_that_they_cannot(algo):
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.resolve("half_cheetah"), num_worlds=4)
    with pytest.raises(ValueError, match="cannot learn with several seeds at once, as shac, shac-no-critic and bptt"):
        make_member_learner(algorithm, make_task("half_cheetah"), settings, SEEDS)


@pytest.mark.gpu
@pytest.mark.parametrize(("task", "symmetric"), [("hopper", False), ("ant", False), ("ant", True)])
def test_graphs_give_the_bits_of_eager_iterations(task, symmetric):
    from trot.learn.capture import fast_phases

    algorithm = find_algorithm("shac")
    settings = replace(algorithm.resolve(task), num_worlds=16, iterations=20, symmetric=symmetric)
    eager, captured = (make_member_learner(algorithm, make_task(task), settings, SEEDS, "cuda") for _ in range(2))
    phases = fast_phases(captured)
    for iteration in range(4):
        if iteration == 2:
            for learner in (eager, captured):
                learner.env.window_start.clock[::5] = learner.env.episode_length - 3
        eager.iterate()
        for phase in phases.values():
            phase(iteration)
        assert eager.metrics.equal(captured.metrics)
        assert all(map(same_bits, captured.member_states(), eager.member_states()))


@pytest.mark.gpu
def test_an_iteration_never_waits_for_the_gpu():
    algorithm = find_algorithm("shac")
    settings = replace(algorithm.resolve("ant"), num_worlds=16)
    group = make_member_learner(algorithm, make_task("ant"), settings, SEEDS, "cuda", randomize=RANDOM)
    group.iterate()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        group.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_on_a_gpu_too_each_member_learns_what_its_seed_learns_alone():
    algorithm, task = find_algorithm("shac"), make_task("ant")
    settings = replace(algorithm.resolve("ant"), num_worlds=16, iterations=20)
    group = make_member_learner(algorithm, task, settings, SEEDS, "cuda", torch.float64, RANDOM)
    alone = [
        algorithm.learner(trot.Env(task, 16, "cuda", seed, torch.float64, randomize=RANDOM), settings, seed)
        for seed in SEEDS
    ]
    for learner in (group, *alone):
        learner.env.window_start.clock.fill_(learner.env.episode_length - 40)
        for _ in range(5):
            learner.iterate()
    for state, one in zip(group.member_states(), alone, strict=True):
        assert distance(state, one.state_dict()) < ROUNDING
