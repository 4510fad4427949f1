"""examples/quickstart.ipynb and own_robot.ipynb: their cells run from top to bottom, here with fewer iterations."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = {
    "quickstart": (
        {"stop_at=-600": "iterations=9, num_worlds=8", "episodes=64": "episodes=4", "seconds=4": "seconds=0.2"},
        "assert actions.grad[:, 0, 0].abs().min() > 0 and run.returns.shape == (9,) and total.isfinite().all()\n"
        "assert 'episode_return' in run.metrics and len(run.evaluate(3).returns) == 3",
    ),
    "own_robot": (
        {"iterations=150": "iterations=10, num_worlds=8", "seconds=5": "seconds=0.2", "range(20)": "range(8)"},
        "assert totals[-1] > totals[0] and run.task == 'python:Dog' and run.metrics['faults'][-1] == 0",
    ),
}


def cells(name: str, kind: str) -> list[str]:
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ("matplotlib", "viser"):
        pytest.importorskip(extra, reason='needs the extras: pip install "trot[plot,view]"')
    shorter, checks = NOTEBOOKS[name]
    code = "\n".join([*cells(name, "code"), checks])
    for text, short in shorter.items():
        assert text in code
        code = code.replace(text, short)
    monkeypatch.chdir(tmp_path)
    # As in a notebook: a class that a cell defines belongs to the program itself.
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec(compile(code, f"{name}.ipynb", "exec"), notebook.__dict__)
    assert "Run folder: runs" in capsys.readouterr().out


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_without_outputs_and_explains_each_step(name: str) -> None:
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    assert len(cells(name, "markdown")) == len(cells(name, "code"))
