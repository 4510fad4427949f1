"""Run folders, written and read."""

from trot.runs.folder import RunFolder as RunFolder
