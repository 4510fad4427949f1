"""Training in rounds: runs of one batch learn up to an iteration, are ranked, and others take over from them.

So do searches for settings, and contests between candidates.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from trot.learn.capture import NumberedRun
from trot.learn.learner import Learner
from trot.learn.resume import GoesOn, load_state, refuse_other_columns
from trot.learn.resume_together import stopped_at_a_bad_gradient
from trot.learn.run_record import RunRecord
from trot.learn.trainer import Trainer
from trot.runs.folder import METRICS, RunFolder

BEST = "best.agent."
"""How names begin, in the state of a learner, of what belongs to its best agent."""


def train_up_to(
    end: int,
    runs: Sequence[RunFolder],
    learner: Learner,
    again: str,
    device: str = "auto",
    phases: Mapping[str, NumberedRun] | None = None,
) -> None:
    """Train the runs, a member of the learner each, up to this iteration, from wherever each was left.

    Raises KeyboardInterrupt or SystemExit after a signal, all saved; `again` is the command that goes on then.
    """
    asked = [GoesOn.read(run, device, None, None, None) for run in runs]
    stopped = [stopped_at_a_bad_gradient(run) for run in runs]
    ended = [one.done >= end or one.out_of_time or failed for one, failed in zip(asked, stopped, strict=True)]
    for member, (one, failed) in enumerate(zip(asked, stopped, strict=True)):
        refuse_other_columns(learner, one.columns, one.run)
        if one.done:
            load_state(learner, one.saved["learner"], one.run, member)
        if not failed:
            one.prepare_folder()
    if all(ended):
        return
    first = min(one.done for one, over in zip(asked, ended, strict=True) if not over)
    records = [_record(one, over, first, again) for one, over in zip(asked, ended, strict=True)]
    trainer = Trainer(records, learner, end, phases, asked[0].settings.settings.iterations)
    trainer.run()
    trainer.interruption.end(f"Stopped after iteration {trainer.iteration}. Go on: {again}")


def _record(one: GoesOn, ended: bool, first: int, again: str) -> RunRecord:
    waits_with = one.saved["learner"] if one.done > first and not ended else None
    schedule, seconds = one.settings.schedule, one.saved["seconds"]
    return RunRecord(one.run, schedule, one.done, seconds, waits_with, ended, way_on=again)


def take_over(run: RunFolder, parent: RunFolder, saved: dict[str, Any]) -> None:
    """Let a run begin with a checkpoint of another one, and with that one's rows of metrics up to there.

    The checkpoint `last` comes last: a folder that has it is complete.
    """
    shutil.copyfile(parent.path / METRICS, run.path / METRICS)
    run.truncate_metrics(saved["iteration"], saved["columns"], saved["metrics_checksum"])
    best = {name.removeprefix(BEST): part for name, part in saved["learner"].items() if name.startswith(BEST)}
    if run.best_return() is not None:
        run.save_checkpoint("best", {"agent": best})
    run.save_checkpoint("last", {**saved, "finished": False})


def score(run: RunFolder) -> float | None:
    """What runs are ranked by: the mean return of about the last hundred episodes. None where there is none."""
    row = run.last_metrics()
    if not row or row["stopped"] or not row["episodes"] or not math.isfinite(row["episode_return"]):
        return None
    return row["episode_return"]
