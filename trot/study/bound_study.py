"""`trot study bound`: how much better than its policy a robot could act, where it runs steadily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from trot.command_line import WORLDS
from trot.study.improved_actions import Bound
from trot.study.improved_actions import bound as bound
from trot.study.improver import Lengths
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder
from trot.study.subject import find_subject


@dataclass(frozen=True, kw_only=True)
class BoundSettings(StudySettings):
    """Runs, and the stretch of steps whose actions are improved."""

    runs: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")
    ]
    """Run folders, one line each."""
    lengths: tyro.conf.OmitArgPrefixes[Lengths] = field(default_factory=Lengths)
    num_worlds: Annotated[int | None, WORLDS] = None
    """64 on CUDA, 8 on the CPU unless given."""
    checkpoint: str = "best"
    """Of the runs."""
    seed: int = 0
    """Of the starts."""

    @property
    def subject(self) -> str:
        return "-".join(dict.fromkeys(find_subject(each).name for each in self.runs)) or "nothing"


def run(settings: BoundSettings, folder: StudyFolder) -> str:
    """Improve the actions of every run; write rewards, a table and a figure."""
    from trot.study.draw_bound import draw_bound

    if not settings.runs:
        raise ValueError("name one run or more: trot study bound RUN...")
    # All before the first is measured: what is wrong with the last one is told at once.
    for each in settings.runs:
        subject = find_subject(each)
        subject.agent(settings.checkpoint)
        settings.lengths.require_sensible(subject.task.episode_length)
    found = [
        bound(
            each,
            settings.lengths,
            settings.num_worlds,
            settings.checkpoint,
            settings.device,
            settings.seed,
            show_progress=True,
        )
        for each in settings.runs
    ]
    folder.write_arrays(
        "rewards.npz",
        {f"{case.name}-{what}": getattr(case, what) for case in found for what in ("policy", "improved")},
    )
    folder.write_table("bound.csv", _table(found))
    folder.write_figure("bound", draw_bound(found))
    return summary(found)


def _table(found: Sequence[Bound]) -> dict[str, list[object]]:
    gains = [case.gain_per_thousand for case in found]
    columns: dict[str, list[object]] = {
        "run": [case.name for case in found],
        "worlds": [len(case.gains) for case in found],
        "fell": [case.fell for case in found],
        "per_thousand": [case.per_thousand for case in found],
    }
    for place, name in enumerate(("gain_per_thousand", "gain_low", "gain_high")):
        columns[name] = [gain[place] for gain in gains]
    for name in dict.fromkeys(name for case in found for name in case.terms):
        for place, whose in enumerate(("policy", "improved")):
            columns[f"{name}_{whose}"] = [case.terms[name][place] if name in case.terms else "" for case in found]
    return columns


def summary(found: Sequence[Bound]) -> str:
    """A line for each run, and its reward terms below."""
    width = max(len("run"), *(len(case.name) for case in found)) + 2
    lines = [f"{'run':<{width}}{'worlds':>6}{'policy':>10}{'improved':>10}{'gain':>9}{'95 % interval':>20}{'gain':>9}"]
    for case in found:
        policy, (gain, low, high) = case.per_thousand, case.gain_per_thousand
        # Of returns that may be below 0 a share says nothing.
        share = f"{gain / policy:.1%}" if policy > 0 else "-"
        lines.append(
            f"{case.name:<{width}}{len(case.gains):>6}{policy:>10.1f}{policy + gain:>10.1f}{gain:>9.1f}"
            f"{f'{low:.1f} to {high:.1f}':>20}{share:>9}"
        )
        terms = ", ".join(f"{name} {own:.3f} to {best:.3f}" for name, (own, best) in case.terms.items())
        lines.append(f"{'':<{width}}per step of stretch and tail: {terms}")
        if case.fell:
            lines.append(f"{'':<{width}}left out: {case.fell} worlds in which the policy fell before")
    lines.append("Rewards per 1000 steps. The gain is that of the stretch and the tail behind it, for the steps of the")
    lines.append("stretch, whose actions alone were improved.")
    return "\n".join(lines)


BOUND = Study(
    name="bound",
    summary="how much better than its policy a robot could act: actions improved by gradients, where it runs steadily",
    settings=BoundSettings,
    run=run,
)
