"""Right and wrong answers."""

from __future__ import annotations

import shutil

import pytest

from envs.tir_math.grading import grade, same_integer

needs_grader = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.mark.parametrize(
    ("truth", "answer", "right"),
    [
        ("3145", "3145", True),
        ("3145", "3146", False),
        ("3145", "03145", True),
        ("3145", "+3145", True),
        ("-5", "-05", True),
        ("-5", "5", False),
        ("0", "-0", True),
        ("7", "", False),
        ("7", "7.0", False),
        ("7", "٧", False),
        ("7", "3+4", False),
        ("1" * 9999, "1" * 9999, True),
        ("1" * 9999, "1" * 9998 + "2", False),
    ],
)
def test_integers_are_compared_as_numbers(truth, answer, right):
    assert same_integer(truth, answer) is right


CASES = [
    # truth, answer, right, right when formulas count as their value
    ("3145", "3{,}145", True, True),
    ("3145", "3,145", True, True),
    ("3145", "3145.0", True, True),
    ("7", "x = 7", True, True),
    ("-7", "-7", True, True),
    ("7", "8", False, False),
    ("7", "-7", False, False),
    ("7", "no idea", False, False),
    ("1/2", r"\frac{1}{2}", True, True),
    ("1/2", "0.5", True, True),
    (r"\frac{138}{583}", "138/583", True, True),
    (r"2\sqrt{3}", r"\sqrt{12}", True, True),
    (r"\sqrt{2}", "1.5", False, False),
    ("x^2 + 2x + 1", "(x+1)^2", True, True),
    ("(1,2]", "(1,2]", True, True),
    # what needs computing has to be computed
    ("3145", "37*85", False, True),
    ("3145", r"37 \cdot 85", False, True),
    ("5", r"\sqrt{25}", False, True),
    ("3628800", "10!", False, True),
    # text that tries to get out of its box
    ("7", '7} \\boxed{8"); print("right', False, False),
    ("7", "\\\\\n\x00\ud800{", False, False),
    # Python that would say so itself, were it run
    ("7/2", "1+__import__('builtins').print('right')", False, False),
    ("7/2", "}'); print('right'); exit(0) #", False, False),
    # more answers than one
    ("7", "6, 7", False, False),
    ("7", r"7 \text{ or } 8", False, False),
    ("7", r"6 \text{ or } 7", False, False),
    ("7", r"\{6, 7, 8\}", False, False),
]


@needs_grader
def test_math_verify_grades_what_is_no_integer():
    pytest.importorskip("math_verify")
    pairs = [case[:2] for case in CASES]
    strict, loose = (grade(pairs, plain_numbers=plain) for plain in (True, False))
    assert dict(zip(pairs, strict, strict=True)) == {case[:2]: case[2] for case in CASES}
    assert dict(zip(pairs, loose, strict=True)) == {case[:2]: case[3] for case in CASES}


@needs_grader
def test_an_answer_that_takes_for_ever_is_wrong_and_stops_nobody():
    pytest.importorskip("math_verify")
    answers = ["9^{9^{9^{9}}}", "10000000!", "(" * 3000 + "x" + ")" * 3000]
    assert grade([("12", answer) for answer in answers], plain_numbers=False) == [False] * 3
    assert grade([("1/2", "0.5")], plain_numbers=True) == [True]


def test_integers_need_no_sandbox(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert grade([("12", "12"), ("12", "13"), (r"\pi", r"\pi")], plain_numbers=True) == [True, False, True]
    assert grade([], plain_numbers=True) == []
