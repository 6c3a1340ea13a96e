"""Names, queries and texts against the classes of alfworld and textworld that they stand for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld import package
from envs.alfworld.facts import Condition, Fact, Facts
from envs.alfworld.grammar import Context, Entity, Grammar
from envs.alfworld.grammar_parser import (
    GrammarError,
    conditions,
    is_fixed,
    parse_grammar,
    parse_text,
    split_task,
)
from envs.alfworld.naming import entity_names

THINGS = [("a", "thing"), ("b", "thing"), ("c", "thing"), ("x", "place"), ("y", "place")]
PLACEHOLDERS = [("p", "thing"), ("q", "thing"), ("r", "place"), ("s", "place")]

PREDICATES = st.sampled_from(["on", "near", "not_on"])
facts = st.lists(st.tuples(PREDICATES, st.permutations(THINGS).map(lambda order: order[:2])), max_size=14)
queries = st.lists(
    st.tuples(PREDICATES, st.permutations(PLACEHOLDERS).map(lambda order: order[:2])), min_size=1, max_size=3
)
givens = st.dictionaries(st.sampled_from(PLACEHOLDERS), st.sampled_from(THINGS))


@given(facts=facts, query=queries, given=givens)
@settings(max_examples=200, deadline=None)
def test_answers_are_those_of_textworld_in_its_order(facts, query, given):
    from textworld.logic import GameLogic, Placeholder, Predicate, Proposition, Rule, State, Type, Variable

    logic = GameLogic()
    for name in ("thing", "place"):
        logic.types.add(Type(name, []))
    state = State(logic, [Proposition(name, [Variable(*each) for each in things]) for name, things in facts])
    predicates = [Predicate(name, [Placeholder(*each) for each in order]) for name, order in query]
    mapping = {Placeholder(*placeholder): Variable(*thing) for placeholder, thing in given.items()}
    expected = [
        {(each.name, each.type): (thing.name, thing.type) for each, thing in answer.items()}
        for answer in state.all_assignments(Rule("query", predicates, []), mapping)
    ]
    ours = Facts(Fact(name, tuple(things)) for name, things in facts)
    conditions = tuple(
        Condition(tuple(order), ((name, tuple(kind for _, kind in order)),)) for name, order in query
    )
    assert list(ours.answers(conditions, given)) == expected


def test_a_copy_of_facts_changes_alone():
    on, off = Fact("on", (("a", "thing"),)), Fact("not_on", (("a", "thing"),))
    assert on.negated() == off
    assert off.negated() == on
    original = Facts([on])
    copy = original.copy()
    copy.become_true(off, on)
    assert set(original) == {on}
    assert set(copy) == {off}
    original.become_true(off, on)
    original.become_true(on, off)
    assert set(original) == {on}
    assert set(copy) == {off}
    assert set(copy.of({"on"})) == set()


identifiers = st.lists(
    st.tuples(
        st.sampled_from(["cabinet", "mug", "sink", "loc", "agent1", "type"]),
        st.sampled_from(["_bar_", ""]),
        st.text("0123456789", min_size=1, max_size=4),
        st.sampled_from(["", "_minus_1", "_bar_sinkbasin"]),
    ).map("".join),
    unique=True,
    max_size=12,
)


@given(identifiers)
@settings(max_examples=200, deadline=None)
def test_names_are_those_of_alfworld(names):
    with package.importing():
        from alfworld.agents.utils.misc import Demangler
        from textworld.generator.game import EntityInfo

    demangler = Demangler(game_infos={name: EntityInfo(name, "thing") for name in names}, shuffle=False)
    assert entity_names(names) == {name: demangler.demangle_alfred_name(name) for name in names}


@pytest.mark.parametrize(
    "text", ["Your task is to: put a mug in desk.", "a", "A-b, c (d)!", "Say it: 'now'?", "two words"]
)
def test_plain_text_is_what_the_parser_reads(text):
    from textworld.envs.pddl.textgen import TerminalSymbol, _parse_and_convert

    parsed = _parse_and_convert(text, rule_name="symbols")
    assert [type(symbol) for symbol in parsed] == [TerminalSymbol]
    assert parse_text(text) == [["text", parsed[0].symbol]]


def test_the_goal_is_cut_out_of_a_grammar_and_can_hold_anything_json_can():
    grammar = package.grammar()
    one, two = (grammar.replace("UNKNOWN GOAL", goal) for goal in ("put a mug in desk", 'say \\"a\\nb\\"'))
    assert split_task(one) == (split_task(two)[0], "Your task is to: put a mug in desk.")
    assert split_task(two)[1] == 'Your task is to: say "a\nb".'
    assert split_task("no rules at all") == ("no rules at all", None)


def test_a_parsed_grammar_is_plain_data_and_says_what_it_depends_on():
    data = parse_grammar(package.grammar())
    assert json.loads(json.dumps(data)) == data
    assert ("inreceptacle", ("object", "receptacle")) in set(conditions(data))
    templates = {name: action["template"] for name, action in data["actions"].items()}
    assert is_fixed(templates["PickupObject".lower()], frozenset({"inreceptacle"}))
    assert is_fixed(templates["gotolocation"], frozenset({"atlocation"}))
    assert not is_fixed(templates["gotolocation"], frozenset({"receptacleatlocation"}))


SMALL = """
grammar :: \"\"\"
    {
        "intro": [{"rhs": "You see [{t.indefinite + ' ' + t.name | there(t : thing)}].#more#"}],
        "more": [{"condition": "there(t : thing) & red(t : thing)", "rhs": "(One is red.)"}, {"rhs": ""}],
        "task": [{"rhs": "Your task is to: UNKNOWN GOAL."}],
        "list_empty": [{"rhs": "nothing"}],
        "list_separator": [{"rhs": ", "}],
        "list_last_separator": [{"rhs": ", and "}]
    }
\"\"\";
"""


@pytest.mark.parametrize(
    ("things", "red", "text"),
    [
        ("", "", "You see nothing."),
        ("b", "", "You see a name of b."),
        ("ba", "c", "You see a name of a, and a name of b."),
        ("cab", "b", "You see a name of a, a name of b, and a name of c.(One is red.)"),
    ],
)
def test_enumerations_and_conditions(things, red, text):
    data = parse_grammar(SMALL)
    grammar = Grammar(data, None, lambda name, kinds: ((name, kinds),))
    found = [Fact("there", ((thing, "thing"),)) for thing in things]
    found += [Fact("red", ((thing, "thing"),)) for thing in red]
    entities = {thing: Entity(thing, "thing", f"name of {thing}") for thing in "abc"}
    context = Context(Facts(found), entities, {})
    assert grammar.derive(grammar.symbols([["rule", "intro"]]), context) == text
    with pytest.raises(GrammarError, match="no rule for #outro#"):
        grammar.derive(grammar.symbols([["rule", "outro"]]), context)
