"""``python -m llm_rlvr.evaluate model=NAME task=NAME engine=transformers|vllm [key=value ...]``: pass@k on held-out
problems, with the format, length and reward of the completions.

The keys, their defaults and what they mean stand in ``configs/llm_rlvr/evaluate.yaml``.

    python -m llm_rlvr.evaluate model=smollm2 task=chain_sum engine=transformers problems=40 samples=4 k=1,4
    python -m llm_rlvr.evaluate model=PATH task=gsm8k engine=vllm temperature=0 json=out/gsm8k.json
"""

import difflib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

# Before torch is imported anywhere: competing thread pools are many times slower than one thread a process.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import yaml  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from omegaconf.errors import OmegaConfBaseException  # noqa: E402
from rich.table import Table  # noqa: E402

from common.console import stdout_console  # noqa: E402
from common.errors import UserError  # noqa: E402
from common.launch.plan import CONFIGS, device_of  # noqa: E402
from common.runs.files import write_json  # noqa: E402
from common.runs.settings import require, require_choice  # noqa: E402
from common.statistics import FINAL, Interval, SeedCurves, interval, measure, resample  # noqa: E402
from llm_rlvr.models import local_model, weights_digest  # noqa: E402
from llm_rlvr.scoring import Score  # noqa: E402
from llm_rlvr.settings import PRECISIONS  # noqa: E402
from llm_rlvr.tasks import TASKS, Problem, Task, load, score  # noqa: E402

LEVEL = 0.95
USUAL_K = (1, 4)
"""Of pass@k where nothing else is asked for."""
_CACHE_BLOCK = 128
"""Tokens in vLLM's largest block of keys and values."""
_SMALLEST_CACHE = 2**26


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, and how.

    Raises:
        UserError: a value that is not allowed, naming its key.
    """

    model: str
    task: str
    engine: str
    problems: int
    samples: int
    k: tuple[int, ...]
    temperature: float
    max_tokens: int
    seed: int
    batch: int
    precision: str
    device: str
    binary: bool
    models: str
    adapter: str | None
    task_options: Mapping[str, Any]
    json: str | None

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            raise UserError(str(error)) from error

    def _check(self) -> None:
        require_choice("engine", self.engine, ("transformers", "vllm"))
        require_choice("precision", self.precision, PRECISIONS)
        for key in ("problems", "samples", "max_tokens", "batch"):
            require(key, getattr(self, key), at_least=1)
        require("temperature", self.temperature, at_least=0)
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed: {self.seed} is not allowed; it must be in 0 … 2**32 - 1")
        if self.temperature == 0 and self.samples > 1:
            raise UserError(f"samples: {self.samples} is not allowed; at temperature=0 all are equal (samples=1)")
        for k in self.k:
            if not 1 <= k <= self.samples:
                raise UserError(f"k: {k} is not allowed; it must be in 1 … samples={self.samples}")
        if self.engine == "vllm" and self.adapter is not None:
            raise UserError("adapter: engine=vllm takes none; merge it into the model first, or engine=transformers")
        if self.engine == "vllm" and self.device != "auto":
            raise UserError(f"device: {self.device!r} is not allowed; vLLM chooses for itself (device=auto)")
        if self.adapter is not None and not (Path(self.adapter) / "adapter_config.json").is_file():
            raise UserError(f"adapter: {self.adapter} lacks adapter_config.json; give the directory of a PEFT adapter")
        if self.json is not None:
            _require_writable(Path(self.json))

    @property
    def scored(self) -> Task:
        """The task with its options."""
        return Task(self.task, self.binary, self.task_options)


@dataclass(frozen=True)
class Judged:
    """One completion's score and shape."""

    score: Score
    tokens: int
    """With the token that ended it."""
    finished: bool


@dataclass(frozen=True)
class PassRate:
    """pass@k over problems with its 95 % interval (see ``pass_interval``)."""

    value: float
    low: float
    high: float
    interval: str


@dataclass(frozen=True)
class Result:
    """What an evaluation found. An unscorable completion is a wrong one, with reward 0."""

    pass_at: Mapping[int, PassRate]
    formatted: float
    """Share of completions."""
    reward: float
    """Mean."""
    length: float
    """Mean, in tokens."""
    truncated: float
    """Share of completions."""
    unscorable: int
    """Completions."""
    correct: tuple[int, ...]
    """Right completions of each problem."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a mistake, told in one line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments in (["--help"], ["-h"]):
        print(f"{(__doc__ or '').strip()}\n\n{_defaults_file().read_text().strip()}")
        return 0
    try:
        settings = parsed(arguments)
        directory = local_model(settings.model, settings.models)
        result = evaluate(settings, directory)
        _print(settings, result)
        if settings.json is not None:
            write_json(Path(settings.json), record(settings, weights_digest(directory), result))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parsed(arguments: Sequence[str]) -> Evaluation:
    """Return what a command line of ``key=value`` asks for, with the task's own options and limit of tokens.

    Raises:
        UserError: an unknown key (naming the nearest), a missing one, or a value that is not allowed.
    """
    defaults = _plain(_defaults_file())
    known = [key for key in defaults if key != "task_options"]
    given: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        if not equals:
            raise UserError(f"{argument}: is not allowed; arguments are key=value with {', '.join(known)}")
        if key.startswith("task_options."):
            options[key.removeprefix("task_options.")] = _value(argument)
        else:
            _require_known(key, known, "task_options.KEY")
            given[key] = _value(argument)
    values = {**defaults, **given}
    for key in ("model", "task", "engine"):
        if values[key] is None:
            raise UserError(f"{key}: is missing; give {key}=NAME")
    if values["task"] not in TASKS:
        raise UserError(f"task: {values['task']!r} is unknown; choose from {', '.join(TASKS)}")
    of_task = _plain(CONFIGS / "llm_rlvr" / "task" / f"{values['task']}.yaml")
    for key in options:
        _require_known(key, list(of_task["task_options"]), "", prefix="task_options.")
    merged = {**of_task["task_options"], **options}
    values["task_options"] = {key: value for key, value in merged.items() if value is not None}
    values["max_tokens"] = of_task["max_tokens"] if values["max_tokens"] is None else values["max_tokens"]
    values = {field.name: _typed(field.name, values[field.name], field.type) for field in fields(Evaluation)}
    if not values["k"]:
        most = values["samples"]
        values["k"] = tuple(k for k in USUAL_K if k <= most) or USUAL_K[:1]
    return Evaluation(**values)


def evaluate(settings: Evaluation, directory: Path) -> Result:
    """Sample completions of held-out problems, score each, and sum up.

    Args:
        settings: what is asked for.
        directory: of the model.

    Raises:
        UserError: fewer problems than wanted, a model or tokenizer that cannot be used, or no room for the tokens.
    """
    tokenizer = _tokenizer(directory)
    problems = held_out(settings)
    prompts = [_prompt(tokenizer, problem) for problem in problems]
    longest = max(len(prompt) for prompt in prompts) + settings.max_tokens
    _require_room(directory, longest, settings.max_tokens)
    sampler = _vllm(settings, directory, longest) if settings.engine == "vllm" else _own(settings, directory, tokenizer)
    try:
        groups = sampler.sample(
            prompts,
            samples=settings.samples,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
        )
    finally:
        if settings.engine == "vllm":
            sampler.close()
    judged = [
        [Judged(score(settings.scored, problem.payload, each.text), len(each.tokens), each.finished) for each in group]
        for problem, group in zip(problems, groups, strict=True)
    ]
    return summed_up(judged, settings.k)


def held_out(settings: Evaluation) -> list[Problem]:
    """Return the problems: the held-out ones that training is evaluated on, too, and never trains on.

    Raises:
        UserError: there are fewer than wanted.
    """
    try:
        return load(settings.scored, train=0, held_out=settings.problems, seed=0, experiment_seed=0).held_out
    except UserError as error:
        raise UserError(str(error).removeprefix("eval_")) from error  # the key has another name in training


def summed_up(judged: Sequence[Sequence[Judged]], ks: Sequence[int]) -> Result:
    """Return the result of P problems with n completions each.

    Args:
        judged: [P][n].
        ks: the k of pass@k, each in 1 … n.
    """
    completions = [each for group in judged for each in group]
    correct = tuple(sum(each.score.correct for each in group) for group in judged)
    rates = {k: _rate([pass_at_k(len(judged[0]), right, k) for right in correct]) for k in ks}
    return Result(
        rates,
        formatted=fmean(each.score.formatted for each in completions),
        reward=fmean(each.score.reward or 0.0 for each in completions),
        length=fmean(each.tokens for each in completions),
        truncated=fmean(not each.finished for each in completions),
        unscorable=sum(each.score.reward is None for each in completions),
        correct=correct,
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 − C(n−c, k)/C(n, k): how probable it is that k of n completions, c of them right, hold a right one.

    It is unbiased for the probability that k fresh completions hold one (Chen et al., arXiv 2107.03374).

    Raises:
        ValueError: not 0 ≤ c ≤ n, or not 1 ≤ k ≤ n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"n, c, k: {n}, {c}, {k} are not allowed; 0 ≤ c ≤ n and 1 ≤ k ≤ n")
    every, wrong = math.comb(n, k), math.comb(n - c, k)
    return (every - wrong) / every


def pass_interval(values: Sequence[float]) -> tuple[Interval, str]:
    """Return the 95 % interval of the mean of numbers in [0, 1], one a problem, and the name of its method.

    Where all numbers are 0 or 1, as they are for one sample a problem, it is Wilson's: (p + z²/2P ± z·sqrt(p(1−p)/P +
    z²/4P²))/(1 + z²/P), which has a width even where all are 0 or all are 1. Otherwise it is the bootstrap over
    problems (``common.statistics.interval``), from fixed draws and cut to [0, 1]. Both treat problems as drawn at
    random; the completions' own noise is part of it.

    Raises:
        ValueError: there are no numbers.
    """
    count = len(values)
    if not count:
        raise ValueError("values: the interval of no values was asked for")
    if all(value in (0, 1) for value in values):
        return _wilson(fmean(values), count), "wilson"
    numbers = np.asarray(values, dtype=np.float64)[:, None]
    found = interval(measure(resample(SeedCurves(tuple(range(count)), np.zeros(1), numbers)), FINAL), LEVEL)
    return Interval(max(found.low, 0.0), min(found.high, 1.0)), "bootstrap"


def record(settings: Evaluation, weights: str, result: Result) -> dict[str, Any]:
    """Return settings and result as JSON holds them; numbers are shares or means (see ``Result``)."""
    rates = {str(k): asdict(rate) for k, rate in result.pass_at.items()}
    found = {field.name: getattr(result, field.name) for field in fields(Result) if field.name != "pass_at"}
    return {
        "settings": {**asdict(settings), "weights": weights},
        "result": {"pass_at": rates, **found},
    }


def _wilson(share: float, count: int) -> Interval:
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    middle = share + z**2 / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    low, high = ((middle + sign * reach) / (1 + z**2 / count) for sign in (-1, 1))
    return Interval(max(low, 0.0) if share else 0.0, min(high, 1.0) if share < 1 else 1.0)


def _rate(values: Sequence[float]) -> PassRate:
    (low, high), method = pass_interval(values)
    return PassRate(fmean(values), low, high, method)


def _tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    except Exception as error:  # whatever the library raises
        raise UserError(f"model: the tokenizer in {directory} cannot be loaded ({_one_line(error)})") from error
    if not tokenizer.chat_template:
        raise UserError(f"model: the tokenizer in {directory} has no chat template; choose an instruction-tuned model")
    return tokenizer


def _prompt(tokenizer: Any, problem: Problem) -> list[int]:
    chat = [dict(message) for message in problem.chat]
    ids: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
    return ids


def _require_room(directory: Path, longest: int, max_tokens: int) -> None:
    room = _config(directory).max_position_embeddings
    if longest > room:
        raise UserError(
            f"max_tokens: {max_tokens} is not allowed; the model takes {room} tokens,"
            f" and the longest prompt has {longest - max_tokens}"
        )


def _config(directory: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(directory).get_text_config()
    except Exception as error:
        raise UserError(f"model: config.json in {directory} cannot be read ({_one_line(error)})") from error


def _own(settings: Evaluation, directory: Path, tokenizer: Any) -> Any:
    """Return a sampler with the model in this process, its adapter merged."""
    import torch
    import transformers

    from llm_rlvr.samplers import TransformersSampler

    transformers.utils.logging.disable_progress_bar()
    device = device_of(settings.device)
    what = "model"
    try:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=getattr(torch, settings.precision)
        )
        if settings.adapter is not None:
            from peft import PeftModel

            what = "adapter"
            model = PeftModel.from_pretrained(model, settings.adapter).merge_and_unload()
        model = model.to(device).eval()
    except Exception as error:
        raise UserError(f"{what}: {getattr(settings, what)} cannot be loaded ({_one_line(error)})") from error
    return TransformersSampler(model, tokenizer, settings.batch)


def _vllm(settings: Evaluation, directory: Path, longest: int) -> Any:
    """Return a vLLM engine with room for a batch of the longest prompts and completions."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from llm_rlvr.samplers import VllmSampler

    try:
        return VllmSampler(
            directory,
            dtype=settings.precision,
            max_length=longest,
            cache_bytes=_cache_bytes(_config(directory), settings, longest),
            max_sequences=settings.batch,
        )
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"engine: vllm cannot start with model={settings.model} ({_one_line(error)})") from error


def _cache_bytes(config: Any, settings: Evaluation, longest: int) -> int:
    """Return the bytes of keys and values of a batch: 2·layers·heads·width·bytes a token, in whole blocks."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = 4 if settings.precision == "float32" else 2
    blocks = math.ceil(longest / _CACHE_BLOCK) + 1
    needed = 2 * config.num_hidden_layers * heads * width * size * blocks * _CACHE_BLOCK * settings.batch
    return max(int(needed), _SMALLEST_CACHE)


def _print(settings: Evaluation, result: Result) -> None:
    console = stdout_console()
    title = f"{settings.model} on {settings.task}: {settings.problems} held-out problems × {settings.samples}"
    table = Table("", "value", "95 % interval", title=title, title_justify="left")
    for k, rate in result.pass_at.items():
        table.add_row(f"pass@{k}", f"{rate.value:.3f}", f"{rate.low:.3f} … {rate.high:.3f} ({rate.interval})")
    table.add_row("formatted", f"{result.formatted:.3f}")
    table.add_row("mean reward", f"{result.reward:.3f}")
    table.add_row("mean length (tokens)", f"{result.length:.1f}")
    table.add_row("truncated", f"{result.truncated:.3f}")
    table.add_row("unscorable (as wrong)", str(result.unscorable))
    console.print(table)


def _defaults_file() -> Path:
    return CONFIGS / "llm_rlvr" / "evaluate.yaml"


def _plain(path: Path) -> dict[str, Any]:
    loaded: Any = OmegaConf.to_container(OmegaConf.load(path))
    return dict(loaded)


def _value(argument: str) -> Any:
    """Return the value of ``key=value``, read as YAML."""
    key, _, text = argument.partition("=")
    try:
        return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=True)["value"]  # type: ignore[call-overload,index]
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{key}: {text!r} cannot be read ({_one_line(error)})") from error


def _require_known(key: str, known: Sequence[str], more: str, prefix: str = "") -> None:
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        nearest = f" (did you mean {prefix + near[0]!r}?)" if near else ""
        there = ", ".join([*(prefix + name for name in known), *([more] if more else [])])
        raise UserError(f"{prefix}{key}: unknown key{nearest}; there are {there}")


def _typed(key: str, value: Any, kind: Any) -> Any:
    """Check a value against a field's type; whole numbers pass for real ones, and ``1,4`` is a list."""
    if key == "k":
        return _whole_numbers(value)
    if kind == str | None:
        if value is None:
            return None
        kind = str
    if kind is float and type(value) is int:
        return float(value)
    expected = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}.get(kind)
    if expected is not None and type(value) is not kind:
        raise UserError(f"{key}: {value!r} is not allowed; it must be {expected}")
    if kind is str and not value:
        raise UserError(f"{key}: {value!r} is not allowed; it must not be empty")
    return value


def _whole_numbers(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = value if isinstance(value, list) else str(value).split(",")
    try:
        numbers = sorted({int(str(part)) for part in parts})
    except ValueError:
        numbers = []
    if not numbers:
        raise UserError(f"k: {value!r} is not allowed; it must be whole numbers with commas, as in k=1,4")
    return tuple(numbers)


def _require_writable(path: Path) -> None:
    """Refuse a record's file before anything is computed for it."""
    existing = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f"json: {path} cannot be written; give a file in a writable directory")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


if __name__ == "__main__":
    raise SystemExit(main())
