"""The score of a purchase against cases computed by hand, for every branch of the formula."""

from __future__ import annotations

from fractions import Fraction

import pytest

from envs.webshop.nouns import noun_finder
from envs.webshop.reward import (
    attributes_met,
    options_met,
    overlap,
    plain_color,
    same_option,
    score,
    similar,
    type_factor,
)


def every_word(title):
    """The nouns of titles that hold nothing else."""
    return tuple(title.lower().split())


@pytest.mark.parametrize(
    ("same_query", "same_category", "shared", "expected"),
    [
        # nothing in common: worthless, even where query and category say it is the same
        (False, False, 0.0, 0.0),
        (True, True, 0.0, 0.0),
        # below a tenth
        (False, False, 0.05, 0.1),
        (True, True, 0.09, 0.1),
        # up to a fifth it takes the query or the category
        (False, False, 0.1, 0.5),
        (False, False, 0.2, 0.5),
        (True, False, 0.1, 1.0),
        (False, True, 0.2, 1.0),
        # above a fifth the titles say enough
        (False, False, 0.21, 1.0),
        (True, True, 1.0, 1.0),
    ],
)
def test_the_type_factor_has_four_values(same_query, same_category, shared, expected):
    assert type_factor(same_query=same_query, same_category=same_category, overlap=shared) == expected


@pytest.mark.parametrize(
    ("bought", "wanted", "expected"),
    [
        ("shirt", "shirt", 1.0),
        ("shirt", "lamp", 0.0),
        ("desk lamp", "floor lamp", 1 / 2),
        # a repeated noun counts once above, twice below
        ("lamp lamp", "lamp", 1.0),
        ("lamp", "lamp shade lamp", 1 / 3),
        ("lamp", "", 0.2),
        ("", "lamp", 0.0),
    ],
)
def test_overlap_is_shared_nouns_over_wanted_nouns(bought, wanted, expected):
    assert overlap(bought.split(), wanted.split()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("waterproof", "waterproof", True),
        ("essential oils", "essential oil", True),
        ("Water-Proof!", "water proof", True),
        ("clean easy", "easy to clean", True),
        ("soft", "sturdy", False),
        ("", "soft", False),
        ("", "", False),
        ("crème", "crme", True),
        # 12 of 14 letters in common: 85.7 rounds to 86
        ("abcdefg", "abcdefx", True),
        # 64 of 75: 85.3 rounds to 85, which does not exceed 85
        ("abcdefghijklmnopqrstuvwxyz012345" + "x" * 5, "abcdefghijklmnopqrstuvwyz012345x" + "9" * 6, False),
        # 34 of 40: exactly 85
        ("abcdefghijklmnopq" + "rst", "abcdefghijklmnopq" + "uvw", False),
    ],
)
def test_similar_is_above_85_after_rounding(one, other, expected):
    assert similar(one, other) is expected
    assert similar(other, one) is expected


@pytest.mark.parametrize(
    ("fields", "wanted", "expected"),
    [
        ({"attributes": ("soft", "warm")}, ("soft", "warm"), 2),
        ({"attributes": ("essential oil",)}, ("essential oils", "tea tree"), 1),
        ({"title": "Very Machine Washable Shirt"}, ("machine washable",), 1),
        ({"bullets": ("made of wool", "Non Slip sole")}, ("non slip",), 1),
        # features are read as one text
        ({"bullets": ("made of wool", "non")}, ("wool non",), 1),
        ({"description": "A shirt with LONG sleeves."}, ("long sleeve",), 1),
        # the wanted attribute is compared as it is written
        ({"description": "a long sleeve"}, ("Long Sleeve",), 0),
        ({"attributes": ("soft",), "title": "Soft Shirt", "description": "soft"}, ("soft",), 1),
        ({"attributes": ("soft",)}, ("heavy",), 0),
        ({"attributes": ("soft",)}, ("soft", "soft"), 2),
    ],
)
def test_attributes_are_looked_for_everywhere(product, fields, wanted, expected):
    assert attributes_met(product(**fields), wanted) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("black forest", "black"),
        # by the order of the list, not of the text
        ("violet lavender", "lavender"),
        ("dark navy", "dark"),
        ("123alabaster", "alabaster"),
        # also inside words
        ("standard", "tan"),
        ("small", "small"),
        ("", ""),
    ],
)
def test_colors_are_reduced_to_their_family(value, expected):
    assert plain_color(value) == expected


@pytest.mark.parametrize(
    ("chosen", "wanted", "expected"),
    [
        (("pack of 12", "grey", "xl"), ("grey", "xl", "pack of 12"), 3),
        (("pack of 12", "blue", "xl"), ("grey", "xl", "pack of 12"), 2),
        (("powder snow",), ("cool powder snow",), 1),
        (("navy blue",), ("light blue",), 1),
        (("small", "large"), ("small",), 1),
        (("black",), ("black", "black"), 2),
        ((), ("black",), 0),
        (("black",), (), 0),
    ],
)
def test_options_are_met_by_any_chosen_value(chosen, wanted, expected):
    assert options_met(chosen, wanted) == expected


def test_an_option_value_stands_for_others_of_its_color():
    assert same_option("sky blue", "blue | white")
    assert not same_option("red", "blue")


WANTED = {"attributes": ("soft", "warm", "long sleeve"), "options": ("red", "large"), "price_limit": 40.0}
GOOD = {"attributes": ("soft", "warm", "long sleeve"), "price": 40.0}


@pytest.mark.parametrize(
    ("fields", "chosen", "changes", "expected"),
    [
        (GOOD, ("red", "large"), {}, Fraction(1)),
        # the price may be the limit, not above it
        ({**GOOD, "price": 40.01}, ("red", "large"), {}, Fraction(5, 6)),
        (GOOD, ("red",), {}, Fraction(5, 6)),
        (GOOD, (), {}, Fraction(4, 6)),
        ({**GOOD, "attributes": ("warm",), "title": "Cotton Shirt"}, ("large",), {}, Fraction(3, 6)),
        ({"attributes": (), "title": "Cotton Shirt", "price": 99.0}, (), {}, Fraction(0)),
        # without options, attributes and price share the score
        ({"attributes": ("warm",), "title": "Cotton Shirt"}, ("red",), {"options": ()}, Fraction(2, 4)),
        # another kind of thing: two of three title nouns in common are enough, one of six is not
        (
            {**GOOD, "query": "robe", "title": "Soft Cotton Robe", "category": frozenset()},
            ("red", "large"),
            {},
            Fraction(1),
        ),
        (
            {**GOOD, "query": "robe", "title": "wool robe", "category": frozenset({"Tops"})},
            ("red", "large"),
            {"title": "wool shirt a b c d"},
            Fraction(1, 2),
        ),
        # the same, but in two parts of its category alike
        (
            {**GOOD, "query": "robe", "title": "wool robe", "category": frozenset({"Tops", "Clothing"})},
            ("red", "large"),
            {"title": "wool shirt a b c d"},
            Fraction(1),
        ),
        # or found by the same query
        (
            {**GOOD, "title": "wool robe", "category": frozenset()},
            ("red",),
            {"title": "wool shirt a b c d"},
            Fraction(5, 6),
        ),
        (
            {**GOOD, "title": "wool"},
            ("red",),
            {"title": "wool a b c d e f g h i j k"},
            Fraction(5, 60),
        ),
        ({**GOOD, "title": "Lamp"}, ("red", "large"), {}, Fraction(0)),
    ],
)
def test_the_score_is_the_formula(product, goal, fields, chosen, changes, expected):
    found = score(product(**fields), chosen, goal(**{**WANTED, **changes}), every_word)
    assert found.total == pytest.approx(float(expected))
    assert found.success is (expected == 1)


def test_the_parts_of_a_score_are_told(product, goal):
    wanted = goal(attributes=("soft", "heavy"), options=("red",), price_limit=20.0)
    found = score(product(title="Soft Shirt"), ("dark red",), wanted, noun_finder("words"))
    # dark is a color of its own, and comes before red
    assert (found.type, found.attributes, found.options, found.price) == (1.0, 1, 0, False)
    assert found.total == 1 / 4


def test_an_exact_purchase_scores_exactly_one_whatever_the_numbers(product, goal):
    # success is a score equal to 1: rounding must not get in the way
    for attributes in range(1, 12):
        for options in range(12):
            names = tuple(f"attribute{'abcdefghijklm'[i] * 9}" for i in range(attributes))
            values = tuple(f"value{'abcdefghijklm'[i] * 9}" for i in range(options))
            found = score(
                product(attributes=names), values, goal(attributes=names, options=values), every_word
            )
            assert found.total == 1.0
            assert found.success
