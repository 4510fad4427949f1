"""Imports go one way, the lazy ones inside functions included: whoever reads a layer need not know those above it."""

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "trot").rglob("*.py"))
MODULES = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES}
LOWEST = (
    "atomic",
    "command_line",
    "completion",
    "help_words",
    "interruption",
    "machine",
    "out_of_memory",
    "progress",
    "own_file",
    "unpromised",
)
HIGHEST = ("api", "cli", "compare", "tune", "study", "demo", "__main__", "")
LAYERS = dict.fromkeys(LOWEST, 0) | {"runs": 1, "sim": 2, "envs": 3, "learn": 4, "view": 5} | dict.fromkeys(HIGHEST, 6)


def imports(module):
    """The modules of trot that this one names; one that is named as a member of its package counts as itself."""
    for node in ast.walk(ast.parse(MODULES[module].read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            members = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (member if member in MODULES else node.module for member in members)


def layer(module):
    return LAYERS[f"{module}.".split(".")[1]]


def test_no_layer_imports_one_above_it():
    upward = [f"{one} imports {other}" for one in MODULES for other in imports(one) if layer(other) > layer(one)]
    assert not upward


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: set(imports(module)) for module in MODULES}
    # Raises CycleError, which names them.
    TopologicalSorter(graph).prepare()


def test_no_two_modules_have_the_same_name():
    names = Counter(file.name for file in FILES if file.name != "__init__.py")
    assert not [name for name, times in names.items() if times > 1]
