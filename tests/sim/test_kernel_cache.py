"""Compiled kernels on disk: damaged ones are built again, and a folder that cannot be written is no obstacle."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trot.sim.kernel_cache import cannot_write, ensure_whole, temporary_cache
from trot.sim.whole_files import is_whole

FALL = """
import sys
import torch
from trot.sim.load import load_model
from trot.sim.step import step
model = load_model('<mujoco><worldbody><body><joint name="a" type="slide" axis="0 0 1"/>'
                   '<geom type="sphere" size="0.1"/></body></worldbody></mujoco>')
device = sys.argv[1]
state = step(model, model.default_state(1, device), torch.zeros(1, 0, device=device), 0.01)
print(round(state.joint_qd.item(), 6))
"""
FALLEN = "-0.0981\n"
"""9.81 m/s^2 for 10 ms."""


def fall(cache: Path, temporary: Path, before: str = "", device: str = "cpu") -> subprocess.CompletedProcess[str]:
    """In a process of its own: a damaged kernel may end it."""
    environment = {**os.environ, "WARP_CACHE_PATH": str(cache), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", before + FALL, device]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with the kernels of FALL."""
    folder = tmp_path_factory.mktemp("kernels")
    assert fall(folder, folder).stdout == FALLEN
    return folder


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(255 - byte for byte in content[middle : middle + 64]) + content[middle + 64 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": cut,
    "garbage": lambda content: bytes(i * 37 % 256 for i in range(len(content))),
    "flipped": flip,
}


OTHERS = [(".meta", "cut"), *((".o", damage) for damage in DAMAGES if damage != "flipped")]


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(".o", "flipped"), *(pytest.param(*case, marks=pytest.mark.campaign) for case in OTHERS)],
)
def test_a_damaged_kernel_is_built_again(cache: Path, suffix: str, damage: str, tmp_path: Path) -> None:
    (file,) = cache.glob(f"*/wp_trot_*/*{suffix}")
    (header,) = cache.glob("*/trot_headers_*/*.pch")
    for each in (file, header):
        each.write_bytes(DAMAGES[damage](each.read_bytes()))
    first = fall(cache, tmp_path)
    assert (first.returncode, first.stdout) == (0, FALLEN)
    assert first.stderr == f"trot: a compiled kernel in {file.parent} is damaged, and is built again\n"
    assert is_whole(file) and is_whole(header)


@pytest.mark.gpu
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".cubin", ".meta"])
def test_a_damaged_kernel_of_a_gpu_is_built_again(suffix: str, damage: str, tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    assert fall(cache, tmp_path, device="cuda").stdout == FALLEN
    (file,) = cache.glob(f"*/wp_trot_*/*{suffix}")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    first, second = (fall(cache, tmp_path, device="cuda") for _ in range(2))
    assert (first.returncode, first.stdout) == (0, FALLEN)
    assert first.stderr == f"trot: a compiled kernel in {file.parent} is damaged, and is built again\n"
    assert (second.returncode, second.stdout, second.stderr) == (0, FALLEN, "")


def test_kernels_that_another_version_left_are_built_again_without_a_word(cache: Path, tmp_path: Path) -> None:
    (file,) = cache.glob("*/wp_trot_*/*.o")
    for witness in file.parent.glob("*.whole"):
        witness.unlink()
    file.write_bytes(b"no object file")
    (header,) = cache.glob("*/trot_headers_*/*.pch")
    made = header.stat().st_ino
    found = fall(cache, tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, FALLEN, "")
    assert header.stat().st_ino == made, "clang made Warp's headers anew, though they were at hand"


def test_a_whole_kernel_is_not_built_again(cache: Path, tmp_path: Path) -> None:
    (file,) = cache.glob("*/wp_trot_*/*.o")
    before = file.stat()
    found = fall(cache, tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, FALLEN, "")
    after = file.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "wp_module"
    folder.mkdir()
    (folder / "module.o").write_bytes(b"old")

    def fail(elsewhere: Path) -> None:
        elsewhere.mkdir()
        (elsewhere / "module.o").write_bytes(b"half")
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        ensure_whole(folder, "module.o", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["wp_module"]
    assert (folder / "module.o").read_bytes() == b"old"


READ_ONLY = """
import os
make, cache = os.mkdir, os.environ["WARP_CACHE_PATH"]

def refusing(path, *how, **named):
    if os.fspath(path).startswith(cache) and not os.path.exists(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    make(path, *how, **named)

os.mkdir = refusing
"""
"""To an administrator every folder can be written, so nothing can be made in this one by order."""


def test_a_cache_that_cannot_be_written_falls_back_to_a_temporary_folder(cache: Path, tmp_path: Path) -> None:
    """One that cannot be made, and one that is there but read-only, though it holds the very kernels."""
    # Below a file no folder can be made, not even by an administrator.
    (tmp_path / "file").touch()
    before = {file: file.stat().st_mtime_ns for file in cache.rglob("*")}
    for folder, preparation in ((tmp_path / "file" / "cache", ""), (cache, READ_ONLY)):
        found = fall(folder, tmp_path, preparation)
        assert (found.returncode, found.stdout) == (0, FALLEN)
        (line,) = found.stderr.splitlines()
        assert line.startswith("trot: the folder for compiled kernels cannot be written (")
        assert preparation == "" or "([Errno 13] Permission denied: " in line
        assert f"they go to {tmp_path / 'trot-kernels-'}" in line
        assert "WARP_CACHE_PATH" in line
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*")} == before
    # The second start found what the first had built.
    assert len(list(tmp_path.glob("trot-kernels-*/*/wp_trot_*"))) == 1


def test_whether_a_folder_can_be_written_is_tried(tmp_path: Path) -> None:
    assert cannot_write(tmp_path / "new" / "folder") is None
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    assert isinstance(cannot_write(tmp_path / "file"), OSError)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here that nobody can write")
def test_a_folder_that_is_there_but_cannot_be_written_is_noticed() -> None:
    assert isinstance(cannot_write(Path("/proc/self")), OSError)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="temporary folders are one's own here")
def test_a_temporary_folder_that_others_can_write_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = temporary_cache(OSError("full"))
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    assert temporary_cache(OSError("full")) == ours
    ours.chmod(0o777)
    other = temporary_cache(OSError("full"))
    assert other != ours
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert capsys.readouterr().err.count("(full)") == 3
