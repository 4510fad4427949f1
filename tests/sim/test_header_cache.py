"""What clang made of Warp's headers goes from process to process, unless it is damaged or was made of other headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trot.sim import header_cache
from trot.sim.header_cache import headers_at_hand

MADE = b"what clang made"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A build in a process of its own: what clang finds at hand, before it makes what is missing."""
    processes = iter(range(10))

    def run(cache: Path) -> bytes | None:
        ours = tmp_path / f"process_{next(processes)}"
        ours.mkdir()
        monkeypatch.setattr(header_cache, "clang_headers", lambda: ours)
        with headers_at_hand(cache):
            file = ours / "builtin.pch"
            found = file.read_bytes() if file.exists() else None
            file.write_bytes(MADE if found is None else found)
        return found

    return run


def test_the_second_process_finds_what_the_first_made(build, tmp_path: Path) -> None:
    assert build(tmp_path / "cache") is None
    assert build(tmp_path / "cache") == MADE
    assert build(tmp_path / "another cache") is None


def test_a_damaged_one_is_left_aside_and_replaced(build, tmp_path: Path) -> None:
    build(tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("*/*.pch")
    kept.write_bytes(MADE[:5])
    assert build(tmp_path / "cache") is None
    assert kept.read_bytes() == MADE and build(tmp_path / "cache") == MADE


def test_those_of_other_headers_are_not_taken(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after another installation of the same version: clang compares times and sizes."""
    native = tmp_path / "native"
    native.mkdir()
    (native / "builtin.h").write_text("one")
    monkeypatch.setattr(header_cache, "warp_headers", lambda: native)
    build(tmp_path / "cache")
    assert build(tmp_path / "cache") == MADE
    (native / "builtin.h").write_text("others")
    assert build(tmp_path / "cache") is None


def test_a_cache_that_cannot_be_written_costs_time_alone(build, tmp_path: Path) -> None:
    cache = tmp_path / "no folder"
    cache.write_text("a file is in its place")
    assert build(cache) is None and build(cache) is None


def test_a_build_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_cache, "clang_headers", lambda: tmp_path)
    with pytest.raises(OSError, match="no room"), headers_at_hand(tmp_path / "cache"):
        raise OSError("no room")
