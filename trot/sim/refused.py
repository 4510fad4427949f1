"""What `trot check` says of a robot that load_model() refuses: every reason with its line, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

from trot.sim.source_lines import SourceLines

_LEAVE_OUT = re.compile(r"leave_out=\('(\w+)',\)")
_OPTIONS = {
    "repair_inertia=True": "--repair-inertia",
    "package_path=": "--package-path FOLDER",
    "floating_base=True": "--floating-base",
}
"""What a sentence may advise, and how the command line spells it."""


def explain_refusal(path: Path, message: str) -> str:
    """From ModelError's message: a line per reason with the place in the file, then the options that may help."""
    reasons = message.removeprefix(f"{path}: ").split("\n  ")
    lines = SourceLines(path)
    told = []
    for reason in reasons:
        where = lines.find(reason)
        told.append(reason if where is None else f"{where}: {reason}")
    counted = "1 reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
    options = _options(message)
    advice = [f"What to do: edit the file, or try  trot check {path} {options}"] if options else []
    if (whole := _included_by(path)) and "Error" in message:
        advice.append(f"What to do: {whole} includes this file and may have what it lacks. Try  trot check {whole}")
    return "\n".join([f"{path} cannot be simulated as it is, for {counted}:", *(f"  {line}" for line in told), *advice])


def _options(message: str) -> str:
    left_out = sorted(set(_LEAVE_OUT.findall(message)))
    found = [f"--leave-out {' '.join(left_out)}"] if left_out else []
    return " ".join([*found, *(option for word, option in _OPTIONS.items() if word in message)])


def _included_by(path: Path) -> Path | None:
    """A file beside this one that includes it; of several the first by name."""
    including = re.compile(rf"<include\b[^>]*\bfile\s*=\s*[\"'](?:\./)?{re.escape(path.name)}[\"']")
    beside = (other for other in sorted(path.parent.glob("*.xml")) if other != path)
    return next((other for other in beside if including.search(other.read_text("utf-8", errors="replace"))), None)
