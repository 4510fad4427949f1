"""Runs whose metrics are written by hand, row by row."""

from trot.learn.algorithms.shac import Shac
from trot.runs.folder import RunFolder

LABELS = {"shac": "SHAC", "bptt": "BPTT"}


def make_run(root, returns, task="ant", algo="shac", seed=0, steps=100, seconds=1.0, name=None, **columns):
    """A run with one row per return, every so many steps and seconds; None: no episode has finished yet."""
    run = RunFolder.create(
        root,
        name or f"{task}-{algo}-{seed}",
        {"task": task, "algo": algo, "seed": seed, "label": LABELS.get(algo, algo)},
    )
    rows = []
    for index, value in enumerate(returns):
        row = dict.fromkeys(Shac.all_columns(), 0.0)
        row |= {"episode_return": 0.0 if value is None else value, "episodes": 0.0 if value is None else 1.0}
        row |= {key: values[index] for key, values in columns.items()}
        number = index + 1
        rows.append({"iteration": number, "steps": steps * number, "seconds": seconds * number} | row)
    run.append_metrics(rows)
    return run.path


def rewrite_seconds(path, seconds):
    head, *lines = (path / "metrics.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    new = [",".join([*row[:2], str(moment), *row[3:]]) for row, moment in zip(rows, seconds, strict=True)]
    (path / "metrics.csv").write_text("\n".join([head, *new]) + "\n")
