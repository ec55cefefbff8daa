"""The paper's claims, from ``claims.yaml``: what is said, where, and by which rules it is judged (docs/claims.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any, get_type_hints

import yaml

from common.errors import UserError
from figures.comparison import Comparison
from figures.rules import RULES, Rule, Subject, UnknownNameError

_FILE = Path(__file__).with_name("claims.yaml")


@dataclass(frozen=True)
class Claim:
    """What the paper says in one place."""

    id: str
    claim: str
    """A sentence."""
    source: str
    """Table, figure or section."""
    figure: str
    """The module that it is judged in."""
    parts: tuple[Rule, ...]


@dataclass(frozen=True)
class ClaimFile:
    """What stands in ``claims.yaml``."""

    claims: tuple[Claim, ...]
    beside: Mapping[str, tuple[Rule, ...]]
    """By figure: comparisons with what the paper does not claim, such as the artefact's numbers."""


@lru_cache(maxsize=1)
def claim_file() -> ClaimFile:
    """Return the paper's claims.

    Raises:
        UserError: a mistake in the file.
    """
    return parsed(_FILE.read_text(encoding="utf-8"))


def parsed(text: str) -> ClaimFile:
    """Read a claim file.

    Raises:
        UserError: an unknown or missing key, rule or placeholder, a value of the wrong kind, an id given twice.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise mistake("file", f"not YAML ({' '.join(str(error).split())})") from error
    _check_keys("file", content, {"claims", "beside"}, {"claims", "beside"})
    claims = tuple(_claim(entry) for entry in content["claims"])
    ids = [claim.id for claim in claims]
    for claim_id in ids:
        if ids.count(claim_id) > 1:
            raise mistake(claim_id, "id: there are two claims of this name")
    beside = {
        figure: tuple(_rule(f"beside {figure}", part) for part in parts) for figure, parts in content["beside"].items()
    }
    return ClaimFile(claims, beside)


def compared(figure: str, subject: Subject) -> list[Comparison]:
    """Judge everything claimed about a figure, and what stands beside it.

    Raises:
        UserError: a claim names something that the figure does not have; or a run cannot be read.
    """
    file = claim_file()
    rows = [row for claim in file.claims if claim.figure == figure for row in all_rows(claim.id, claim.parts, subject)]
    return rows + all_rows(f"beside {figure}", file.beside.get(figure, ()), subject)


def all_rows(where: str, rules: Iterable[Rule], subject: Subject) -> list[Comparison]:
    """Judge each rule on each of its panels; a mistake names the claim."""
    try:
        return [row for rule in rules for panel in rule.on(subject) for row in rule.rows(subject, panel)]
    except UnknownNameError as error:
        raise mistake(where, str(error)) from error


def _claim(entry: Any) -> Claim:
    where = str(entry.get("id", entry)) if isinstance(entry, dict) else str(entry)
    keys = {each.name for each in fields(Claim)}
    _check_keys(where, entry, keys, keys)
    texts = {key: _text(where, key, value) for key, value in entry.items() if key != "parts"}
    if not isinstance(entry["parts"], list) or not entry["parts"]:
        raise mistake(where, "parts: found none; a claim has a list of one or more")
    return Claim(parts=tuple(_rule(where, part, texts["source"]) for part in entry["parts"]), **texts)


def _rule(where: str, entry: Any, source: str = "") -> Rule:
    """Return a rule; its source is the claim's where it has none of its own and takes one."""
    name = entry.get("rule") if isinstance(entry, Mapping) else entry
    if name not in RULES:
        raise mistake(where, f"rule: {name!r} is unknown; there are {', '.join(RULES)}")
    kind = RULES[name]
    known = {each.name: each for each in fields(kind)}
    given = {key: value for key, value in entry.items() if key != "rule"}
    if source and "source" in known:
        given.setdefault("source", source)
    _check_keys(where, given, set(known), {key for key, each in known.items() if each.default is MISSING})
    hints = get_type_hints(kind)
    allowed = {"claim": kind.placeholders, "numbers": frozenset({"panel"})}
    for key in allowed:
        _check_placeholders(where, key, given.get(key, ""), allowed[key])
    try:
        return kind(**{key: _value(where, key, value, hints[key]) for key, value in given.items()})
    except ValueError as error:
        raise mistake(where, str(error)) from error


def _value(where: str, key: str, value: Any, hint: Any) -> Any:
    """Return a field's value as its rule has it: a text, a number, or several texts, of which one may stand alone."""
    if hint is str:
        return _text(where, key, value)
    if hint == float | None:
        if not isinstance(value, int | float):
            raise mistake(where, f"{key}: {value!r} is not a number")
        return float(value)
    return tuple(_text(where, key, each) for each in (value if isinstance(value, list) else [value]))


def _text(where: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise mistake(where, f"{key}: {value!r} is not a text")
    return value


def _check_placeholders(where: str, key: str, value: Any, allowed: frozenset[str]) -> None:
    try:
        found = [name for _, name, _, _ in Formatter().parse(str(value)) if name is not None]
    except ValueError as error:
        raise mistake(where, f"{key}: {value!r}: {error}") from error
    for name in found:
        if name not in allowed:
            known = ", ".join(f"{{{each}}}" for each in sorted(allowed))
            raise mistake(where, f"{key}: {{{name}}} is unknown; there are {known}")


def _check_keys(where: str, entry: Any, known: set[str], needed: set[str]) -> None:
    if not isinstance(entry, Mapping):
        raise mistake(where, f"{entry!r} is not a set of keys ({', '.join(sorted(known))})")
    for key in entry:
        if key not in known:
            raise mistake(where, f"{key}: unknown key; there are {', '.join(sorted(known))}")
    missing: Sequence[str] = sorted(needed - set(entry))
    if missing:
        raise mistake(where, f"{missing[0]}: missing")


def mistake(where: str, words: str) -> UserError:
    """Return an error that names the file and the claim."""
    return UserError(f"figures/{_FILE.name}: {where}: {words}")
