"""Which runs of a comparison share a process: one each, or all seeds of a variant in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trot.compare.plan import Member
from trot.learn.algorithms import find_algorithm


@dataclass(frozen=True)
class Training:
    """Runs that one process brings to their end; several differ in their seeds alone."""

    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """Of its log."""
        first, *others = self.members
        return first.name if not others else f"{first.stem}-{'_'.join(str(member.seed) for member in self.members)}"

    def command(self) -> list[str]:
        """Of trot."""
        first, *others = self.members
        if not others:
            return first.command()
        if first.exists:
            return first.resume_command([member.folder for member in self.members])
        seeds = [str(member.seed) for member in self.members]
        return ["train", *first.arguments, "--seeds", *seeds, "--name", first.stem]


def trainings(members: Sequence[Member], together: bool) -> list[Training]:
    """The processes that train these runs, in their order; `together` joins seeds where the algorithm can do that."""
    groups: dict[object, list[Member]] = {}
    for member in members:
        joins = together and takes_members(member.variant.algo)
        groups.setdefault((member.stem, member.exists) if joins else member.name, []).append(member)
    return [Training(tuple(group)) for group in groups.values()]


def takes_members(algo: str) -> bool:
    """Whether several seeds can learn in one batch by this algorithm."""
    return bool(getattr(find_algorithm(algo).learner, "takes_members", False))
