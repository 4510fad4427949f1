"""NCCL inside captured graphs, on one GPU: a rank that is alone learns what a process without ranks learns."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from alike import ROUNDING, distance
from two_ranks import free_port

import trot
from trot.envs.rank_env import RankEnv
from trot.envs.ranks import Ranks
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.capture import fast_phases

pytestmark = pytest.mark.gpu


@pytest.fixture
def alone(monkeypatch):
    told = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**told, "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    yield Ranks(0, 1, cuda=True)
    dist.destroy_process_group()


def test_captured_iterations_with_nccl_are_those_without_ranks(alone):
    shac = find_algorithm("shac")
    settings = replace(shac.resolve("ant"), num_worlds=32, iterations=20)
    given = {"dtype": torch.float64, "seed": 3}
    learners = [
        shac.learner(RankEnv(make_task("ant"), 32, alone, "cuda", **given), settings, 3),
        shac.learner(trot.Env(make_task("ant"), 32, "cuda", **given), settings, 3),
    ]
    assert dist.get_backend() == "nccl"
    phases = [fast_phases(one) for one in learners]
    for iteration in range(5):
        for runs in phases:
            for run in runs.values():
                run(iteration)
    torch.cuda.synchronize()
    with_ranks, without = ({name: part for name, part in one.state_dict().items()} for one in learners)
    assert distance(with_ranks, without) < ROUNDING
    assert distance(learners[0].metrics, learners[1].metrics) < ROUNDING
