"""Answers in free text: where they stand, which numbers they are, and when two of them are equal.

Any text is answered in bounded time and memory, in any thread: what a model wrote decides nothing but its score.
"""

import contextlib
import ctypes
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

MARKER = "####"
"""GSM8K writes its final answers as ``#### 42``."""
TAIL = 20_000
"""Characters at the end of a text that are read."""
LONGEST_NUMBER = 100
"""Characters of a numeral; also the largest power of ten after its ``e``. What is longer is no number."""
LONGEST_BOX = 200
LONGEST_EXPRESSION = 150
LARGEST_POWER = 10_000
"""Of the product of all exponents of an expression, the digits of each read as one number, plus one."""
SECONDS = 0.7
"""Of computing time for one symbolic comparison."""

_DIGITS = r"(?:(?<![\w.])\.)?\d[\d.,]*+(?:[eE][+-]?\d++)?"
_NUMBER = rf"""
    (?:\\?[$€£¥]\s?)?
    (?: (?P<whole>\d{{1,9}})?\s?\\[dtc]?frac\s?
            (?: \{{\s?(?P<over>-?{_DIGITS})\s?\}}\s?\{{\s?(?P<under>-?{_DIGITS})\s?\}} | (?P<one>\d)\s?(?P<other>\d) )
      | (?P<units>\d{{1,9}})[ ](?P<above>\d{{1,9}})/(?P<below>\d{{1,9}})(?![\d.,])
      | (?P<plain>{_DIGITS})(?:\s?/\s?(?P<divisor>{_DIGITS}))?
    )"""
_LEAD = r"(?:[\s*_$`:=~≈(\[{]|\\(?:boxed|text|mathbf|textbf)\s?\{|\\[(\[$\ ]){0,16}+"
_FIRST = re.compile(rf"{_LEAD}(?P<sign>[-+]\s?)?{_NUMBER}", re.VERBOSE)
"""A number at the beginning, behind nothing but spaces, emphasis and brackets."""
_ANYWHERE = re.compile(rf"(?P<sign>(?<![\w)\]}}])-)?{_NUMBER}", re.VERBOSE)
"""A number. A minus behind a letter, a digit or a closing bracket is a hyphen or a difference."""
_WHOLE = re.compile(rf"{_FIRST.pattern}(?:\s|\\?[%$]|[*_`.)\]}}]|\\[)\]])*+", re.VERBOSE)
_CUT = re.compile(r"^[\d.,/]+")
_NUMERAL = re.compile(r"(?:\d+|(?!0)\d{1,3}(?:,\d{3})+)(?:\.\d+)?|\.\d+")
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_SAME = str.maketrans({"−": "-", "﹣": "-", "－": "-", "\N{NO-BREAK SPACE}": " "})

_ALLOWED_COMMAND = re.compile(
    r"[dtc]?frac|sqrt|pi|alpha|beta|gamma|theta|lambda|mu|phi|omega|infty|cdot|times|div|pm|mp|leq?|geq?|neq?|lt|gt|in"
    r"|cup|cap|emptyset|varnothing|left|right|text|textbf|mbox|mathrm|mathbf|mathbb|sin|cos|tan|cot|sec|csc|arcsin"
    r"|arccos|arctan|ln|log|begin|end|circ|q?quad|displaystyle|mid|[lr]?vert"
)
_ALLOWED_TEXT = re.compile(r"(?:[\w\s+\-*/=<>()\[\]{}|.,;:^&%]|\\[a-zA-Z]+|\\[{}%,!; \\])+", re.ASCII)
_EXPONENT = re.compile(
    r"\^\s*(-?\d+|[a-zA-Z]|\\(?:circ|pi|theta|infty)\b|\([^(){}^.]*\)|\{(?:[^{}^.]|\{[^{}^.]*\})*\})(?!\s*\^)", re.ASCII
)
_ODD_ROOT = re.compile(r"sqrt\s*\[(?!\s*(?:\d{1,3}|[a-z])\s*\])", re.ASCII)
_COMPARISON = threading.Lock()
"""Neither mpmath's precision nor the parser's tables are made for several threads."""


def final_number(text: str) -> Fraction | None:
    r"""The number that a text ends up with, exactly; None where there is none.

    It is the number behind the last ``####``, else the number in the last ``\boxed{}``, else the last number anywhere.
    Markers and boxes without a number do not count. Behind ``####`` the first number counts, and it must follow at
    once (``#### Step 2`` is a heading); in a box it is the first one behind the last ``=``. Currencies, percent signs
    and units are left out: ``50%`` is 50. Commas must group thousands: ``3,5`` is no number.
    """
    text = _tail(text)
    stated = _read(_stated(text))
    return _read(reversed(list(_ANYWHERE.finditer(text)))) if stated is None else stated


def is_formatted(text: str) -> bool:
    r"""Whether a text states its final answer: a ``####`` or a ``\boxed{}`` with a number."""
    return _read(_stated(_tail(text))) is not None


def equivalent(answer: str, reference: str) -> bool | None:
    r"""Whether two answers, as LaTeX or plain text, mean the same.

    A ``\boxed{}`` is opened. Two numbers are compared exactly, without percent signs; anything else is math-verify's
    to judge, which rounds decimals to six places and lets ``x = 3`` pass for 3. The first call loads it, which takes
    seconds; a further one computes for less than one. Comparisons in several threads wait for each other.

    Returns:
        None where it is undecided: the reference cannot be read, or either text is longer than 150 characters, has
        commands other than those of elementary algebra, factorials, or powers and roots that could grow out of hand, or
        the comparison took too long. An answer that is none of this and cannot be read is wrong.
    """
    answer, reference = _bare(answer), _bare(reference)
    if not reference:
        return None
    if answer == reference:
        return True
    numbers = _whole_number(answer), _whole_number(reference)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    if not answer:
        return False
    if not (_harmless(answer) and _harmless(reference)):
        return None
    with _COMPARISON:
        compare = _math_verify()
        return within(SECONDS, lambda: compare(answer, reference))


def _tail(text: str) -> str:
    if len(text) > TAIL:
        text = _CUT.sub("", text[-TAIL:], count=1)
    return text.translate(_SAME).replace("{,}", ",").replace("\\,", "").replace("\\!", "")


def _read(matches: Iterable[re.Match[str] | None]) -> Fraction | None:
    return next((value for match in matches if match and (value := _value(match)) is not None), None)


def _stated(text: str) -> Iterator[re.Match[str] | None]:
    """Where a text says its final answer, the best place first."""
    at = text.rfind(MARKER)
    while at >= 0:
        yield _FIRST.match(text, at + len(MARKER))
        at = text.rfind(MARKER, 0, at + len(MARKER) - 1)
    for box in reversed(_boxes(text)):
        value = box.rpartition("=")[2]
        yield _FIRST.match(value)
        yield from _ANYWHERE.finditer(value)


def _boxes(text: str) -> list[str]:
    r"""The contents of closed ``\boxed{}``, in the order in which they open; long ones are left out."""
    boxes: list[tuple[int, str]] = []
    opened: list[tuple[bool, int]] = []
    for match in _BRACES.finditer(text):
        token = match.group()
        if token.endswith("{") and token != "\\{":
            opened.append((token != "{", match.end()))
        elif token == "}" and opened:
            boxed, start = opened.pop()
            if boxed and match.start() - start <= LONGEST_BOX:
                boxes.append((start, text[start : match.start()]))
    return [content for _, content in sorted(boxes)]


def _value(match: re.Match[str]) -> Fraction | None:
    group = match.groupdict()
    parts = [
        (group["whole"], group["over"] or group["one"], group["under"] or group["other"]),
        (group["units"], group["above"], group["below"]),
        (None, group["plain"], group["divisor"]),
    ]
    whole, numerator, denominator = next(part for part in parts if part[1])
    over, under = _numeral(numerator), _numeral(denominator or "1")
    if over is None or not under:
        return None
    value = (Fraction(int(whole)) if whole else 0) + over / under
    return -value if (group["sign"] or "").startswith("-") else value


def _numeral(digits: str) -> Fraction | None:
    if len(digits) > LONGEST_NUMBER:
        return None
    mantissa, _, exponent = digits.lower().removeprefix("-").partition("e")
    mantissa = mantissa.rstrip(".,")
    if not _NUMERAL.fullmatch(mantissa) or abs(int(exponent or 0)) > LONGEST_NUMBER:
        return None
    value = Fraction(mantissa.replace(",", "")) * Fraction(10) ** int(exponent or 0)
    return -value if digits.startswith("-") else value


def _bare(text: str) -> str:
    text = text[-TAIL:]
    boxes = _boxes(text)
    return (boxes[-1] if boxes else text).translate(_SAME).strip().strip("$").strip().rstrip(".")


def _whole_number(text: str) -> Fraction | None:
    match = _WHOLE.fullmatch(text) if len(text) <= LONGEST_BOX else None
    return _value(match) if match else None


def _harmless(text: str) -> bool:
    """Whether no single step of parsing or comparing takes long; together they may, until their time is up."""
    if len(text) > LONGEST_EXPRESSION or not _ALLOWED_TEXT.fullmatch(text):
        return False
    if not all(map(_ALLOWED_COMMAND.fullmatch, re.findall(r"\\([a-zA-Z]+)", text))):
        return False
    if _ODD_ROOT.search(text):
        return False
    exponents = list(_EXPONENT.finditer(text))
    if len(exponents) != text.count("^"):  # a tower, or something else than a letter, a digit or a group
        return False
    sizes = (int(re.sub(r"[^0-9]", "", exponent[1]) or "0") + 1 for exponent in exponents)
    return math.prod(sizes) <= LARGEST_POWER


@lru_cache(maxsize=1)
def _math_verify() -> Callable[[str, str], bool | None]:
    """Load the comparison and warm it up: the parser's first sentence is slow."""
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time limit; within is ours
    config = [LatexExtractionConfig()]

    def parsed(text: str) -> list[Any]:
        # Its own limits are alarms, which only the main thread can set.
        return parse(f"${text}$", config, fallback_mode="no_fallback", parsing_timeout=None)

    def compare(answer: str, reference: str) -> bool | None:
        gold = parsed(reference)
        return bool(verify(gold, parsed(answer), timeout_seconds=None)) if gold else None

    compare(r"\frac{x+1}{2}", r"\frac{x}{2}+\sqrt{\frac14}")
    return compare


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """Do the work in a thread of its own, which is ended when its time is up: then the result is None.

    Its time is its own on a CPU, so that verdicts do not depend on what else the machine does; where there is no such
    clock (macOS), it is the time since it began. An exception ends it as soon as it runs Python code again, whatever
    it was doing. One may fall into a finalizer, which swallows it, hence the loop.
    """
    results: list[T] = []
    clocks: SimpleQueue[Callable[[], float]] = SimpleQueue()

    def run() -> None:
        with contextlib.suppress(SystemExit):
            clocks.put(_own_clock())
            results.append(work())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    spent = clocks.get()
    while thread.is_alive():
        thread.join(0.02)
        with contextlib.suppress(OSError):  # its clock ends with it
            if thread.is_alive() and spent() > seconds:
                stop = ctypes.py_object(SystemExit)  # `except Exception` lets it pass
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), stop)
    return results[0] if results else None


def _own_clock() -> Callable[[], float]:
    """The seconds that the calling thread has taken, for another thread to read."""
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        return lambda: time.clock_gettime(clock)
    start = time.perf_counter()
    return lambda: time.perf_counter() - start
