"""`trot study contact`: what soft contact does to SHAC's gradient and to learning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from trot.command_line import WORLDS
from trot.learn.gradient_health import STEEP
from trot.progress import Progress
from trot.study.contact_gradients import Constant, ContactCase, contact, require_factor
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder
from trot.study.subject import find_subject


@dataclass(frozen=True, kw_only=True)
class ContactSettings(StudySettings):
    """A task or a run, and what to multiply by what."""

    task_or_run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK_OR_RUN")]
    """One of `trot tasks`, path/to/file.py:Class, or the folder of a run by shac, shac-no-critic or bptt."""
    factors: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    """On the robot's own contact constant, a column of the figure each."""
    vary: tuple[Constant, ...] = ("stiffness", "friction_slope")
    """stiffness: of contact, and its damping with it; friction_slope: friction per sliding speed while it sticks."""
    num_worlds: Annotated[int | None, WORLDS] = None
    """512 on CUDA, 64 on the CPU unless given. Trainings have the algorithm's own number."""
    horizon: int | None = None
    """Steps of a window; the run's own, or SHAC's, unless given."""
    substeps: int | None = None
    """Physics steps per action; the task's own unless given."""
    windows: int = 4
    """That each world acts through."""
    checkpoint: str = "last"
    """Of a run; one that holds a value function."""
    train: int = 0
    """Iterations of a training from scratch for each case; none unless given."""
    seed: int = 0
    """Of starts and noise."""

    def __post_init__(self) -> None:
        if not self.factors or not self.vary:
            raise ValueError("give at least one factor, and at least one constant to vary")
        for factor in self.factors:
            require_factor(factor)

    @property
    def subject(self) -> str:
        return find_subject(self.task_or_run).name


def run(settings: ContactSettings, folder: StudyFolder) -> str:
    """Measure every case; write a table, the returns of trainings and a figure."""
    from trot.study.draw_contact import draw_contact

    cases = _cases(settings)
    folder.write_table("contact.csv", _table(cases))
    if settings.train:
        folder.write_arrays("returns.npz", {f"{case.constant}-{case.factor:g}": case.returns for case in cases})
    folder.write_figure("contact", draw_contact(cases))
    return summary(cases)


def _cases(settings: ContactSettings) -> list[ContactCase]:
    pairs = [(constant, factor) for constant in settings.vary for factor in sorted(set(settings.factors))]
    # With a factor of 1 all constants give the same.
    sources = {pair: (settings.vary[0], 1.0) if pair[1] == 1 else pair for pair in pairs}
    found: dict[tuple[Constant, float], ContactCase] = {}
    done, measured = 0, dict.fromkeys(sources.values())
    with Progress(len(measured) * (settings.windows + settings.train)) as progress:
        for constant, factor in measured:

            def each(constant: Constant = constant, factor: float = factor) -> None:
                nonlocal done
                done += 1
                progress.update(done, {constant: factor})

            found[constant, factor] = contact(
                settings.task_or_run,
                constant,
                factor,
                settings.num_worlds,
                settings.horizon,
                settings.substeps,
                settings.windows,
                settings.checkpoint,
                settings.train,
                settings.device,
                settings.seed,
                each=each,
            )
    return [replace(found[source], constant=constant) for (constant, _), source in sources.items()]


def _table(cases: Sequence[ContactCase]) -> dict[str, list[object]]:
    return {
        "constant": [case.constant for case in cases],
        "factor": [case.factor for case in cases],
        "norm": [case.signal.norm for case in cases],
        "variance": [case.signal.variance for case in cases],
        "signal_to_noise": [case.signal.signal_to_noise for case in cases],
        "cosine_of_halves": [case.signal.cosine for case in cases],
        "steep_worlds": [case.steep for case in cases],
        "blown_up_worlds": [case.blown_up for case in cases],
        "not_finite_worlds": [case.not_finite for case in cases],
        "return": [case.last_return for case in cases],
        "training_stopped_in": ["" if case.stopped_in is None else case.stopped_in for case in cases],
    }


def summary(cases: Sequence[ContactCase]) -> str:
    """One line per case."""
    trained = any(len(case.returns) for case in cases)
    head = f"{'':<16}{'factor':>7}{'norm':>10}{'deviation':>11}{'signal/noise':>14}{'cosine':>8}"
    lines = [f"{head}{'steep':>7}{'blown up':>10}" + (f"{'return':>10}" if trained else "")]
    for case in cases:
        signal = case.signal
        line = (
            f"{case.constant.replace('_', ' '):<16}{case.factor:>7g}{signal.norm:>10.3g}"
            f"{math.sqrt(signal.variance):>11.3g}{signal.signal_to_noise:>14.2f}{signal.cosine:>8.2f}"
            f"{case.steep:>7.0%}{case.blown_up:>10.0%}"
        )
        note = f"  not finite in {case.not_finite:.0%} of the worlds, left out" if case.not_finite else ""
        if case.stopped_in is not None:
            note += f"  training stopped in iteration {case.stopped_in}: gradient not finite"
        lines.append(line + (f"{case.last_return:>10.1f}" if trained else "") + note)
    lines.append(
        "Gradients of single worlds by the policy's weights: norm of their mean, standard deviation, norm over"
    )
    lines.append(
        "standard error (noise alone: 1), cosine between the means of two halves (noise alone: 0); worlds whose"
    )
    lines.append(f"gradient by the state exceeds {STEEP:g} in a window, and worlds that blew up.")
    return "\n".join(lines)


CONTACT = Study(
    name="contact",
    summary="scatter of the policy gradient, and learning, against contact stiffness and the slope of friction",
    settings=ContactSettings,
    run=run,
)
