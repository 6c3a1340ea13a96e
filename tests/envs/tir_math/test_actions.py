"""From a response to code or an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.prompts import parse, write_response
from envs.tir_math.actions import VOID, Action, last_boxed, read_action, write_answer, write_code

LOOP = "for i in range(2):\n    if i:\n\n        print('a  b')"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (f"```python\n{LOOP}\n```", Action("code", LOOP)),
        (f"```py\n{LOOP}\n```\n", Action("code", LOOP)),
        (f"```\n{LOOP}\n```", Action("code", LOOP)),
        ("```python\nprint('```')\n```", Action("code", "print('```')")),
        ("```python\n  indented()\n```", Action("code", "  indented()")),
        ("python: print(1 + 1)", Action("code", "print(1 + 1)")),
        ("answer: 12", Action("answer", "12")),
        ("answer: \\boxed{12}", Action("answer", "12")),
        ("answer: the result is \\boxed{\\frac{1}{2}}.", Action("answer", "\\frac{1}{2}")),
        ("\\boxed{12}", Action("answer", "12")),
        ("answer: \\boxed{1} or \\boxed{2}", Action("answer", "2")),
        ("answer: \\boxed{1", Action("answer", "\\boxed{1")),
        ("", VOID),
        ("42", VOID),
        ("print(1)", VOID),
        ("python:", VOID),
        ("answer:", VOID),
        ("answer: \\boxed{}", VOID),
        ("```python\n\n```", VOID),
        ("```python\nprint(1)", VOID),
        ("```ruby\nputs 1\n```", VOID),
        ("```python\nprint(1)\n``` and then", VOID),
        ("Python: 1", VOID),
        ("\\boxed{1", VOID),
    ],
)
def test_actions_are_code_answers_or_void(text, action):
    assert read_action(text, joined=False) == action


def test_words_are_joined_to_code_and_numbers():
    assert read_action("python: ( 3 7 + 8 ) * 2 5", joined=True) == Action("code", "(37+8)*25")
    assert read_action("answer: - 1 2", joined=True) == Action("answer", "-12")
    assert read_action("answer:", joined=True) == VOID


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", None),
        ("12", None),
        ("\\boxed{ 12 }", "12"),
        ("so \\boxed{1}, no, \\boxed{2}", "2"),
        ("\\boxed{a{b}c{d{e}}}", "a{b}c{d{e}}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{1} \\boxed{2", "1"),
    ],
)
def test_the_last_complete_box_counts(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize("piece", ["\\boxed{", "{", "}", "\\boxed{}"])
def test_hostile_boxes_take_no_more_than_linear_time(piece):
    # anything quadratic runs into the test's time limit
    last_boxed(piece * 200_000)
    read_action(f"answer: {piece * 200_000}", joined=False)


def test_code_keeps_its_lines_on_the_way_through_a_response():
    response = write_response("Let me see.", write_code(LOOP))
    parsed = parse(response, None)
    assert parsed.rejection is None
    assert write_response(parsed.thought, parsed.action) == response
    assert read_action(parsed.action, joined=False) == Action("code", LOOP)
    # and other actions are one line, as everywhere
    assert parse("<think></think><action> answer: \n 12 </action>", None).action == "answer: 12"
    assert parse("<think></think><action>  \n ```\n```</action>", ("up",)).rejection == "inadmissible"


safe = st.text(st.characters(blacklist_characters="<>{}\\", blacklist_categories=("Cs",)), min_size=1)


@given(safe.filter(str.strip))
def test_reads_what_was_written(text):
    assert read_action(write_answer(text), joined=False) == Action("answer", text.strip())
    assert read_action(write_code(text), joined=False) == Action("code", text.strip("\n"))
