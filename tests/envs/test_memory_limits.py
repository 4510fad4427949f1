"""The memory that worlds may take: what the machine has, and less where a control group allows less."""

import math

import pytest
import torch

import trot
from trot.envs import device
from trot.envs.cgroup_memory import cgroup_limit

NO_LIMIT = 9223372036854771712
"""What version 1 writes where there is none: the largest page-aligned number of 63 bits."""
ALL_V1 = "9:name=systemd:/\n4:cpu,cpuacct:/x\n3:memory:{}\n0::/\n"


@pytest.fixture
def machine(tmp_path):
    """Writes files of /proc and /sys as a kernel shows them."""

    def made(groups, **limits):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for path, text in limits.items():
            file = tmp_path / "sys/fs/cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return tmp_path

    return made


@pytest.mark.parametrize(
    ("groups", "limits", "bytes_"),
    [
        ("0::/\n", {"memory.max": 4096}, 4096),
        ("0::/user/job\n", {"user/job/memory.max": "max", "user/memory.max": 8192, "memory.max": "max"}, 8192),
        ("0::/user/job\n", {"user/job/memory.max": 512, "user/memory.max": 8192}, 512),
        ("0::/user/job\n", {"user/job/memory.max": "max"}, math.inf),
        # The path as the host knows it, inside of a container: only the mount's root is there.
        ("0::/system.slice/docker-1.scope\n", {"memory.max": 2048}, 2048),
        ("0::/../job\n", {"memory.max": 2048}, 2048),
        (ALL_V1.format("/a/b"), {"memory/a/b/memory.limit_in_bytes": 4096}, 4096),
        (ALL_V1.format("/a/b"), {"memory/a/memory.limit_in_bytes": 1024, "memory/memory.limit_in_bytes": 4096}, 1024),
        (ALL_V1.format("/"), {"memory/memory.limit_in_bytes": NO_LIMIT}, NO_LIMIT),
        # A limit of something else than memory.
        ("4:cpu,cpuacct:/x\n", {"memory/x/memory.limit_in_bytes": 1}, math.inf),
        ("", {}, math.inf),
    ],
)
def test_the_smallest_limit_of_the_group_and_those_around_it(machine, groups, limits, bytes_):
    assert cgroup_limit(machine(groups, **limits)) == bytes_


def test_no_limit_where_there_are_no_control_groups(tmp_path):
    assert cgroup_limit(tmp_path) == math.inf


def test_worlds_beyond_the_limit_are_refused(machine, monkeypatch):
    root = machine("0::/job\n", **{"job/memory.max": 1_000_000})
    monkeypatch.setattr(device, "cgroup_limit", lambda: cgroup_limit(root))
    assert device.memory_bytes(torch.device("cpu")) == 1_000_000
    with pytest.raises(device.TooManyWorldsError, match="num_worlds 100000 takes"):
        trot.make_env("cartpole", 100_000)
    monkeypatch.setattr(device, "cgroup_limit", lambda: float(NO_LIMIT))
    assert 1e8 < device.memory_bytes(torch.device("cpu")) < 1e15
