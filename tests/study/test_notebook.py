"""examples/studies.ipynb: its cells run from top to bottom, and find what its text says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "studies.ipynb"
CHECKS = """
assert found.shift[3] == 0 and np.isfinite(found.window.derivative).all() and np.ptp(found.episode.loss) > 0
assert gradients.iterations.tolist() == [0, 30]
assert counts.sum() == gradients.window.entries.size and (gradients.window.norm > 0).all()
assert growth.norms.shape == (65, 16)
"""


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.campaign
def test_it_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason='needs Matplotlib: pip install "trot[plot]"')
    code = "\n".join([*cells("code"), CHECKS])
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "norm of the gradient: whole episode" in done.stdout


def test_it_is_kept_without_outputs_and_explains_each_step() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    assert len(cells("markdown")) == len(cells("code"))
