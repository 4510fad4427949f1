"""The wheel holds all that trot needs, and its commands run where nothing of the repository can be found."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as for a release, in an environment of its own: that takes a network, or a mirror that pip knows."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("trot-*.whl")
    return file


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """A new environment with the wheel in it. What trot depends on is lent by the one that runs the tests."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # Such a line puts a folder at the end of the path. The .pth files in there, such as an editable trot's, do nothing.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*command):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        # Kernels are compiled anew, from the wheel's own sources.
        environment["WARP_CACHE_PATH"] = str(folder / "kernels")
        program = [str(python.with_name(command[0])), *command[1:]]
        return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)

    return run


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("trot/")}
    files = (file for file in (ROOT / "trot").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert inside == {file.relative_to(ROOT).as_posix() for file in files}
    kinds = {Path(name).suffix for name in inside}
    assert {".py", ".h", ".xml", ".csv", ".html", ".pt", ".json", ".typed"} <= kinds


def test_nothing_of_the_repository_is_seen(elsewhere):
    found = elsewhere("python", "-c", "import trot; print(trot.__file__)")
    assert "installed" in found.stdout and str(ROOT) not in found.stdout, found
    told = elsewhere("trot", "--version")
    assert told.returncode == 0 and told.stdout.startswith("trot "), told.stderr


def test_the_commands_run(elsewhere, tmp_path):
    listed = elsewhere("trot", "tasks")
    assert listed.returncode == 0, listed.stderr
    assert {"ant", "cartpole", "humanoid", "muscle_humanoid"} <= set(listed.stdout.split())
    trained = elsewhere("trot", "train", "cartpole", "--iterations", "2", "--device", "cpu", "--runs", str(tmp_path))
    assert trained.returncode == 0, trained.stderr
    assert "2 iterations" in trained.stdout
    (run,) = tmp_path.iterdir()
    page = tmp_path / "page.html"
    drawn = elsewhere("trot", "view", str(run), "--checkpoint", "last", "--steps", "5", "--html", str(page))
    assert drawn.returncode == 0, drawn.stderr
    assert "<html" in page.read_text()[:2000].lower()


def test_a_policy_comes_along(elsewhere):
    program = "from trot.learn.packaged_policy import load_packaged; print(load_packaged('cartpole').command)"
    found = elsewhere("python", "-c", program)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("trot train cartpole")


def test_what_lives_in_the_repository_alone_says_so(elsewhere):
    asked = elsewhere("trot", "bench")
    assert asked.returncode == 2
    assert "not in the installed package" in asked.stderr
