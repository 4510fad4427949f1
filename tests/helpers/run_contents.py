"""Settings and rows of metrics, for run folders that nothing was trained in.

The fixture `run` is such a folder, with these settings.
"""

SETTINGS = {"task": "cartpole", "algo": "shac", "seed": 3, "iterations": 500, "gamma": 0.99, "hidden": [64, 64]}


def rows(*iterations):
    return [{"iteration": i, "return": i / 3, "best_return": i / 2, "seconds": 60.0 * i} for i in iterations]
