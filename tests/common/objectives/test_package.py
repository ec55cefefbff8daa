"""The objectives need torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from common import objectives

FILES = sorted(Path(objectives.__file__).parent.glob("**/*.py"))


def imported(source: str) -> set[str]:
    """Return the first components of all modules that a source file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {"." * node.level + (node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_import_torch_and_the_standard_library(path):
    source = path.read_text(encoding="utf-8")
    assert imported(source) - sys.stdlib_module_names <= {"torch", "common"}


def test_the_package_has_files():
    assert {"groups.py", "losses.py", "registry.py", "signals.py"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_import_nothing_else_of_the_project(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert all(name.startswith("common.objectives") for name in modules if name.partition(".")[0] == "common")


def test_importing_it_loads_nothing_heavy():
    heavy = ["pandas", "pyarrow", "hydra", "omegaconf", "matplotlib", "rich", "wandb", "datasets", "yaml", "jinja2"]
    code = f"import sys, common.objectives; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
