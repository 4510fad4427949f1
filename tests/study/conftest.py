"""Runs that several files study."""

import pytest
from small_run import small_run


@pytest.fixture(scope="session")
def docking_run(tmp_path_factory):
    """No falls; episodes of 24 steps, windows of 8."""
    return small_run(tmp_path_factory.mktemp("docking"))


@pytest.fixture(scope="session")
def hopper_run(tmp_path_factory):
    """Falls, in every episode."""
    return small_run(tmp_path_factory.mktemp("hopper"), "hopper")
