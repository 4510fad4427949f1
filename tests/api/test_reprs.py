"""What Python prints of models, environments and runs: one line with what a reader wants."""

import torch
from docking import MASS
from run_contents import SETTINGS
from small_run import DOCKING

import trot
from trot.runs.folder import RunFolder


def test_model(every_muscle):
    model = trot.make_env(DOCKING, 1).task.model
    assert repr(model) == f"Model(1 bodies, 1 dofs, 1 controls, {MASS:.4g} kg)"
    told = f"{every_muscle.num_muscles} muscles, {every_muscle.source.body_mass[1:].sum():.4g} kg)"
    assert repr(every_muscle).endswith(told)


def test_env():
    assert repr(trot.make_env("ant", 64)) == "Env(ant, 64 worlds, cpu, float32)"
    assert repr(trot.make_env(DOCKING, 1, dtype=torch.float64)) == "Env(Docking, 1 world, cpu, float64)"


def test_run_folder(tmp_path):
    settings = {**SETTINGS, "task": "somewhere/my_task.py:Walker", "algo": "shac", "seed": 3}
    run = RunFolder.create(tmp_path, "walk", settings)
    path = tmp_path / "walk"
    assert repr(run) == f"RunFolder({path}: Walker, shac, seed 3, no iteration yet)"
    run.append_metrics([{"iteration": 1, "best_return": float("-inf")}])
    assert repr(run) == f"RunFolder({path}: Walker, shac, seed 3, 1 iterations)"
    run.append_metrics([{"iteration": 2, "best_return": 7.25}])
    assert repr(RunFolder.open(path)) == f"RunFolder({path}: Walker, shac, seed 3, 2 iterations, best return 7.2)"
    assert repr(trot.load_run(path)) == f"TrainedRun({path}: Walker, shac, seed 3, 2 iterations, best return 7.2)"
    with (path / "metrics.csv").open("a") as file:
        file.write("3,4,5\n")
    assert repr(run).endswith("seed 3, damaged metrics)")
