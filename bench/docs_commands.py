"""Run every command that README and docs tell a reader to type, in small: `python -m bench.docs_commands [PAGE...]`.

Blocks marked `sh` and single commands between backticks are read from the pages and run in a folder of their own, one
process each, with fewer iterations and worlds than they ask for; placeholders such as RUN get something that is there.
`trot play` and `trot view` are asked for their page and stopped by Ctrl-C. What is not run is listed with the reason.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PATIENCE_SECONDS = 3600.0

ENOUGH = "10"
"""Iterations after which episodes have ended, so that there is something to draw."""
UNKNOWN = "is no command that this program knows"

PLACEHOLDERS = {
    "RUN...": "runs/cartpole-shac-0", "RUN": "runs/cartpole-shac-0", "TASK": "cartpole", "S": "0",
    "ROBOT": "examples/walker/walker.urdf", "robot.urdf": "examples/walker/walker.urdf",
    "my_robot.xml": "trot/envs/assets/ant.xml",
    "my_task.py:Walker": "examples/walker/my_task.py:Walker", "$seed": "0", "runs/ant-shac-*": "runs/ant-shac-0",
}  # fmt: skip
"""Words of the pages, and what is put in their place."""

SKIPPED = {
    r"^pip |^python3 -m venv|^\.venv/bin/pip|^apt ": "installs something: tests/test_wheel.py and tests/test_go.py do",
    r"^python3 go\.py": "installs first, and then does what .ci/run does; tests/test_go.py, and a fresh clone by hand",
    r"^source |^export ": "changes the shell alone",
    r"^nvidia-cuda-mps-control|--device cuda|-m gpu": "needs an NVIDIA GPU",
    r"^python examples/rl_games": "needs the extra rl-games: docs/gymnasium.md says what was run",
    r"^tensorboard ": "a program of its own; tests/learn read what it would show",
    r"--wandb": "needs wandb, which is no dependency: tests/learn/test_metric_writers.py, in its offline mode",
    r"a1_task\.py|runs/a1\b": "needs a robot of MuJoCo's Menagerie: docs/your_robot.md says where it is from",
    r"^pytest |bench\.census|bench\.peers": "takes minutes to hours, or files and packages from elsewhere",
    r"^trot trajectory": "is the first word of a motion file",
    r"replay-fault": "needs a fault: tests/envs and tests/learn make some and run them again",
    r"packaged_policy": "overwrites the policies that come with trot: tests/learn/test_packaged_policy.py",
    r"^trot (?:train|try) --(?!help)|^trot plot --health$": "names options, and is no command",
    r"^trot (?:compare|tune) TASK$|\.\.\.$|\b[NH]\b(?= |$)": "leaves open what to fill in",
}  # fmt: skip
"""Patterns of what is not run, and why."""


@dataclass(frozen=True)
class Told:
    """A command as a page has it, and what is run for it, or why nothing is."""

    page: str
    text: str
    words: tuple[str, ...] = ()
    reason: str = ""


def told_commands(page: Path) -> list[Told]:
    """In the order of the page; each once."""
    text = page.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [" ".join(one.split()) for one in re.findall(r"`((?:trot|torchrun|python3? -m) [^`]+)`", prose)]
    found: dict[str, Told] = {}
    for line in lines:
        for part in _parts(line):
            found.setdefault(part, _told(page.name, part))
    return list(found.values())


def _parts(line: str) -> Iterator[str]:
    """The commands of a line, without its comment and without a loop around them."""
    line = re.sub(r"\s+#.*", "", line)
    line = re.sub(r"^for \w+ in .*?; do (.*); done$", r"\1", line)
    for part in re.split(r"\s*&&\s*", line):
        # A folder of the listing in docs/install.md, and names of commands that a sentence speaks of.
        if part.strip() and not re.match(r"[\w/]+/\s", part) and not re.fullmatch(r"trot [a-z][a-z-]*", _bare(part)):
            yield part.strip()


def _bare(part: str) -> str:
    """`trot tasks` is a whole command; `trot train` is the name of one."""
    whole = ("trot tasks", "trot algorithms", "trot list", "trot study", "trot demo", "trot bench")
    return "" if part.strip() in whole else part.strip()


def _told(page: str, text: str) -> Told:
    for pattern, reason in SKIPPED.items():
        if re.search(pattern, text):
            return Told(page, text, reason=reason)
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(text)]
    if words[:1] == ["trot"]:
        return Told(page, text, ("trot", *small(words[1:])))
    if words[:1] == ["torchrun"]:
        at = words.index("trot")
        return Told(page, text, (*words[: at + 1], *small(words[at + 1 :])))
    if words[:2] in (["python", "-m"], ["python", "-c"]):
        return Told(page, text, tuple(words))
    return Told(page, text, reason=UNKNOWN)


def small(words: list[str]) -> list[str]:
    """The arguments of trot, with settings that take seconds."""
    command, study = words[0], words[1] if words[0] == "study" and len(words) > 1 else ""
    if {"--help", "--version"} & set(words):
        return words
    if command == "train":
        words = _set(words, "--iterations", "2")
        # PPO divides a batch of thousands; the others take any.
        algo = words[words.index("--algo") + 1] if "--algo" in words else "shac"
        words = words if algo in ("ppo", "ppo-finish") else _set(words, "--worlds", "8")
        return _set(words, "--seeds", "0-1") if "--seeds" in words else words
    if command == "resume":
        return _set(words, "--iterations", str(int(ENOUGH) + 2))
    if command == "compare":
        return _set(_set(_without(words, "--parallel"), "--seeds", "0"), "--minutes", "0.2")
    if command == "tune":
        # A round is as long as an episode of the Ant at least, or trials could not be told apart.
        words = _set(_set(words, "--iterations", "32"), "--set", "worlds=4")
        return _set(_set(words, "--members", "2"), "--rounds", "2")
    if command == "eval":
        return _set(words, "--episodes", "4")
    if command == "render":
        return _set(words, "--seconds", "0.3")
    if command == "bench":
        return _small_bench(words)
    if study in ("landscape", "surface", "gradients"):
        return (
            _set(_set(words, "--points", "3"), "--worlds", "2")
            if study != "gradients"
            else _set(words, "--worlds", "2")
        )
    if study == "timing":
        return _set(_set(_set(words, "--iterations", "1"), "--worlds", "8"), "--horizons", "4")
    if study in ("horizon", "deterministic", "fixed-settings", "critic"):
        words = _set(_set(_without(words, "--minutes"), "--iterations", ENOUGH), "--seeds", "0")
        return _set(words, "--horizons", "32") if study == "horizon" else words
    return words


def _small_bench(words: list[str]) -> list[str]:
    kind = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    if kind in ("", "env"):
        return [*words, "--repeats", "1"] if "--quick" in words else [*words, "--quick", "--repeats", "1"]
    words = _set(words, "--iterations", "1")
    if kind == "scale":
        words = _set(_set(words, "--worlds", "8"), "--members", "2")
    return _set(words, "--members", "2") if "--members" in words and kind == "train" else words


def _without(words: list[str], option: str) -> list[str]:
    """Without an option and its values."""
    if option not in words:
        return words
    at = words.index(option)
    end = next((k for k in range(at + 1, len(words)) if words[k].startswith("--")), len(words))
    return words[:at] + words[end:]


def _set(words: list[str], option: str, value: str) -> list[str]:
    return [*_without(words, option), option, value]


def make_folder(folder: Path) -> None:
    """What the pages speak of: the clone's files, and an algorithm of the reader's own."""
    for name in ("examples", "trot", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    # docs/add_algorithm.md goes through it piece by piece, under another name.
    example = (ROOT / "examples" / "own_algorithm" / "reinforce.py").read_text()
    (folder / "my_algorithm.py").write_text(example.replace('"reinforce"', '"mine"').replace("REINFORCE =", "MINE ="))


def prepare_runs(told: Told, folder: Path) -> None:
    """Train the runs that a command names and that nobody has trained in this folder."""
    tasks = {"Walker": "examples/walker/my_task.py:Walker"}
    for word in told.words:
        found = re.fullmatch(r"runs/(\w+)-(\w+)-0", word)
        if found and not (folder / word).exists():
            task, algo = found[1], "my_algorithm.py:MINE" if found[2] == "mine" else found[2]
            words = ["train", tasks.get(task, task), "--algo", algo, "--iterations", ENOUGH, "--worlds", "8"]
            code, said = run_trot([*words, "--device", "cpu"], folder)
            assert code == 0, said
    if told.words[1:2] == ("plot",) and "runs" in told.words and not (folder / "runs" / "cartpole-shac-0").exists():
        run_trot(["train", "cartpole", "--iterations", ENOUGH, "--worlds", "8", "--device", "cpu"], folder)


def run_trot(arguments: list[str], folder: Path) -> tuple[int, str]:
    """Call trot in a process that has its imports already; the exit code, and what it said."""
    serves = arguments[0] in ("play", "view") and "--html" not in arguments and "--help" not in arguments
    words = [*arguments, "--port", "0"] if serves else arguments
    log = folder / "output.txt"
    log.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(words, folder, log))
    process.start()
    page = 0
    end = time.monotonic() + PATIENCE_SECONDS
    while process.is_alive() and time.monotonic() < end:
        address = re.search(r"http://127\S+", log.read_text() if log.exists() else "") if serves else None
        if address and not page:
            page = _status(address[0])
            os.kill(process.pid or 0, signal.SIGINT)
        process.join(0.05)
    if process.is_alive():
        process.kill()
        return -1, "it took too long"
    if serves and page != 200:
        return -1, f"no page, status {page}: {log.read_text()}"
    return process.exitcode or 0, log.read_text()


def _status(address: str) -> int:
    """HTTP's, of a page; -1 where nobody answers."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return -1


def _child(arguments: list[str], folder: Path, log: Path) -> None:
    os.chdir(folder)
    # In the background of a script it would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Nothing opens by itself, and nobody waits for an answer.
    os.environ["BROWSER"] = "true"
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from trot.cli import main

    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_told(told: Told, folder: Path) -> tuple[int, str]:
    """The exit code, and what was said."""
    prepare_runs(told, folder)
    if told.words[0] == "trot":
        arguments = list(told.words[1:])
        if arguments[0] == "train":
            # Apart from the runs that commands after it name: these have not learned enough to be drawn.
            arguments += ["--runs", "trained"]
        return run_trot(arguments, folder)
    words = [sys.executable, *told.words[1:]] if told.words[0] == "python" else [*told.words]
    if words[0] == "torchrun":
        words = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BROWSER": "true"}
    done = subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def main(names: list[str]) -> int:
    """Run them, print a line for each, and return 1 where one fails; 2 where a page does not exist."""
    if unknown := [name for name in names if name not in [page.stem for page in PAGES]]:
        pages = ", ".join(page.stem for page in PAGES)
        print(f"there is no page {', '.join(unknown)}; there are: {pages}", file=sys.stderr)
        return 2
    # Once for all of them: every process that follows begins with these imports.
    import torch  # noqa: F401

    import trot.api.training
    import trot.view.play.player  # noqa: F401

    codes: dict[tuple[str, ...], int] = {}
    for page in PAGES:
        if not names or page.stem in names:
            # What other pages left behind would be drawn and counted with this one's runs.
            with tempfile.TemporaryDirectory() as place:
                make_folder(Path(place))
                run_page(page, Path(place), codes)
    failures = sum(code != 0 for code in codes.values())
    print(f"{len(codes)} commands ran, {failures} failed.")
    return 1 if failures else 0


def run_page(page: Path, folder: Path, codes: dict[tuple[str, ...], int]) -> None:
    """Those of its commands that have no exit code yet."""
    for told in told_commands(page):
        if told.reason:
            print(f"{told.page}: {told.text}\n    not run: {told.reason}", flush=True)
        if told.reason or told.words in codes:
            continue
        began = time.monotonic()
        code, said = run_told(told, folder)
        codes[told.words] = code
        seconds = time.monotonic() - began
        shown = shlex.join(told.words)
        what = "" if shown == told.text else f"\n    as {shown}"
        print(f"{told.page}: {told.text}{what}\n    {'FAILED' if code else 'ok'}, {seconds:.1f} s", flush=True)
        if code:
            print("    " + "\n    ".join(said.strip().splitlines()[-6:]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
