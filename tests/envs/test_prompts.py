"""The response format and the prompts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.prompts import (
    REJECTIONS,
    TEMPLATES,
    TemplateError,
    named_style,
    parse,
    render,
    render_next,
    write_response,
)
from envs.text_env import Observation

TAGS = ("<think>", "</think>", "<action>", "</action>")
MOVES = ("up", "down")

# one of the strings a human would call well-formed; slow on bad input, which is why `parse` is not this
STRICT = re.compile(
    r"\s*<think>(?P<thought>(?:(?!</?think>|</?action>).)*)</think>"
    r"\s*<action>(?P<action>(?:(?!</?think>|</?action>).)*)</action>\s*",
    re.DOTALL,
)


@pytest.mark.parametrize(
    ("response", "rejection"),
    [
        ("<think> push up </think> <action> up </action>", None),
        ("\n<think></think><action>up</action>\n", None),
        ("<think> a </think> <action> jump </action>", "inadmissible"),
        ("<think> a </think> <action> UP </action>", "inadmissible"),
        ("", "no_think"),
        ("up", "no_think"),
        ("<action> up </action>", "no_think"),
        ("<action> up", "no_think"),
        ("<think> a </think> up", "no_action"),
        ("<think> up up up", "truncated"),
        ("<think> a </think> <action> up", "truncated"),
        ("a </think>", "unpaired_tag"),
        ("<think> a <action> up </action>", "unpaired_tag"),
        ("a </think> <action> up </action>", "unpaired_tag"),
        ("<think> a </think> up </action>", "unpaired_tag"),
        ("<think> <think> a </think> <action> up </action>", "repeated_tags"),
        ("<think> a </think> <action> up </action> <action> up </action>", "repeated_tags"),
        ("<action> up </action> <think> a </think>", "wrong_order"),
        ("<think> <action> up </action> </think>", "wrong_order"),
        ("</think> <think> <action> up </action>", "wrong_order"),
        ("so <think> a </think> <action> up </action>", "text_outside"),
        ("<think> a </think> so <action> up </action>", "text_outside"),
        ("<think> a </think> <action> up </action> .", "text_outside"),
        ("<think> a </think> <action> </action>", "empty_action"),
    ],
)
def test_every_rejection_has_its_reason(response, rejection):
    parsed = parse(response, MOVES)
    assert parsed.rejection == rejection
    assert parsed.rejection in (None, *REJECTIONS)
    assert parsed.well_formed == (rejection in (None, "inadmissible"))
    if not parsed.well_formed:
        assert (parsed.action, parsed.thought) == ("", "")


def test_an_action_is_free_where_none_is_listed_and_its_white_space_collapses():
    parsed = parse("<think> I search.\n Then look. </think><action> search[red \n shoes] </action>", None)
    assert (parsed.action, parsed.rejection) == ("search[red shoes]", None)
    assert parsed.thought == "I search.\n Then look."
    assert parse("<think></think><action>go</action>", ()).rejection == "inadmissible"


@given(st.lists(st.sampled_from([*TAGS, *TAGS, "up", "a", " ", "\n", "<", "think>"]), max_size=14))
@settings(max_examples=500)
def test_agrees_with_the_strict_expression_on_tag_soup(pieces):
    response = "".join(pieces)
    parsed, match = parse(response, None), STRICT.fullmatch(response)
    if match is None:
        assert not parsed.well_formed
    elif not match["action"].strip():
        assert parsed.rejection == "empty_action"
    else:
        assert parsed.rejection is None
        assert parsed.action == " ".join(match["action"].split())
        assert parsed.thought == match["thought"].strip()


plain = st.text(st.characters(blacklist_characters="<>"), max_size=30)


@given(plain, plain.filter(str.strip))
def test_reads_what_write_response_wrote(thought, action):
    parsed = parse(write_response(thought, action), None)
    assert parsed.rejection is None
    assert (parsed.thought, parsed.action) == (thought.strip(), " ".join(action.split()))


@pytest.mark.parametrize(
    "piece", ["<think>", "<think> ", " ", "\n", "<", "<think></think>", "<action>", "</think", "<t"]
)
@pytest.mark.parametrize(
    "frame", ["{}", "<think>{}", "<think>{}</think>", "<think>a</think>{}<action>up</action>"]
)
def test_hostile_text_takes_no_more_than_linear_time(piece, frame):
    # anything quadratic in a megabyte runs into the test's time limit
    parse(frame.format(piece * (1_000_000 // len(piece))), MOVES)


def test_compact_prompts_hold_nothing_but_words_of_the_world():
    observation = Observation("P X O", "P X O", MOVES)
    assert render("compact", "Win.", (), observation) == "<obs> P X O </obs>"
    prompt = render("compact", "Win.", [("a b", "up"), ("c d", "")], observation)
    past = "<obs> a b </obs> <action> up </action> <obs> c d </obs> <action> </action>"
    assert " ".join(prompt.split()) == f"{past} <obs> P X O </obs>"


def test_full_prompts_say_everything_in_order():
    prompt = render("full", "Win the $game {now}.", [("a $b", "up")], Observation("c {d}", None, MOVES))
    parts = ["Win the $game {now}.", "1", "a $b", "up", "c {d}", "up, down", "<think>", "<action>"]
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)


def test_full_prompts_leave_out_what_is_not_there():
    prompt = render("full", "Win.", (), Observation("c", None, None))
    assert "turns" not in prompt
    assert "Admissible" not in prompt
    assert "$" not in prompt
    assert "\n\n\n" not in prompt


@pytest.fixture
def style(tmp_path):
    def write(prompt, turn="$observation -> $action\n"):
        (tmp_path / "prompt.txt").write_text(prompt, encoding="utf-8")
        if turn is not None:
            (tmp_path / "turn.txt").write_text(turn, encoding="utf-8")
        render.__globals__["_templates"].cache_clear()
        return str(tmp_path)

    return write


def test_a_folder_of_ones_own_is_a_style(style):
    mine = style("$task costs 3 $$\n\nbefore: $history\n\nnow: $observation\n")
    assert render(mine, "It", (), Observation("x", None, None)) == "It costs 3 $\n\nnow: x"
    shown = render(mine, "It", [("w", "go"), ("v", "")], Observation("x", None, None))
    assert shown == "It costs 3 $\n\nbefore: w -> go\nv -> \n\nnow: x"


def test_in_a_transcript_only_the_observation_follows(style):
    seen = Observation("box ahead", None, ("up", "down"))
    assert render_next("compact", seen) == "<obs> box ahead </obs>"
    text = render_next("full", seen)
    assert "box ahead" in text
    assert "up, down" in text
    whole = render("full", "Win.", [("w", "go")], seen)
    assert whole.startswith("Win.")
    assert "Win." not in text
    assert "go" not in text.split()
    assert set(text.split("\n\n")) < set(whole.split("\n\n"))
    mixed = style("$task: $observation")
    with pytest.raises(TemplateError, match=r"must stand in a paragraph without \$task"):
        render_next(mixed, seen)


@pytest.mark.parametrize(
    ("prompt", "turn", "message"),
    [
        ("$task", "$action", r"prompt\.txt: \$observation is missing"),
        ("$observation costs 3 $", "$action", r"prompt\.txt: a lone \$"),
        ("$observation $mood", "$action", r"prompt\.txt: unknown \$mood, expected .*\$task"),
        ("$observation", "$action $task", r"turn\.txt: unknown \$task"),
        ("$observation", None, r"turn\.txt: No such file"),
    ],
)
def test_unusable_templates_are_named(style, prompt, turn, message):
    with pytest.raises(TemplateError, match=message):
        render(style(prompt, turn), "", (), Observation("x", None, None))


def test_a_style_of_ones_own_is_held_to_its_content(style, tmp_path, monkeypatch):
    mine = style("$observation")
    monkeypatch.chdir(tmp_path.parent)
    held = named_style(f"./{tmp_path.name}")
    assert held == named_style(mine) == named_style(held)
    assert held.startswith(f"{tmp_path}#")
    assert render(held, "", (), Observation("x", None, None)) == "x"
    other = style("now: $observation")
    assert named_style(other) != held
    with pytest.raises(TemplateError, match="no longer those that were planned with"):
        render(held, "", (), Observation("x", None, None))


def test_styles_that_come_with_the_platform_keep_their_names():
    assert [named_style(name) for name in ("compact", "full", f"{TEMPLATES}/full")] == [
        "compact",
        "full",
        "full",
    ]


def test_an_unknown_style_names_the_known_ones():
    with pytest.raises(TemplateError, match="'verbose': expected one of compact, full"):
        render("verbose", "", (), Observation("x", None, None))


def test_templates_are_part_of_the_package():
    assert {path.name for path in TEMPLATES.iterdir()} >= {"compact", "full"}
