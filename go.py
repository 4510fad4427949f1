"""Start here: installs trot into .venv beside this file if needed, then runs it. Needs Python 3.11 and nothing else."""

import ast
import difflib
import hashlib
import importlib.util
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Before the first annotation that an older Python cannot read.
if sys.version_info < (3, 11):  # noqa: UP036
    newer = [name for name in (f"python3.{minor}" for minor in range(11, 20)) if shutil.which(name)]
    hint = f"Run: {newer[0]} {' '.join(sys.argv)}" if newer else "Install a newer one, and run go.py with that."
    sys.exit(f"trot needs Python 3.11 or later; this is Python {THIS_PYTHON} ({sys.executable}). {hint}")

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed-from.txt"
"""Fingerprint of what .venv was installed from, and PyTorch's build. Written last, so that it vouches for the rest."""

PYTORCH = "https://download.pytorch.org/whl"
"""PyTorch's own index. The usual index has one build for each platform, and the others are here."""
OTHER_BUILDS = {("linux", "cpu"): f"{PYTORCH}/cpu", ("win32", "cuda"): f"{PYTORCH}/cu130"}
"""Where a build is that the usual index does not have: that has CUDA for Linux, and the CPU's for the others."""
GIGABYTES = {"cpu": 2, "cuda": 6}
"""On disk, all packages together."""
SECONDS_TO_ANSWER = 5

HELP = """\
usage: python3 go.py COMMAND [ARGUMENTS]

  demo              teach a pole on a cart to swing up, on the CPU, within a minute
  test [ARGUMENTS]  ruff, mypy and every test; the arguments go to pytest
  check             ruff and mypy alone
  docs              build the documentation site into build/docs
  run ARGUMENTS     the trot command, for example: python3 go.py run check my_robot.xml

The first command installs trot and its dependencies into .venv, with uv where that is there and else with pip; later
ones find it there. These variables have a say in it:

  TROT_TORCH=cpu or cuda   the build of PyTorch; without it the one that fits this machine
  TROT_TORCH_INDEX=URL     where PyTorch is taken from, such as a mirror of its own index
  TROT_INSTALLER=pip       not uv
  PIP_INDEX_URL, ...       what pip's and uv's own variables and configuration say holds; uv is told pip's as well
"""

COMMANDS = ("demo", "test", "check", "docs", "run")
DOCS = ["sphinx", "-W", "--keep-going", "-q", "docs", "build/docs"]
LINTERS = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])
# Tests of one file share compiled kernels: keep them in one process.
# -rs: a test that is skipped says why.
PYTEST = ["pytest", "-n", "auto", "--dist", "loadfile", "-rs"]


def main(arguments: list[str]) -> int:
    """Make .venv ready, run the command in it and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        nearest = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        print(f"go.py: there is no command {command!r}.{hint}\n\n{HELP}", file=sys.stderr, end="")
        return 2
    if command in ("check", "docs") and rest:
        print(f"go.py: {command} takes no arguments. To check a robot: python3 go.py run check MODEL", file=sys.stderr)
        return 2

    code = prepare()
    if code != 0:
        return code
    if command == "demo":
        return run_module(["trot", "demo", *rest])
    if command == "run":
        return run_module(["trot", *rest])
    if command == "docs":
        code = run_all([DOCS])
        if code == 0:
            print("The site begins at build/docs/index.html")
        return code
    return run_all([*LINTERS, [*PYTEST, *rest]] if command == "test" else [*LINTERS])


def run_all(modules: list[list[str]]) -> int:
    """Run each tool from the root until one fails."""
    for module in modules:
        print(f"== {' '.join(module)}", flush=True)
        code = run_module(module, folder=ROOT)
        if code != 0:
            print(f"go.py: {module[0]} failed (exit code {code}).", file=sys.stderr)
            return code
    return 0


def prepare() -> int:
    """Create, repair or update .venv where that is needed; the exit code of what failed, else 0."""
    wanted, asked = fingerprint(ROOT, THIS_PYTHON), os.environ.get("TROT_TORCH")
    if asked not in (None, "cpu", "cuda"):
        print(f"go.py: TROT_TORCH is cpu or cuda, not {asked!r}.", file=sys.stderr)
        return 2
    installed, _, build = STAMP.read_text().partition("\n") if STAMP.exists() else ("", "", "")
    reason = reason_to_rebuild(VENV.exists(), python_of(VENV), THIS_PYTHON, build, asked)
    if reason is None and installed == wanted:
        if build == "cpu" and asked is None and Path("/dev/nvidia0").exists():
            print("go.py: .venv has PyTorch for the CPU. For the GPU that is here: TROT_TORCH=cuda", file=sys.stderr)
        return 0

    start = time.monotonic()
    uv = None if os.environ.get("TROT_INSTALLER") == "pip" else shutil.which("uv")
    if reason is not None:
        print(f"{reason}: creating .venv with Python {THIS_PYTHON}.", flush=True)
        code = create_venv(uv)
        if code != 0:
            return code
        build = ""
    STAMP.unlink(missing_ok=True)
    install = plan_install(asked or build or None, uv)
    print(install.announcement(), flush=True)
    code = carry_out(install)
    if code != 0:
        return code
    STAMP.write_text(f"{wanted}\n{install.build}")
    print(f"Installed in {time.monotonic() - start:.0f} s.", flush=True)
    if install.build == "cuda" and asked is None:
        warn_of_unseen_gpu()
    return 0


def create_venv(uv: str | None) -> int:
    """Make .venv anew. uv does it where this Python cannot."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        code = run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    elif uv is not None:
        # With pip in it, as trot's messages tell users to install extras with that.
        shutil.rmtree(VENV, ignore_errors=True)
        code = run([uv, "venv", "--seed", "--python", sys.executable, str(VENV)])
    else:
        print(
            f"go.py: this Python ({sys.executable}) cannot make virtual environments: it lacks venv or ensurepip. "
            f"On Debian and Ubuntu: sudo apt install python{THIS_PYTHON}-venv. Or install uv, and go.py uses that.",
            file=sys.stderr,
        )
        return 1
    if code != 0:
        print("go.py: .venv could not be created; the message is above.", file=sys.stderr)
    return code


class Install(NamedTuple):
    """What will be installed, from where and by what."""

    build: str
    """Of PyTorch: cpu or cuda."""
    why: str
    torch_from: str | None
    """PyTorch's index, where it does not come from where everything else does."""
    note: str
    """On where PyTorch comes from, where that is not as one might wish."""
    uv: str | None
    variables: dict[str, str]
    """That the installer's environment has besides."""

    def announcement(self) -> str:
        """Size and time, before anything is fetched."""
        free = shutil.disk_usage(ROOT).free / 1e9
        size, tool = GIGABYTES[self.build], "pip" if self.uv is None else "uv"
        place = {"cpu": "the CPU", "cuda": "CUDA"}[self.build]
        lines = [
            f"Installing trot into .venv with {tool}, and PyTorch for {place} ({self.why}).",
            f"It takes about {size} GB on disk, where {free:,.0f} GB are free, and a minute or several.",
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def commands(self) -> list[list[str]]:
        """What is run in turn. PyTorch comes first and alone: its index has other packages too, in other versions."""
        python = interpreter(VENV)
        # To compile every file of every package takes longer than all the rest; Python compiles those that it imports.
        pip = [python, "-m", "pip", "install", "--no-compile"]
        tool = pip if self.uv is None else [self.uv, "pip", "install", "--python", python]
        everything = [*tool, "-c", "constraints.txt", "-e", ".[dev]"]
        if self.torch_from is None:
            return [everything]
        return [[*tool, "--no-deps", "--index-url", self.torch_from, torch_pin()], everything]


def plan_install(build: str | None, uv: str | None) -> Install:
    """Decide where PyTorch comes from: this build, or else the one that fits this machine."""
    if build is None:
        build = "cuda" if gpu_is_here() else "cpu"
        why = "there is an NVIDIA GPU" if build == "cuda" else "there is no NVIDIA GPU; TROT_TORCH=cuda takes the other"
    else:
        why = "as asked by TROT_TORCH" if "TROT_TORCH" in os.environ else "as before"
    settings = pip_settings()
    index, note = torch_index(build, settings)
    return Install(build, why, index, note, uv, {} if uv is None else uv_variables(settings))


def gpu_is_here() -> bool:
    """Whether there is an NVIDIA GPU with a driver."""
    if Path("/dev/nvidia0").exists():
        return True
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU 0" in listed.stdout


def torch_index(build: str, settings: dict[str, str]) -> tuple[str | None, str]:
    """Where PyTorch is taken from, None for where everything is, and what the user should know of that."""
    given = os.environ.get("TROT_TORCH_INDEX")
    if given:
        return given, ""
    index = OTHER_BUILDS.get((sys.platform, build))
    if index is None:
        return None, ""
    chosen = {"index-url", "no-index"} & settings.keys()
    chosen |= {"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX", "UV_OFFLINE"} & os.environ.keys()
    if chosen:
        reason = f"PyTorch comes from the package index that you chose ({', '.join(sorted(chosen))})"
    elif not answers(f"{index}/torch/", settings.get("cert")):
        reason = f"PyTorch's own index, {index}, does not answer, so PyTorch comes from where everything comes from"
    else:
        return index, ""
    other = f"{GIGABYTES['cuda']} GB in all" if build == "cpu" else "the CPU's"
    return None, f"{reason}; that may be the other build ({other}). TROT_TORCH_INDEX=URL takes it from elsewhere."


def answers(url: str, certificates: str | None = None) -> bool:
    """Whether the page is there."""
    try:
        context = ssl.create_default_context(cafile=certificates)
        with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER, context=context):
            return True
    except (OSError, ValueError):
        return False


def torch_pin() -> str:
    """The line of constraints.txt that names PyTorch's version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def pip_settings() -> dict[str, str]:
    """What pip's variables and configuration files say."""
    try:
        listed = subprocess.run([interpreter(VENV), "-m", "pip", "config", "list"], capture_output=True, text=True)
    except OSError:
        return {}
    found: dict[str, tuple[int, str]] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        # A variable counts more than the section of a command, and that more than the one for all commands.
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section, -1)
        if rank > found.get(key, (-1, ""))[0]:
            found[key] = rank, str(ast.literal_eval(value))
    return {key: value for key, (_, value) in found.items()}


def uv_variables(settings: dict[str, str]) -> dict[str, str]:
    """What pip is told, in uv's words: uv does not read it. What uv has been told itself stays."""
    told = os.environ.keys()
    words: dict[str, str] = {}
    if "index-url" in settings and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & told:
        words["UV_INDEX_URL"] = settings["index-url"]
    if "extra-index-url" in settings and not {"UV_INDEX", "UV_EXTRA_INDEX_URL"} & told:
        words["UV_EXTRA_INDEX_URL"] = " ".join(settings["extra-index-url"].split())
        # pip takes the best version of all indexes, uv else that of the first one that knows the package.
        words["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "find-links" in settings:
        words["UV_FIND_LINKS"] = ",".join(settings["find-links"].split())
    if "trusted-host" in settings:
        words["UV_INSECURE_HOST"] = " ".join(settings["trusted-host"].split())
    if "no-index" in settings:
        words["UV_NO_INDEX"] = settings["no-index"]
    if "cert" in settings:
        words["SSL_CERT_FILE"] = settings["cert"]
    return {name: value for name, value in words.items() if name not in told}


def carry_out(install: Install) -> int:
    """Run the installer and, where it fails, say what can be done; its exit code."""
    for command in install.commands():
        code = run(command, ROOT, {**os.environ, **install.variables})
        if code != 0:
            tool = "pip" if install.uv is None else "uv"
            print(f"go.py: the install failed; {tool}'s message is above. {way_on(install)}", file=sys.stderr)
            return code
    return 0


def way_on(install: Install) -> str:
    """What to do about a failed install."""
    # Any small package would do: only whether it can be found matters.
    question = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--retries", "0", "--timeout", "10", "tyro"]
    try:
        asked = subprocess.run([interpreter(VENV), "-m", "pip", *question], capture_output=True, text=True)
    except OSError:
        return "The same command tries again."
    said = (asked.stdout + asked.stderr).lower()
    if asked.returncode != 0 and any(word in said for word in ("from versions: none", "connection", "timed out")):
        return (
            "No package index can be reached from here. Where a proxy or a mirror is to be used, set HTTPS_PROXY or "
            "PIP_INDEX_URL; then the same command tries again."
        )
    free = shutil.disk_usage(ROOT).free
    if free < 5e8:
        return f"The disk is full ({free / 1e9:.1f} GB are free). The same command tries again."
    other = "" if install.uv is None else " With pip instead of uv: TROT_INSTALLER=pip."
    return f"The same command tries again.{other}"


def warn_of_unseen_gpu() -> None:
    """Say so where the driver is too old for PyTorch, which then takes the CPU."""
    question = "import torch; print(torch.version.cuda, torch.cuda.is_available())"
    asked = subprocess.run([interpreter(VENV), "-c", question], capture_output=True, text=True)
    version, _, seen = asked.stdout.strip().partition(" ")
    if seen == "False":
        print(
            f"go.py: PyTorch is built for CUDA {version} and does not find the GPU, so trot would run on the CPU. "
            f"`nvidia-smi` shows the driver and the newest CUDA that it takes: update it, or take a build for that "
            f"CUDA, TROT_TORCH_INDEX={PYTORCH}/cuXXX, after removing .venv.",
            file=sys.stderr,
        )


def fingerprint(root: Path, python: str) -> str:
    """Changes when what is to be installed, the Python it is for or its place on disk changes."""
    digest = hashlib.sha256(f"{python}\n{root}\n".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


def reason_to_rebuild(
    exists: bool, venv_python: str | None, this_python: str, build: str = "", asked: str | None = None
) -> str | None:
    """Why .venv must be made anew, or None where it can be used. `build` is what is known of its PyTorch."""
    if not exists:
        return "There is no .venv yet"
    if venv_python is None:
        return ".venv is broken (its Python or its pip does not run)"
    if venv_python != this_python:
        return f".venv belongs to Python {venv_python}"
    if build and asked and build != asked:
        return f".venv has PyTorch for {build}"
    return None


def python_of(venv: Path) -> str | None:
    """Major and minor version of the folder's Python, None where it does not run or has no pip."""
    probe = "import pip, sys; print(*sys.version_info[:2], sep='.')"
    try:
        result = subprocess.run([interpreter(venv), "-c", probe], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def interpreter(venv: Path) -> str:
    """Path of the folder's Python on this platform."""
    return str(venv / "Scripts" / "python.exe" if os.name == "nt" else venv / "bin" / "python")


def run_module(module: list[str], folder: Path | None = None) -> int:
    """Run `python -m module` in .venv, from the folder or else from where the user stands."""
    return run([interpreter(VENV), "-m", *module], folder)


def run(command: list[str], folder: Path | None = None, environment: dict[str, str] | None = None) -> int:
    """Run a program with its output in view and return its exit code."""
    process = subprocess.Popen(command, cwd=folder, env=environment)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # Ctrl-C reached the program as well: let it end in its own way.
            continue
        # A program killed by signal n reports -n; shells call that 128 + n.
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
