"""The starter decides when and what to install without installing anything here."""

import ast
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import go

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


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
    for name in ("TROT_TORCH", "TROT_TORCH_INDEX", "TROT_INSTALLER"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in go.os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    # A new user's machine: Linux, no GPU, no uv, network, and nothing configured.
    monkeypatch.setattr(go.sys, "platform", "linux")
    monkeypatch.setattr(go.shutil, "which", lambda name: None)
    monkeypatch.setattr(go, "gpu_is_here", lambda: False)
    monkeypatch.setattr(go, "pip_settings", dict)
    monkeypatch.setattr(go, "answers", lambda url, certificates=None: True)
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every program that would have been run, each reported as a success."""
    seen: list[list[str]] = []
    monkeypatch.setattr(go, "run", lambda command, folder=None, environment=None: seen.append(command) or 0)
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
    assert [command[2:4] for command in commands] == [["pip", "install"]] * 2
    assert go.prepare() == 0
    assert len(commands) == 2


def test_failed_install_leaves_no_stamp(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go, "run", lambda command, folder=None, environment=None: 3)
    monkeypatch.setattr(go, "way_on", lambda install: "")
    go.STAMP.write_text("of an older install")
    assert go.prepare() == 3
    assert not go.STAMP.exists()


def test_interrupted_install_leaves_no_stamp(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str], folder: Path | None = None, environment: object = None) -> int:
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
    assert [command[2] for command in commands] == ["venv", "pip", "pip"]
    assert "broken" in capsys.readouterr().out


def test_stops_at_the_first_failing_tool(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(go, "prepare", lambda: 0)
    monkeypatch.setattr(
        go, "run", lambda command, folder=None, environment=None: seen.append(command[2]) or (command[2] == "mypy") * 4
    )
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


def test_takes_the_cpu_build_from_pytorch_s_index_and_alone(root: Path, commands: list[list[str]]) -> None:
    assert go.prepare() == 0
    torch, rest = (command[4:] for command in commands)
    assert torch == ["--no-compile", "--no-deps", "--index-url", CPU_INDEX, "torch==2.13.0"]
    assert rest == ["--no-compile", "-c", "constraints.txt", "-e", ".[dev]"]
    assert go.STAMP.read_text().splitlines()[1] == "cpu"


@pytest.mark.parametrize(
    ("platform", "gpu", "index"),
    [
        ("linux", False, CPU_INDEX),
        ("linux", True, None),
        ("darwin", False, None),
        ("win32", False, None),
        ("win32", True, "https://download.pytorch.org/whl/cu130"),
    ],
)
def test_the_build_that_fits_the_machine(
    root: Path, monkeypatch: pytest.MonkeyPatch, platform: str, gpu: bool, index: str | None
) -> None:
    monkeypatch.setattr(go.sys, "platform", platform)
    monkeypatch.setattr(go, "gpu_is_here", lambda: gpu)
    install = go.plan_install(None, None)
    assert (install.build, install.torch_from, install.note) == ("cuda" if gpu else "cpu", index, "")


def test_tells_size_time_and_room_before_it_begins(
    root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(go.shutil, "disk_usage", lambda path: SimpleNamespace(free=41e9))
    monkeypatch.setattr(go, "carry_out", lambda install: 7)
    assert go.prepare() == 7
    said = capsys.readouterr().out
    assert "with pip, and PyTorch for the CPU (there is no NVIDIA GPU" in said
    assert "about 2 GB on disk, where 41 GB are free, and a minute" in said


@pytest.mark.parametrize("key", ["index-url", "no-index"])
def test_an_index_of_one_s_own_is_not_gone_past(root: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(go, "pip_settings", lambda: {key: "https://mirror.example/simple"})
    monkeypatch.setattr(go, "answers", lambda url, certificates=None: pytest.fail("asked outside"))
    install = go.plan_install(None, None)
    assert install.torch_from is None
    assert f"that you chose ({key})" in install.note and "6 GB in all" in install.note


def test_so_it_is_where_uv_was_told_of_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://mirror.example/simple")
    install = go.plan_install(None, "/bin/uv")
    assert install.torch_from is None and "(UV_INDEX_URL)" in install.note


def test_where_pytorch_s_index_does_not_answer_the_usual_one_has_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go, "answers", lambda url, certificates=None: False)
    install = go.plan_install(None, None)
    assert install.torch_from is None
    assert "does not answer" in install.note and "TROT_TORCH_INDEX" in install.note


def test_a_mirror_of_pytorch_s_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROT_TORCH_INDEX", "https://mirror.example/torch/cpu")
    monkeypatch.setattr(go, "pip_settings", lambda: {"index-url": "https://mirror.example/simple"})
    assert go.plan_install(None, None).commands()[0][-2] == "https://mirror.example/torch/cpu"


def test_the_build_that_is_asked_for(
    root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go.prepare() == 0
    monkeypatch.setenv("TROT_TORCH", "cuda")
    assert go.prepare() == 0
    # Made anew: an installer takes the build that is there for what is wanted.
    assert [command[2] for command in commands] == ["pip", "pip", "venv", "pip"]
    assert ".venv has PyTorch for cpu: creating" in capsys.readouterr().out
    monkeypatch.delenv("TROT_TORCH")
    assert go.prepare() == 0
    assert len(commands) == 4


def test_an_update_keeps_the_build(root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert go.prepare() == 0
    (root / "pyproject.toml").write_text("[project]\nname = 'new'\n")
    monkeypatch.setattr(go, "gpu_is_here", lambda: pytest.fail("asked for a GPU"))
    assert go.prepare() == 0
    assert go.STAMP.read_text().splitlines()[1] == "cpu"
    assert len(commands) == 4


def test_refuses_another_build(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TROT_TORCH", "rocm")
    assert go.prepare() == 2
    assert "cpu or cuda, not 'rocm'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "code", "listed", "found"),
    [
        (None, 0, "", False),
        ("nvidia-smi", 0, "GPU 0: NVIDIA H200 (UUID: GPU-1)\n", True),
        ("nvidia-smi", 0, "No devices found.\n", False),
        ("nvidia-smi", 9, "NVIDIA-SMI has failed because it couldn't communicate with GPU 0's driver", False),
    ],
)
def test_finds_a_gpu(monkeypatch: pytest.MonkeyPatch, program: str | None, code: int, listed: str, found: bool) -> None:
    monkeypatch.setattr(go.Path, "exists", lambda path: False)
    monkeypatch.setattr(go.shutil, "which", lambda name: program)
    monkeypatch.setattr(go.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=code, stdout=listed))
    assert go.gpu_is_here() is found


def test_a_gpu_s_device_file_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.Path, "exists", lambda path: str(path) == "/dev/nvidia0")
    assert go.gpu_is_here()


def test_uv_installs_where_it_is_there(root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.shutil, "which", lambda name: f"/bin/{name}" if name == "uv" else None)
    assert go.prepare() == 0
    assert [command[:5] for command in commands] == [["/bin/uv", "pip", "install", "--python", commands[0][4]]] * 2
    assert commands[1][5:] == ["-c", "constraints.txt", "-e", ".[dev]"]
    go.STAMP.unlink()
    monkeypatch.setenv("TROT_INSTALLER", "pip")
    assert go.prepare() == 0
    assert commands[-1][1:4] == ["-m", "pip", "install"]


def test_uv_is_told_what_pip_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    told = {
        "index-url": "https://a/simple",
        "extra-index-url": "https://b/simple\nhttps://c/simple",
        "find-links": "/wheels /more",
        "trusted-host": "a",
        "cert": "/ca.pem",
        "timeout": "9",
    }
    assert go.uv_variables(told) == {
        "UV_INDEX_URL": "https://a/simple",
        "UV_EXTRA_INDEX_URL": "https://b/simple https://c/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a",
        "SSL_CERT_FILE": "/ca.pem",
    }
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine/simple")
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    monkeypatch.setenv("UV_INDEX", "https://mine/more")
    assert go.uv_variables(told) == {"UV_INSECURE_HOST": "a", "SSL_CERT_FILE": "/ca.pem"}


def test_reads_what_pip_is_told_from_pip_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in go.os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://global/simple\ntimeout = 7\nfind-links = /one\n    /two\n"
        "[install]\ntimeout = 8\n[download]\ntimeout = 9\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable/simple")
    monkeypatch.setattr(go, "interpreter", lambda venv: sys.executable)
    found = go.pip_settings()
    assert found["index-url"] == "https://variable/simple"
    assert found["timeout"] == "8"
    assert found["find-links"].split() == ["/one", "/two"]


@pytest.mark.parametrize(
    ("said", "free", "advice"),
    [
        ("ERROR: Could not find a version that satisfies the requirement (from versions: none)", 9e9, "HTTPS_PROXY"),
        ("Connection timed out", 9e9, "No package index can be reached"),
        ("ERROR: something else", 1e7, "The disk is full (0.0 GB"),
        ("ERROR: something else", 9e9, "TROT_INSTALLER=pip"),
    ],
)
def test_a_failed_install_says_what_can_be_done(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str, free: float, advice: str
) -> None:
    monkeypatch.setattr(go.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    answer = SimpleNamespace(returncode=1, stdout="", stderr=said)
    monkeypatch.setattr(go.subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr(go, "run", lambda command, folder=None, environment=None: 4)
    assert go.carry_out(go.plan_install("cpu", "/bin/uv")) == 4
    error = capsys.readouterr().err
    assert "uv's message is above" in error and advice in error


def without_venv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())


def test_without_venv_says_what_to_install(
    root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_venv(monkeypatch)
    monkeypatch.setattr(go, "python_of", lambda venv: None)
    assert go.prepare() == 1
    assert commands == []
    assert f"sudo apt install python{go.THIS_PYTHON}-venv" in capsys.readouterr().err


def test_without_venv_uv_makes_the_environment(
    root: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_venv(monkeypatch)
    assert go.create_venv("/bin/uv") == 0
    assert commands == [["/bin/uv", "venv", "--seed", "--python", sys.executable, str(root / ".venv")]]


@pytest.mark.parametrize(("answer", "warned"), [("13.0 False", True), ("13.0 True", False), ("", False)])
def test_a_gpu_that_pytorch_does_not_find_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, warned: bool
) -> None:
    monkeypatch.setattr(go.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{answer}\n"))
    go.warn_of_unseen_gpu()
    assert ("built for CUDA 13.0 and does not find the GPU" in capsys.readouterr().err) is warned


def test_an_older_python_can_read_the_file_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(go.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    monkeypatch.setattr(sys, "argv", ["go.py", "demo"])
    monkeypatch.setattr(go.shutil, "which", lambda name: name if name == "python3.12" else None)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(go.__file__)
    assert "needs Python 3.11 or later; this is Python 3.9" in str(stopped.value)
    assert str(stopped.value).endswith(f"Run: python3.12 {go.__file__} demo")


def test_an_address_that_does_not_answer() -> None:
    # Nobody listens there, and no name has to be looked up.
    assert not go.answers("http://127.0.0.1:9/torch/")
    assert not go.answers("no address")
