"""What the documents show works: their Python blocks and command lines are run as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), flags=re.S)


def run(command, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_worked_example_runs_beside_the_built_in_objectives(tmp_path):
    (source,) = blocks("docs/add-an-objective.md", "python")
    (tmp_path / "my_objectives.py").write_text(source)
    (console,) = blocks("docs/add-an-objective.md", "console")
    words = console.removeprefix("$ python ").split()
    result = run([sys.executable, *words, "steps=20"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert "3 of 3 runs done (3 computed now" in result.stdout
    assert len(list((tmp_path / "runs" / "bandits" / "multi_context").glob("*RANK_TPO*/record.json"))) == 1


def test_the_worked_example_is_a_target_of_ranks(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (source,) = blocks("docs/add-an-objective.md", "python")
    (tmp_path / "documented_objectives.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    from common import objectives

    rank_tpo = objectives.get("documented_objectives:RANK_TPO", {"eta": 1.0})
    logp = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    target = rank_tpo.signal(torch.tensor([1e6, 0.0, 0.0, -5.0]), logp).target
    expected = (logp + torch.tensor([1.0, 0.0, 0.0, -1.0])).softmax(-1)
    torch.testing.assert_close(target, expected)


def test_the_readmes_training_loop_runs(tmp_path):
    for number, source in enumerate(blocks("README.md", "python")):
        script = tmp_path / f"readme_{number}.py"
        script.write_text(source)
        result = run([sys.executable, str(script)], tmp_path)
        assert result.returncode == 0, result.stderr


def test_the_published_mnist_results_are_those_of_the_archived_runs(tmp_path):
    archive = ROOT / "docs/results/mnist_paper_runs.zip"
    store = tmp_path / "runs"
    imported = run([sys.executable, "-m", "common.runs", "import", str(archive), "--store", str(store)], ROOT)
    assert imported.returncode == 0, imported.stderr
    compared = run([sys.executable, "-m", "figures", "fig04", "--markdown", "--store", str(store)], ROOT)
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout.strip() in (ROOT / "docs/results/bandits.md").read_text()
    described = run([sys.executable, "-m", "common.runs", "--json", "--store", str(store)], ROOT)
    assert "+changes" not in described.stdout


@pytest.mark.parametrize(
    "document", ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
)
def test_links_and_files_that_documents_name_exist(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", text):
        path = next(filter(None, target))
        if not path.startswith(("http://", "https://")):
            assert ((ROOT / document).parent / path).exists(), f"{document} links to {path}"
