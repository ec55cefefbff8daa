"""What the figures of the language-model track share: which stored runs stand in a panel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common import objectives
from common.runs.store import RunStore, StoredRun
from figures.selection import Selection, SizeT, best_size

TRACK = "llm_rlvr"
METHODS = ("tpo", "grpo_no_kl")
"""The policy losses of paired runs: the KL to the initial model is the trainer's, the same for both."""

TASK_TITLES = {
    "gsm8k": "GSM8K",
    "graph_color": "graph colouring",
    "knights_knaves": "Knights & Knaves",
    "chain_sum": "one-digit sums",
}
MODEL_TITLES = {
    "qwen3_1_7b": "Qwen3-1.7B",
    "r1_distill_1_5b": "R1-Distill-Qwen-1.5B",
    "smollm2": "SmolLM2-135M",
    "tiny_qwen3": "tiny random Qwen3",
}
_PAPER = {"batch": 16, "candidates": 16, "learning_rate": 1e-5, "binary": False, "candidate_logprob": "mean"}
_PAPER_BY_TASK: dict[str, Mapping[str, Any]] = {
    "gsm8k": {"steps": 75, "lora_rank": 32, "kl": 1e-3, "max_tokens": 1024},
    "graph_color": {"steps": 300, "lora_rank": 0, "kl": 0.0, "max_tokens": 2048},
    "knights_knaves": {"steps": 200, "lora_rank": 0, "kl": 0.0, "max_tokens": 2048},
}
_SYMBOLS = {"batch": "prompts", "candidates": "K", "learning_rate": "learning rate", "max_tokens": "max tokens"}
_NOT_SHARED = ("objective", "options")


@dataclass(frozen=True)
class Panel:
    """A task and a model."""

    task: str
    model: str
    aside: str = ""
    """Says so, if the panel is not in the paper."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that tell it from other panels."""

    @property
    def place(self) -> str:
        """What figures call it."""
        return f"{TASK_TITLES[self.task]}, {MODEL_TITLES.get(self.model, self.model)}"

    @property
    def command(self) -> str:
        """Makes its runs."""
        preset = "quick" if self.aside else "paper"
        return f"python -m {TRACK} experiment=learning preset={preset} model={self.model} task={self.task}"


def selected(store: RunStore, panel: Panel) -> Selection:
    """Choose a panel's runs: those that differ in the objective alone, with the paper's settings if there are any."""
    groups: dict[tuple[Any, ...], dict[str, StoredRun]] = {}
    for run in store.runs(TRACK, "language"):
        settings = run.settings
        wanted = {"task": panel.task, "model": panel.model, "candidate_logprob": "mean", **panel.settings}
        if (
            run.blocks
            and run.objective in METHODS
            and has_default_options(run)
            and all(settings[key] == value for key, value in wanted.items())
        ):
            groups.setdefault(_shared(settings), {})[run.objective] = run
    paper = {**_PAPER, **_PAPER_BY_TASK.get(panel.task, {})}
    by_size: dict[SizeT, tuple[Any, ...]] = {}
    for shared, runs in groups.items():
        first = next(iter(runs.values())).settings
        same = all(first[key] == value for key, value in paper.items())
        by_size[(int(first["steps"]), int(same), len(by_size))] = shared
    sizes = {size: groups[shared] for size, shared in by_size.items()}
    as_in_paper = next((size for size in sizes if size[1]), (int(paper.get("steps", 0)), 1, 0))
    size = best_size(sizes, as_in_paper)
    runs = sizes.get(size, {})
    return Selection(
        METHODS,
        runs=runs,
        command=panel.command,
        steps=size[0],
        paper_steps=size[0] if panel.aside else int(paper["steps"]),
        paper_seeds=1,
        place=panel.place,
        differences=[panel.aside] if panel.aside else _differences(runs, paper),
        same_task=not panel.aside,
        in_paper=not panel.aside,
    )


def has_default_options(run: StoredRun) -> bool:
    """Whether a run's objective has the options of the registry."""
    return dict(run.settings["options"]) == dict(objectives.get(run.objective).options)


def _shared(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((key, repr(value)) for key, value in sorted(settings.items()) if key not in _NOT_SHARED)


def _differences(runs: Mapping[str, StoredRun], paper: Mapping[str, Any]) -> Sequence[str]:
    if not runs:
        return []
    ours = next(iter(runs.values())).settings
    return [
        f"{_SYMBOLS.get(key, key)} = {ours[key]} (paper {value})"
        for key, value in paper.items()
        if key != "steps" and ours[key] != value
    ]
