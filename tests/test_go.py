"""The starter decides when to install without installing anything here."""

from pathlib import Path

import pytest

import go


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a healthy .venv in which nothing is installed yet."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(go, "ROOT", tmp_path)
    monkeypatch.setattr(go, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(go, "STAMP", tmp_path / ".venv" / "installed-from.txt")
    monkeypatch.setattr(go, "python_of", lambda venv: go.THIS_PYTHON)
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every program that would have been run, each reported as a success."""
    seen: list[list[str]] = []
    monkeypatch.setattr(go, "run", lambda command, folder=None: seen.append(command) or 0)
    return seen


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_fingerprint_follows_both_files(root: Path, name: str) -> None:
    before = go.fingerprint(root, "3.11")
    assert go.fingerprint(root, "3.11") == before
    with (root / name).open("a") as file:
        file.write("# changed\n")
    assert go.fingerprint(root, "3.11") != before


def test_fingerprint_follows_python(root: Path) -> None:
    assert go.fingerprint(root, "3.11") != go.fingerprint(root, "3.12")


def test_fingerprint_tells_a_line_moved_between_the_files(root: Path) -> None:
    before = go.fingerprint(root, "3.11")
    (root / "pyproject.toml").write_text("[project]\ntorch==2.13.0\n")
    (root / "constraints.txt").write_text("")
    assert go.fingerprint(root, "3.11") != before


@pytest.mark.parametrize(
    ("exists", "venv_python", "reason"),
    [(False, None, "no .venv"), (True, None, "broken"), (True, "3.12", "Python 3.12"), (True, "3.11", None)],
)
def test_rebuilds_only_what_cannot_be_used(exists: bool, venv_python: str | None, reason: str | None) -> None:
    found = go.reason_to_rebuild(exists, venv_python, "3.11")
    assert found is None if reason is None else found is not None and reason in found


def test_an_empty_folder_is_no_python(tmp_path: Path) -> None:
    assert go.python_of(tmp_path) is None


def test_installs_once(root: Path, commands: list[list[str]]) -> None:
    assert go.prepare() == 0
    assert [command[2:4] for command in commands] == [["pip", "install"]]
    assert go.prepare() == 0
    assert len(commands) == 1


def test_failed_install_leaves_no_stamp(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go, "run", lambda command, folder=None: 3)
    go.STAMP.write_text("of an older install")
    assert go.prepare() == 3
    assert not go.STAMP.exists()


def test_interrupted_install_leaves_no_stamp(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str], folder: Path | None = None) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(go, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        go.prepare()
    assert not go.STAMP.exists()


def test_broken_environment_is_made_anew(
    root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(go, "python_of", lambda venv: None)
    assert go.prepare() == 0
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert "broken" in capsys.readouterr().out


def test_stops_at_the_first_failing_tool(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(go, "prepare", lambda: 0)
    monkeypatch.setattr(go, "run", lambda command, folder=None: seen.append(command[2]) or (command[2] == "mypy") * 4)
    assert go.main(["test"]) == 4
    assert seen == ["ruff", "ruff", "mypy"]
    assert "mypy failed" in capsys.readouterr().err


def test_passes_arguments_to_pytest(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go, "prepare", lambda: 0)
    assert go.main(["test", "-k", "ant"]) == 0
    assert commands[-1][2] == "pytest"
    assert commands[-1][-2:] == ["-k", "ant"]


def test_names_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert go.main(["tset"]) == 2
    assert "Did you mean test?" in capsys.readouterr().err
