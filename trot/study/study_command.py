"""`trot study`: one command for each figure that explains why learning through gradients works."""

from __future__ import annotations

from trot.command_line import parse
from trot.study import STUDIES, find_study
from trot.study.study_folder import StudyFolder
from trot.view.plots.plot import has_matplotlib


def study_command(arguments: list[str]) -> int:
    """Redraw a figure that explains why learning through gradients works: `trot study` lists them."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print_studies()
        return 0
    name, *rest = arguments
    study = find_study(name)
    settings = parse(study.settings, f"trot study {name}", study.summary, rest)
    # Better told before long work than after it.
    if not has_matplotlib("trot study needs"):
        return 2
    folder_name = settings.name or f"{name}-{settings.subject}"
    command = ["trot", "study", *arguments]
    if study.goes_on:
        folder = StudyFolder(settings.studies / folder_name, command)
        print(study.run(settings, folder))
    else:
        folder = StudyFolder.create(settings.studies, folder_name, command)
        try:
            print(study.run(settings, folder))
        except BaseException:
            folder.discard()
            raise
    for path in folder.written:
        print(path)
    return 1 if folder.failures else 0


def print_studies() -> None:
    """One line per study."""
    print(f"{'study':<18}what it shows")
    for name in STUDIES:
        print(f"{name:<18}{find_study(name).summary}")
    print("Options of one: trot study landscape --help")
