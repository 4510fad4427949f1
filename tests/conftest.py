"""Fixtures of several files. Tests marked `gpu` are skipped where there is no CUDA device."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from run_contents import SETTINGS

from trot.runs.folder import RunFolder
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.threads import get_num_threads, set_num_threads

# Tests run side by side, one process per core: more threads in each would only wait for each other.
torch.set_num_threads(1)

# So that a failing assert in them shows its numbers, as one in a test does.
pytest.register_assert_rewrite("adjoints", "convergence")


@pytest.fixture(scope="module")
def every_joint() -> Model:
    return load_model(Path(__file__).parent / "robots" / "every_joint.xml")


@pytest.fixture(scope="module")
def every_pair() -> Model:
    return load_model(Path(__file__).parent / "robots" / "every_pair.xml", self_collision=True)


@pytest.fixture(scope="module")
def every_law() -> Model:
    return load_model(Path(__file__).parent / "robots" / "every_law.xml")


@pytest.fixture(scope="module")
def every_bond() -> Model:
    return load_model(Path(__file__).parent / "robots" / "every_bond.xml")


@pytest.fixture(scope="module")
def every_muscle() -> Model:
    return load_model(Path(__file__).parent / "robots" / "muscles" / "every_muscle.xml")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, which is put back afterwards."""
    before = get_num_threads()
    yield set_num_threads
    set_num_threads(before)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "a run", SETTINGS)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch.cuda.is_available() is False")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
