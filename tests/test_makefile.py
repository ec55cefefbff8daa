"""What the make targets would run."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from figures.catalogue import FIGURES

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = {path.stem for path in (ROOT / "configs" / "sequence_tasks" / "experiment").glob("*.yaml")}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def recipe(*arguments):
    result = subprocess.run(
        ["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout


OTHER_TRACKS = {"fig02", "fig03", "fig04", "fig09", "candidate_logprob"}
"""Figures that `make reversal` does not draw."""


@pytest.mark.parametrize(
    ("preset", "experiments", "figures"),
    [
        ("smoke", {"terminal", "dense_vocabulary"}, {"fig05", "fig07"}),
        ("quick", {"terminal", "dense_vocabulary"}, {"fig05", "fig07"}),
        ("medium", EXPERIMENTS, set(FIGURES) - OTHER_TRACKS),
        ("paper", EXPERIMENTS, set(FIGURES) - OTHER_TRACKS),
    ],
)
def test_reversal_runs_what_its_preset_says(preset, experiments, figures):
    text = recipe("reversal", f"PRESET={preset}")
    (listed,) = re.findall(r"for experiment in ([^;]*);", text)
    assert set(listed.split()) == experiments
    (drawn,) = re.findall(r"-m figures ([^-]*)--store", text)
    assert set(drawn.split()) == figures
    assert f"preset={preset}" in text


def test_variables_reach_the_command_line():
    text = recipe("reversal", "PRESET=quick", "SEEDS=3", "DEVICE=cuda", "STORE=elsewhere", "EXPERIMENTS=temperature")
    assert "for experiment in temperature;" in text
    assert "preset=quick device=cuda store=elsewhere seeds=3" in text
    assert "sequence_tasks.bench --device cuda" in recipe("bench", "DEVICE=cuda")
    assert "sequence_tasks.bench --device cpu" in recipe("bench")


def test_rlvr_passes_model_and_task_on():
    text = recipe("rlvr", "PRESET=paper", "MODEL=qwen3_1_7b", "TASK=gsm8k")
    assert "-m llm_rlvr experiment=learning preset=paper" in text
    assert "model=qwen3_1_7b task=gsm8k" in text
    assert "-m figures fig09" in text


def test_report_and_gallery_read_the_store_with_the_base_installation_alone():
    report = recipe("report", "STORE=elsewhere", "REPORTS=pages")
    assert '-m report --store "elsewhere" --out "pages"' in report
    gallery = recipe("gallery", "STORE=elsewhere")
    assert '-m report.gallery --store "elsewhere" --out docs/results' in gallery
    for target in ("report", "gallery"):
        database = subprocess.run(
            ["make", "-pn", target], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
        (needs,) = re.findall(rf"^{target}: (.*)$", database.stdout, flags=re.M)
        assert needs == ".venv/.installed-base"
