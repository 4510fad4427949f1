"""SHAC bit for bit: the same seed gives the same run, also one that was saved and resumed."""

import io

import torch
from small_shac import end_soon, learner, metrics, prepared, run


def everything(shac):
    return {name: value for name, value in shac.state_dict().items() if isinstance(value, torch.Tensor)} | {
        "metrics": shac.metrics.clone(),
        **{f"start.{name}": tensor.clone() for name, tensor in shac.env.window_start.tensors().items()},
    }


def differing(first, second):
    assert first.keys() == second.keys()
    return [name for name in first if not first[name].equal(second[name])]


def test_a_resumed_run_equals_an_uninterrupted_one():
    shac = run(prepared(after=0))
    # An episode ends before the run is saved, another one in the third window after that.
    end_soon(shac, [3], 15)
    file = io.BytesIO()
    torch.save(shac.state_dict(), file)
    episodes = metrics(shac)["episodes"]
    run(shac)
    assert 0 < episodes < metrics(shac)["episodes"]

    file.seek(0)
    resumed = learner(seed=7)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert differing(everything(run(resumed)), everything(shac)) == []


def test_what_is_saved_does_not_change_with_the_run():
    shac = run(learner(), 1)
    saved, before = shac.state_dict(), everything(shac)
    run(shac)
    shac.load_state_dict(saved)
    before.pop("metrics")
    assert differing(before, {name: tensor for name, tensor in everything(shac).items() if name != "metrics"}) == []


def test_same_seed_same_bits():
    first = everything(run(prepared(after=0)))
    # PyTorch's own random numbers have no part in it.
    torch.manual_seed(123)
    assert differing(everything(run(prepared(after=0))), first) == []
    changed = differing(everything(run(prepared(after=0, seed=1))), first)
    assert {"agent.policy.log_std", "agent.policy.network.0.weight", "critic.network.0.weight", "metrics"} <= set(
        changed
    )


def test_a_learner_leaves_pytorchs_own_random_numbers_alone():
    before = torch.get_rng_state()
    run(learner(), 1)
    assert torch.get_rng_state().equal(before)
