"""What a study is to the command line: settings, and a function that fills a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trot.study.study_folder import StudyFolder


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What every study has; its own settings come on top, in a dataclass that inherits from this one."""

    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    studies: Path = Path("studies")
    """Where the folder of the study is made."""
    name: str | None = None
    """Of that folder; a name that is taken gets a number."""

    @property
    def subject(self) -> str:
        """What is studied, for the folder's name."""
        raise NotImplementedError


@dataclass(frozen=True)
class Study:
    """One line in trot.study makes it known by name."""

    name: str
    summary: str
    """One line for help texts."""
    settings: type[StudySettings]
    run: Callable[[Any, StudyFolder], str]
    """Settings and folder to a sentence or a table that says what was found."""
    goes_on: bool = False
    """Whether the same command goes on in the same folder, which the study makes itself once its input is checked."""
