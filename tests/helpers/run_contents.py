"""Settings and rows of metrics, for run folders that nothing was trained in, and what a run folder holds.

The fixture `run` is such a folder, with these settings.
"""

import re

SETTINGS = {"task": "cartpole", "algo": "shac", "seed": 3, "iterations": 500, "gamma": 0.99, "hidden": [64, 64]}


def rows(*iterations):
    return [{"iteration": i, "return": i / 3, "best_return": i / 2, "seconds": 60.0 * i} for i in iterations]


def file_names(folder):
    """Of everything in it, without the time, machine and process that TensorBoard puts behind its files' names."""
    return {re.sub(r"tfevents\..*", "tfevents", str(file.relative_to(folder))) for file in folder.rglob("*")}
