"""The CUDA source of the kernels compiles, GPU or not: Warp brings NVIDIA's compiler along."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import warp as wp

from trot.envs import cart_and_pole, step_end_kernel, torso
from trot.learn import along_steps
from trot.sim import guard_kernels
from trot.sim.build import Kernel, Variant, define_programs, source, start_warp
from trot.sim.launch import CUDA_LANES
from trot.sim.layout import kernel_layout
from trot.sim.model import Model
from trot.sim.programs import BACKWARD, FORWARD, REPORT_CONTACTS, REPORT_SIZES

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no CUDA compiler for macOS")
HOPPER_GENERATION = 90


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it compiles does not depend on how well; -O1 takes half as long as -O3."""
    monkeypatch.setattr(wp.config, "optimization_level", 1)


def compiled(kernel: Kernel, folder: Path) -> str:
    (path,) = wp.compile_aot_module(kernel.compiled.module, arch=HOPPER_GENERATION, module_dir=folder, use_ptx=True)
    return path.read_text()


@pytest.mark.parametrize("robot", ["every_joint", "every_pair", "every_law", "every_bond", "every_muscle"])
@pytest.mark.parametrize(
    "variant",
    [Variant(torch.float32, store_factor=True), pytest.param(Variant(torch.float64, True), marks=pytest.mark.campaign)],
    ids=str,
)
def test_kernels_of_a_model(robot: str, variant: Variant, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(robot)
    programs = (FORWARD, BACKWARD, REPORT_CONTACTS, REPORT_SIZES)
    text = source(kernel_layout(model, CUDA_LANES), variant, programs)
    start_warp()
    bodies = {program.function: (program.groups, program.body()) for program in programs}
    kernels = define_programs(text, bodies, variant.dtype, torch.device("cpu"))
    found = compiled(kernels[FORWARD.function], tmp_path)
    for program in programs:
        assert f".entry {program.function}_" in found
    assert "bar.warp.sync" in found, "32 lanes share a world, and wait for each other"


ROW_KERNELS = {
    "torso": torso._measure._kernels,
    "cart_and_pole": cart_and_pole._measure._kernels,
    "guard": guard_kernels._kernels,
    "step_end": step_end_kernel._kernels,
    "along_steps": along_steps._kernels,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ROW_KERNELS)
def test_kernels_over_rows(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    start_warp()
    kernels = ROW_KERNELS[name]._define(dtype, torch.device("cpu"))
    found = compiled(next(iter(kernels.values())), tmp_path)
    assert all(f".entry {kernel}_" in found for kernel in kernels)
    assert ("vote.sync.all" in found) is (name == "guard"), "32 lanes agree on whether their world is sound"
