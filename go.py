"""Start here: installs trot into .venv beside this file if needed, then runs it. Needs Python 3.11 and nothing else."""

import difflib
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Before the first annotation that an older Python cannot read.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"trot needs Python 3.11 or later; this is Python {THIS_PYTHON} ({sys.executable}).")

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed-from.txt"
"""Fingerprint of what .venv was installed from. Written last, so that it vouches for a finished install."""

HELP = """\
usage: python3 go.py COMMAND [ARGUMENTS]

  demo              teach a pole on a cart to swing up, on the CPU, within a minute
  test [ARGUMENTS]  ruff, mypy and every test; the arguments go to pytest
  check             ruff and mypy alone
  docs              build the documentation site into build/docs
  run ARGUMENTS     the trot command, for example: python3 go.py run check my_robot.xml

The first command installs trot and its dependencies into .venv; later ones find it there.
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
    wanted = fingerprint(ROOT, THIS_PYTHON)
    reason = reason_to_rebuild(VENV.exists(), python_of(VENV), THIS_PYTHON)
    if reason is None and STAMP.exists() and STAMP.read_text() == wanted:
        return 0

    start = time.monotonic()
    if reason is not None:
        print(f"{reason}: creating .venv with Python {THIS_PYTHON}.", flush=True)
        code = run([sys.executable, "-m", "venv", "--clear", str(VENV)])
        if code != 0:
            print("go.py: .venv could not be created; Python's message is above.", file=sys.stderr)
            return code
    print("Installing trot and its dependencies into .venv (a minute or more, at least 2 GB).", flush=True)
    STAMP.unlink(missing_ok=True)
    code = run_module(["pip", "install", "-c", "constraints.txt", "-e", ".[dev]"], folder=ROOT)
    if code != 0:
        print("go.py: the install failed; pip's message is above. The same command tries again.", file=sys.stderr)
        return code
    STAMP.write_text(wanted)
    print(f"Installed in {time.monotonic() - start:.0f} s.", flush=True)
    return 0


def fingerprint(root: Path, python: str) -> str:
    """Changes when what is to be installed, the Python it is for or its place on disk changes."""
    digest = hashlib.sha256(f"{python}\n{root}\n".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


def reason_to_rebuild(exists: bool, venv_python: str | None, this_python: str) -> str | None:
    """Why .venv must be made anew, or None where it can be used."""
    if not exists:
        return "There is no .venv yet"
    if venv_python is None:
        return ".venv is broken (its Python or its pip does not run)"
    if venv_python != this_python:
        return f".venv belongs to Python {venv_python}"
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


def run(command: list[str], folder: Path | None = None) -> int:
    """Run a program with its output in view and return its exit code."""
    process = subprocess.Popen(command, cwd=folder)
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
