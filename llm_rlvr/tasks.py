"""The tasks: problems as chats, split into training and held-out ones, and the score of a completion.

problems = load(TaskSpec("gsm8k", options), train=1200, held_out=200, seed=0, experiment_seed=0)
score(spec, problem.payload, completion)
"""

import functools
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.draws import generator
from common.errors import UserError
from llm_rlvr.answers import final_number, within
from llm_rlvr.scoring import Score, gsm8k_score, gym_score

GSM8K_DATASET = "openai/gsm8k"
HELD_OUT_SHARE = 5
"""One question in so many of a generated task is held out, by its hash."""
_DRAWS_A_PROBLEM = 200
"""After so many generated items without a new question, a task is taken to have no more."""

_ITEM_SECONDS = 5.0
"""For one item: under some options (colours too few for any graph) Reasoning Gym searches without end."""

GSM8K_INSTRUCTION = "Solve the problem step by step. End with a line of the form: #### NUMBER"
TAGS_INSTRUCTION = "Think first. Then give the final answer alone between <answer> and </answer>."


@dataclass(frozen=True)
class Task:
    """What a task consists of."""

    name: str
    binary: bool = False
    """Reward 1 for a right answer and 0 for any other; a generated task's own partial credit where False."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """GSM8K: ``revision`` and ``data`` (a folder with train.jsonl and test.jsonl, or empty for the hub). Others:
    those of Reasoning Gym's data set."""


@dataclass(frozen=True)
class Problem:
    """A question as a chat, and what its scorer needs."""

    chat: tuple[Mapping[str, str], ...]
    question: str
    payload: str
    """JSON: GSM8K's answer, or Reasoning Gym's item."""


@dataclass(frozen=True)
class Problems:
    """Training problems in the order of training, and held-out ones, which are never trained on."""

    train: list[Problem]
    held_out: list[Problem]


TASKS = ("gsm8k", "chain_sum", "graph_color", "knights_knaves")


def load(task: Task, *, train: int, held_out: int, seed: int, experiment_seed: int) -> Problems:
    """Return a task's problems; the held-out ones are the same for all seeds.

    Raises:
        UserError: an unknown task or option, data that cannot be read, or fewer held-out problems than wanted.
    """
    draws = generator(experiment_seed, seed, "problems")
    if task.name == "gsm8k":
        return _gsm8k(task, train, held_out, draws)
    if task.name not in TASKS:
        raise UserError(f"task: {task.name!r} is unknown; choose from {', '.join(TASKS)}")
    trained = _generated(task, int(draws.integers(2**31)), held_out_ones=False, count=train, distinct=False)
    fixed = int(generator(experiment_seed, 0, "held-out problems").integers(2**31))
    return Problems(trained, _generated(task, fixed, held_out_ones=True, count=held_out, distinct=True))


def score(task: Task, payload: str, completion: str) -> Score:
    """Return what a completion is worth (see ``scoring``).

    ``chain_sum`` asks for no tags: its answer is the last number of the completion, formatted if nothing follows it.
    """
    content = json.loads(payload)
    if task.name == "gsm8k":
        return gsm8k_score(completion, content)
    if task.name != "chain_sum":
        return gym_score(task.name, completion, content, binary=task.binary)
    number = final_number(completion)
    if number is None:
        return Score(0.0, correct=False, formatted=False)
    judged = gym_score("chain_sum", str(number), content, binary=task.binary, tagged=False)
    return Score(judged.reward, judged.correct, completion.strip() == str(number))


def _gsm8k(task: Task, train: int, held_out: int, draws: Any) -> Problems:
    rows = {split: _gsm8k_rows(task, split) for split in ("train", "test")}
    if len(rows["test"]) < held_out:
        raise UserError(f"eval_problems: {held_out} is not allowed; the test split has {len(rows['test'])}")
    order: list[int] = []
    while len(order) < train:
        order += draws.permutation(len(rows["train"])).tolist()
    chosen = generator(0, 0, "held-out problems").permutation(len(rows["test"]))[:held_out].tolist()
    return Problems(
        [_gsm8k_problem(rows["train"][place]) for place in order[:train]],
        [_gsm8k_problem(rows["test"][place]) for place in chosen],
    )


def _gsm8k_problem(row: Mapping[str, Any]) -> Problem:
    chat = ({"role": "user", "content": f"{row['question']}\n\n{GSM8K_INSTRUCTION}"},)
    return Problem(chat, row["question"], json.dumps(row["answer"]))


def _gsm8k_rows(task: Task, split: str) -> list[Mapping[str, Any]]:
    from datasets import load_dataset

    folder, revision = task.options.get("data") or "", task.options.get("revision") or None
    try:
        if folder:
            path = Path(folder) / f"{split}.jsonl"
            if not path.is_file():
                raise UserError(f"task_options.data: {path} does not exist; give a folder with train.jsonl, test.jsonl")
            rows = list(load_dataset("json", data_files=str(path), split="train"))
        else:
            _require_hub()
            rows = list(load_dataset(GSM8K_DATASET, "main", revision=revision, split=split))
    except UserError:
        raise
    except Exception as error:
        where = folder or f"{GSM8K_DATASET} on the hub, revision {revision or 'main'}"
        raise UserError(
            f"task: gsm8k could not be read from {where} ({' '.join(repr(error).split())[:200]});"
            " give a folder with train.jsonl and test.jsonl: task_options.data=PATH"
        ) from error
    for row in rows:
        if not isinstance(row.get("question"), str) or final_number(str(row.get("answer", ""))) is None:
            raise UserError(f"task: gsm8k: a row of {split} lacks a question or an answer with '#### NUMBER': {row}")
    return rows


def _require_hub() -> None:
    """Raise at once where the hub does not answer and nothing says to use its cache alone."""
    import httpx
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        httpx.head(constants.ENDPOINT, timeout=10)


def _generated(task: Task, seed: int, *, held_out_ones: bool, count: int, distinct: bool) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    idle = 0
    for item in _items(task, seed):
        if len(found) == count:
            break
        question = str(item["question"])
        idle += 1
        if idle > _DRAWS_A_PROBLEM * HELD_OUT_SHARE:
            raise UserError(
                f"eval_problems: {count} is not allowed; {task.name} has about {len(found)} held-out questions with"
                " these task_options"
                if held_out_ones
                else f"task: {task.name} has no training questions with these task_options"
            )
        if _is_held_out(question) is held_out_ones and not (distinct and question in seen):
            seen.add(question)
            found.append(_generated_problem(task, item))
            idle = 0
    return found


def _generated_problem(task: Task, item: Mapping[str, Any]) -> Problem:
    chat: tuple[dict[str, str], ...]
    if task.name == "chain_sum":
        chat = ({"role": "system", "content": "Calculate."}, {"role": "user", "content": str(item["question"])})
    else:
        chat = ({"role": "user", "content": f"{item['question']}\n\n{TAGS_INSTRUCTION}"},)
    return Problem(chat, str(item["question"]), json.dumps(item, default=str))


def _items(task: Task, seed: int) -> Iterator[dict[str, Any]]:
    """Items of a Reasoning Gym data set, one after the other, without end."""
    import reasoning_gym

    options = {key: value for key, value in task.options.items() if value is not None}
    state = random.getstate()
    try:
        dataset = reasoning_gym.create_dataset(task.name, seed=seed, size=2**31 - 1, **options)
    except Exception as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"task_options: {dict(options)} are not allowed for {task.name} ({detail})") from error
    finally:
        random.setstate(state)
    for place in itertools.count():
        item = within(_ITEM_SECONDS, functools.partial(dataset.__getitem__, place))
        if item is None:
            raise UserError(
                f"task_options: {dict(options)} are not allowed for {task.name} (no problem within {_ITEM_SECONDS:g} s)"
            )
        yield dict(item)


def _is_held_out(question: str) -> bool:
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") % HELD_OUT_SHARE == 0
