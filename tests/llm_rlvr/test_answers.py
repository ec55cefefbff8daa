"""Numbers out of free text by hand, equality of answers, and any text at all: in time, in any thread."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llm_rlvr.answers import equivalent, final_number, is_formatted

MARKED = [
    ("#### 42", 42),
    ("#### 42.", 42),
    ("#### 42\n", 42),
    ("####42", 42),
    ("####\n42", 42),
    ("#### 1,000", 1000),
    ("#### 1,234,567.50", Fraction("1234567.5")),
    ("#### −3", -3),
    ("#### -3", -3),
    ("#### - 3", -3),
    ("#### +3", 3),
    ("#### -0", 0),
    ("#### -$5", -5),
    ("#### $-5$", -5),
    ("#### $1,000.50", Fraction("1000.5")),
    ("#### \\$20", 20),
    ("#### €20", 20),
    ("#### 50%", 50),
    ("#### **42**", 42),
    ("**#### 42**", 42),
    ("#### `42`", 42),
    ("#### 42 apples", 42),
    ("#### 42km", 42),
    ("#### 42e", 42),
    ("#### 1/3", Fraction(1, 3)),
    ("#### -1/3", Fraction(-1, 3)),
    ("#### 2 1/2", Fraction(5, 2)),
    ("#### $\\frac{3}{4}$", Fraction(3, 4)),
    ("#### \\boxed{42}", 42),
    ("#### .5", Fraction(1, 2)),
    ("#### 3.0", 3),
    ("#### 1e3", 1000),
    ("#### 1.5E-1", Fraction(3, 20)),
    ("#### ４２", 42),
    ("#### ٤٢", 42),
    ("#### 42 because 40 + 2 = 42, not 43", 42),
    ("#### 42\nThat is 7 more than 35.", 42),
    ("#### 41\nNo, wait.\n#### 42", 42),
    ("#### 42\n#### Explanation", 42),
    ("#### 42 ####", 42),
    ("\\boxed{7} and #### 42", 42),
    ("#### 42 and \\boxed{7}", 42),
    ("#### 42\n#### 1e999999999", 42),
    ("#### 10*2=20", 10),
    ("x" * 100_000 + "#### 42", 42),
    ("#### 42" + " no" * 3000, 42),
]
BOXED = [
    (r"\boxed{42}", 42),
    (r"\boxed{ 42 }", 42),
    (r"\boxed {42}", 42),
    (r"\boxed{\frac{1}{3}}", Fraction(1, 3)),
    (r"\boxed{-\frac{1}{3}}", Fraction(-1, 3)),
    (r"\boxed{\dfrac{-1}{3}}", Fraction(-1, 3)),
    (r"\boxed{\frac13}", Fraction(1, 3)),
    (r"\boxed{2\frac{1}{2}}", Fraction(5, 2)),
    (r"\boxed{\text{about } {42}}", 42),
    (r"\boxed{42 \text{ apples}}", 42),
    (r"\boxed{10\text{ cm}^2}", 10),
    (r"\boxed{x_1 = 5}", 5),
    (r"\boxed{2 + 3 = 5}", 5),
    (r"\boxed{\$1{,}000}", 1000),
    (r"\boxed{1\,000}", 1000),
    (r"\boxed{50\%}", 50),
    (r"$\boxed{42}$. That is 7 more than 35.", 42),
    (r"\boxed{41}, no, \boxed{42}", 42),
    (r"\boxed{42}, \boxed{x}", 42),
    (r"\boxed{\boxed{42}}", 42),
    (r"{ { \boxed{42} }", 42),
    (r"} \boxed{42}", 42),
    (r"\boxed{\{42\}}", 42),
    (r"#### Step 2: \boxed{42}", 42),
]
BARE = [
    ("42", 42),
    ("**42**", 42),
    ("42 apples", 42),
    ("The 3 of them have 42.", 42),
    ("$1,000.50", Fraction("1000.5")),
    ("50%", 50),
    ("1/3", Fraction(1, 3)),
    ("10-3", 3),
    ("it is -3", -3),
    ("it is −3", -3),
    ("it is...42", 42),
    ("- 3 apples", 3),
    ("x^{-3}", -3),
    ("3, 5", 5),
    ("7 is not 3,5", 7),
    (r"\boxed{42", 42),
    ("#### Step 2", 2),
    ("# 42", 42),
    ("7 " * 50_000, 7),
]
NONE = [
    "",
    " ",
    "no number",
    "####",
    "#### ",
    r"\boxed{}",
    r"\boxed{x}",
    "½ ² Ⅳ 四",
    "1/0",
    r"\frac{1}{0}",
    "1,00,000",
    "3,5",
    "1.2.3",
    "1e999999999",
    "#### 1e999999999",
    "1e-999999999",
    "9" * 5000,
    "#### " + "9" * 5000,
    "1e" + "9" * 5000,
]
PIECES = ["a", " ", "9", "-", ".", "$", "[", "{", "}", "\\", '"', "/", "9^", "9 ", "9,", ".9", "1/", "9e", "e9", "#"]
PIECES += ["####", "#### ", "#### \n", "\\boxed{", "\\boxed{9}", "\\boxed", "\\frac", "\\frac{9", "\\frac{9}{", "(x+"]
HUGE = {piece: piece * (100_000 // len(piece)) for piece in PIECES}
FRAGMENTS = ["####", "\\boxed{", "{", "}", "0", "1", "42", "−", "-", "e", "9" * 5000, "[", "(", ")", '"', "^", "**"]
FRAGMENTS += [
    "\\frac",
    "\\sqrt",
    "<answer>",
    "</answer>",
    ".",
    ",",
    "/",
    "$",
    "%",
    "=",
    "+",
    "x",
    "!",
    " ",
    "\n",
    "answer",
]

QUICK = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
texts = st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)
short_texts = st.lists(st.sampled_from([text for text in FRAGMENTS if len(text) < 10]), max_size=8).map("".join)
digitless = st.text(st.characters(exclude_categories=["Nd", "Cs"])) | st.lists(
    st.sampled_from([text for text in FRAGMENTS if not any(map(str.isdigit, text))])
).map("".join)
numbers = st.fractions() | st.integers().map(Fraction)


def in_worker(function: Callable, *arguments: str):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


THREADS = pytest.mark.parametrize(
    "call", [lambda function, *arguments: function(*arguments), in_worker], ids=["main", "worker"]
)


@contextmanager
def a_second() -> Iterator[None]:
    """Of computing time of all threads; what else the machine does must not count."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 1


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    equivalent("x", "y")


@pytest.mark.parametrize(("text", "number"), MARKED + BOXED)
def test_stated_number(text, number):
    assert final_number(text) == number
    assert is_formatted(text)


@pytest.mark.parametrize(("text", "number"), BARE)
def test_last_number(text, number):
    assert final_number(text) == number
    assert not is_formatted(text)


@pytest.mark.parametrize("text", NONE)
def test_no_number(text):
    assert final_number(text) is None
    assert not is_formatted(text)


def test_numbers_are_exact():
    third = final_number("#### 0.3333333333333333")
    assert isinstance(third, Fraction)
    assert third != Fraction(1, 3)
    assert final_number("0.1") + final_number("0.2") == final_number("0.3")
    assert final_number("9" * 100) == 10**100 - 1


def test_a_number_at_the_cut_is_not_halved():
    for padding in range(19_990, 20_000):
        assert final_number("#### 123456" + "." * padding) in (123456, None)


def spellings(number: Fraction) -> list[str]:
    if number.denominator != 1:
        top, bottom = number.numerator, number.denominator
        sign = "-" if top < 0 else ""
        return [f"{top}/{bottom}", rf"{sign}\frac{{{abs(top)}}}{{{bottom}}}", rf"\dfrac{{{top}}}{{{bottom}}}"]
    return [f"{number}", f"{number.numerator:,}", f"{number}.0", f"{number}".replace("-", "−"), f"{number}e0"]


@given(number=numbers, text=digitless, data=st.data())
@QUICK
def test_what_follows_without_a_digit_changes_nothing(number, text, data):
    written = data.draw(st.sampled_from(spellings(number)))
    form = data.draw(
        st.sampled_from(["#### {}", "####{}.", "#### ${}$", "#### **{}**", "\\boxed{{{}}}", "7 #### {} x"])
    )
    answer = form.format(written)
    assert final_number(answer) == number
    assert final_number(f"{answer} {text}") == number
    assert final_number(f"{answer}\n{text}") == number
    assert is_formatted(f"{answer}\n{text}")


@THREADS
@given(text=texts)
@QUICK
def test_any_text_is_read_in_time(call, text):
    with a_second():
        number = call(final_number, text)
        formatted = call(is_formatted, text)
    assert number is None or isinstance(number, Fraction)
    assert not (formatted and number is None)


@THREADS
@pytest.mark.parametrize("piece", HUGE)
def test_huge_text_in_time(call, piece):
    with a_second():
        call(final_number, HUGE[piece])
        call(is_formatted, HUGE[piece])
        call(equivalent, HUGE[piece], "x+1")
        call(equivalent, "x+1", HUGE[piece])


EQUAL = [
    ("42", "42"),
    ("42.0", "42"),
    ("1,000", "1000"),
    ("0.5", r"\frac{1}{2}"),
    ("1/2", "$0.5$"),
    ("−3", "-3"),
    (r"50\%", "50"),
    ("x", " x "),
    (r"\boxed{x+1}", "1+x"),
    (r"It is \boxed{2\sqrt{2}}.", r"\sqrt{8}"),
    (r"\frac{x+1}{2}", r"\frac{x}{2}+\frac12"),
    ("(x+1)^2", "x^2+2x+1"),
    ("2x", "x*2"),
    ("x^{-1}", "1/x"),
    (r"\sqrt[3]{16}", r"2\sqrt[3]{2}"),
    ("x=3", "3"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("(0.5, 3)", r"\left(\frac{1}{2}, 3\right)"),
    ("3<x", "x>3"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    (r"\text{yes}", "yes"),
    ("(9^{99})^{9}", "9^{891}"),
]
DIFFERENT = [
    ("42", "43"),
    ("0.333333", "1/3"),
    ("x+1", "x+2"),
    ("x^2", "x^3"),
    (r"\sqrt{2}", r"\sqrt{3}"),
    ("(1,2)", "(2,1)"),
    ("", "3"),
    ("no idea", "4x"),
    ("(" * 9, "x"),
    (r"\sqrt[999]{2}", "1"),
]
UNDECIDED = [
    ("3", ""),
    ("", ""),
    ("x", "((((("),
    ("9^{9^{9^{9}}}", "x"),
    ("[0,9^{9^{9}}]", "[0,1]"),  # math-verify evaluates what stands in intervals and roots when it parses
    (r"\sqrt[9^{9^9}]{2}", "x"),
    (r"\sqrt[\frac{1}{999999999}]{9}", "x"),
    ("9^9^9^9", "x"),
    ("(((9^9)^9)^9)^9)^9", "x"),
    ("9^{999999999}", "x"),
    ("9^{1,000,000,000}", "x"),
    (r"9^{1\!000\!000}", "x"),
    ("9^{9/.000001}", "x"),
    ("999999999!", "x"),
    (r"\int x dx", "x"),
    (r"\sum_{n=1}^{9} n", "x"),
    ("x+" * 100 + "x", "x"),
    ("π", "x"),
]
SLOW = [
    ("(" * 60 + "x" + ")" * 60, "x+1"),  # 20 s to parse
    ("{" * 40 + "y" + "}" * 40, "x"),  # minutes to parse
    ("(x+1)^{10}(y+2)^{10}(z+3)^9", "(x+1)^{10}(y+2)^{10}(z+3)^8"),  # 7 s to simplify
]


@THREADS
@pytest.mark.parametrize(
    ("answer", "reference", "verdict"),
    [(*pair, verdict) for pairs, verdict in ((EQUAL, True), (DIFFERENT, False), (UNDECIDED, None)) for pair in pairs],
)
def test_equivalent(call, answer, reference, verdict):
    assert call(equivalent, answer, reference) is verdict


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the end may fall into a finalizer
@THREADS
@pytest.mark.parametrize(("answer", "reference"), SLOW)
def test_slow_comparisons_are_given_up(call, answer, reference):
    with a_second():
        assert call(equivalent, answer, reference) is None
    assert call(equivalent, "2x+x", "3x") is True


@THREADS
@given(answer=short_texts | texts, reference=short_texts)
@example("x" * 150, "x")
@example("answer " * 20 + "9", "x")
@example("\\frac" * 30, "x")
@settings(QUICK, max_examples=30)
def test_any_texts_are_compared_in_time(call, answer, reference):
    with a_second():
        assert call(equivalent, answer, reference) in (True, False, None)
