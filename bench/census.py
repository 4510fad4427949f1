"""How many robot files below some folders load, why the others do not, and whether the first move as in MuJoCo.

python -m bench.census FOLDER ...                   reasons by count, and shares
python -m bench.census FOLDER ... --accelerations   compares accelerations too, some seconds per robot the first time

A robot is a URDF with two or more moving joints, or an MJCF file with an actuator or two moving joints. Left out are
- files of another root element than <mujoco> or <robot>, and xacro templates,
- fragments: MJCF files that others include and that MuJoCo does not read alone,
- scenes: MJCF files without joints of their own that include a file which is a robot by itself.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tyro

from bench.census_child import Verdict
from bench.report import markdown_table
from bench.robots import ROOT
from trot.sim.doctor import LARGEST_ACCELERATION_ERROR

MOVING = ("revolute", "continuous", "prismatic", "planar", "floating")
"""The joints of a URDF that are no welds."""


@dataclass(frozen=True)
class CensusSettings:
    """Which files to load, and how."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Every .xml, .urdf and .mjcf below them is looked at."""
    limit: float = 60.0
    """Seconds for one file; more with --accelerations, which compiles."""
    jobs: int = 1
    """Processes at a time."""
    accelerations: bool = False
    """Compare what loads with MuJoCo."""
    options: str = "{}"
    """What load_model() is called with besides the path, as JSON: '{"repair_inertia": true}'."""
    worst: int = 5
    """How many of the largest acceleration errors are named."""
    json: Path | None = None
    """Write every verdict to this file too."""


@dataclass(frozen=True)
class RobotFile:
    """What the text of a file says by itself."""

    path: Path
    kind: str
    """MJCF or URDF."""
    moving_joints: int
    actuators: int
    includes: tuple[Path, ...]


@dataclass
class Census:
    """Files by what they are, and the verdicts on those that are robots."""

    verdicts: dict[RobotFile, Verdict] = field(default_factory=dict)
    no_robots: int = 0
    fragments: int = 0
    scenes: int = 0


def run_census(settings: CensusSettings) -> Census:
    """Load, count and print."""
    missing = [str(folder) for folder in settings.folders if not folder.is_dir()]
    if missing:
        raise SystemExit(f"no such folder: {missing[0]}")
    paths = sorted({path.resolve() for folder in settings.folders for path in _files(folder)})
    files = [file for file in map(read_file, paths) if file is not None]
    # A URDF includes nothing, so that its text tells whether it is a robot.
    candidates = [file for file in files if file.kind == "MJCF" or file.moving_joints >= 2]
    census = sort_out(judged(candidates, settings))
    census.no_robots += len(paths) - len(candidates)
    print(summary(census, settings.worst))
    if settings.json is not None:
        rows = [{"path": str(file.path), "kind": file.kind, **asdict(v)} for file, v in census.verdicts.items()]
        settings.json.write_text(json.dumps(rows, indent=1))
    return census


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in (".xml", ".urdf", ".mjcf") and path.is_file())


def read_file(path: Path) -> RobotFile | None:
    """None for what is neither MJCF nor URDF."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError, LookupError):
        return None
    if root.tag == "robot":
        if any("xacro" in str(element.tag) for element in root.iter()):
            return None
        moving = sum(joint.get("type") in MOVING for joint in root.findall("joint"))
        return RobotFile(path, "URDF", moving, 0, ())
    if root.tag != "mujoco":
        return None
    moving = sum(len(list(body.iter(tag))) for body in root.iter("worldbody") for tag in ("joint", "freejoint"))
    actuators = sum(len(part) for part in root.findall("actuator"))
    includes = tuple((path.parent / element.get("file", "")).resolve() for element in root.iter("include"))
    return RobotFile(path, "MJCF", moving, actuators, includes)


def sort_out(verdicts: dict[RobotFile, Verdict]) -> Census:
    """Keep the robots, count the rest."""
    census = Census()
    included = {path for file in verdicts for path in file.includes}
    alone = {file.path for file, verdict in verdicts.items() if verdict.mujoco is None and _is_robot(file, verdict)}
    for file, verdict in verdicts.items():
        if file.path in included and verdict.mujoco is not None:
            census.fragments += 1
        elif file.moving_joints == 0 and any(path in alone for path in file.includes):
            census.scenes += 1
        elif not _is_robot(file, verdict):
            census.no_robots += 1
        else:
            census.verdicts[file] = verdict
    return census


def _is_robot(file: RobotFile, verdict: Verdict) -> bool:
    moving = file.moving_joints if verdict.moving_joints is None else verdict.moving_joints
    actuators = file.actuators if verdict.actuators is None else verdict.actuators
    # Every joint of a URDF gets a motor by trot: only joints tell there.
    return moving >= 2 or (file.kind == "MJCF" and actuators >= 1)


def judged(files: list[RobotFile], settings: CensusSettings) -> dict[RobotFile, Verdict]:
    """Every file's verdict, in the files' order, from child processes."""
    shares = [files[start :: settings.jobs] for start in range(settings.jobs)]
    with ThreadPoolExecutor(settings.jobs) as pool:
        found: dict[RobotFile, Verdict] = {}
        for share in pool.map(lambda share: dict(_judge_all(share, settings)), shares):
            found |= share
    return {file: found[file] for file in files}


def _judge_all(files: list[RobotFile], settings: CensusSettings) -> Iterator[tuple[RobotFile, Verdict]]:
    child = None
    for count, file in enumerate(files, 1):
        if child is None:
            child = _Child(settings)
        verdict = child.judge(file.path)
        if child.ended:
            child = None
        if count % 50 == 0:
            print(f"{count} of {len(files)} files", file=sys.stderr, flush=True)
        yield file, verdict
    if child is not None:
        child.end()


class _Child:
    """A process that judges files, one after the other, until one takes too long or brings it down."""

    def __init__(self, settings: CensusSettings) -> None:
        self.limit = settings.limit
        self.ended = False
        # MuJoCo writes a log where it stands.
        self._folder = tempfile.TemporaryDirectory()
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.census_child"], cwd=self._folder.name, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self._tell({"options": json.loads(settings.options), "accelerations": settings.accelerations})

    def judge(self, path: Path) -> Verdict:
        self._write(f"{path}\n")
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self.limit)
        answer = self._process.stdout.readline() if ready else b""
        if answer:
            return Verdict(**json.loads(answer))
        self.end()
        told = f"BUG: exit code {self._process.returncode}" if ready else f"takes longer than {self.limit:g} s"
        return Verdict(reasons=[told])

    def end(self) -> None:
        self.ended = True
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _tell(self, message: dict[str, Any]) -> None:
        self._write(json.dumps(message) + "\n")

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()


def summary(census: Census, worst: int) -> str:
    """Shares, reasons by count, notes by count, and the largest acceleration errors."""
    others = f"{census.no_robots} files that are no robots, {census.scenes} scenes, {census.fragments} fragments"
    parts = [share_table(census), f"Left out: {others}."]
    refused = {file: verdict.reasons for file, verdict in census.verdicts.items() if verdict.reasons}
    noted = {file: verdict.notes for file, verdict in census.verdicts.items() if verdict.notes}
    for title, told in (("refused because", refused), ("loads with a note", noted)):
        if told:
            parts.append(reason_table(title, told))
    errors = [(v.acceleration_error, str(f.path), v.acceleration_where) for f, v in census.verdicts.items()]
    compared = sorted(((e, path, where) for e, path, where in errors if e is not None), reverse=True)
    if compared:
        good = sum(error <= LARGEST_ACCELERATION_ERROR for error, _, _ in compared)
        parts.append(
            f"Accelerations of {len(compared)} robots were compared: {good} within {LARGEST_ACCELERATION_ERROR:g} of "
            "the largest in their state. The largest errors:"
        )
        rows = [[path, f"{error:.1e}", where or ""] for error, path, where in compared[:worst]]
        parts.append(markdown_table(["robot", "error", "at"], rows))
    return "\n\n".join(parts)


def share_table(census: Census) -> str:
    """How many load, of all and of those that MuJoCo reads as they are."""
    rows = []
    for kind in ("URDF", "MJCF"):
        verdicts = [verdict for file, verdict in census.verdicts.items() if file.kind == kind]
        loads = sum(not verdict.reasons for verdict in verdicts)
        read = [verdict for verdict in verdicts if verdict.mujoco is None]
        of_read = sum(not verdict.reasons for verdict in read)
        counts = [str(len(verdicts)), _share(loads, len(verdicts)), str(len(read)), _share(of_read, len(read))]
        rows.append([kind, *counts])
    return markdown_table(["", "robots", "load", "MuJoCo reads as they are", "of these load"], rows)


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / max(whole, 1):.0f} %)"


def reason_table(title: str, told: dict[RobotFile, list[str]]) -> str:
    """Sentences with names and numbers taken out, by the number of robots that have them."""
    counts: Counter[tuple[str, str]] = Counter()
    only: Counter[tuple[str, str]] = Counter()
    for file, sentences in told.items():
        kinds = {(reason_kind(sentence), file.kind) for sentence in sentences}
        counts.update(kinds)
        if len(kinds) == 1:
            only.update(kinds)
    sentences_of = Counter[str]()
    for (sentence, _), count in counts.items():
        sentences_of[sentence] += count
    rows = [
        [str(total), str(counts[sentence, "URDF"]), str(counts[sentence, "MJCF"]), _total(only, sentence), sentence]
        for sentence, total in sentences_of.most_common()
    ]
    return markdown_table(["robots", "URDF", "MJCF", "for this alone", title], rows)


def _total(counts: Counter[tuple[str, str]], sentence: str) -> str:
    return str(counts[sentence, "URDF"] + counts[sentence, "MJCF"])


def reason_kind(sentence: str) -> str:
    """A sentence's first words, without names and numbers: the same for every robot with the same trouble."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", sentence.splitlines()[0] if sentence else "")
    text = re.sub(r"(?<=\s)/\S+", "...", text).replace("bodies '", "body '")
    text = re.sub(r"-?\b\d+(\.\d+)?(e[-+]?\d+)?\b", "#", text)
    text = re.sub(r"s? '\.\.\.'(, '\.\.\.')*( and ('\.\.\.'|# more))?(?= (is|are)\b)?", " '...'", text)
    text = re.sub(r"\b(is|are each|are) (?=an? |left|not)", "is ", text)
    return re.split(r"(?<=[a-z.])\. |; |: only ", text, maxsplit=1)[0].replace("|", "/")[:110]


if __name__ == "__main__":
    run_census(tyro.cli(CensusSettings))
