"""Actions, pages and where clicks lead, in a shop small enough to see through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.browsing import Action, Visit, follow, links, parse_action, queries, search
from envs.webshop.pages import click_name, observe, write_action
from envs.webshop.products import Review
from envs.webshop.shop import Shop, Stock

SIZE = 2
"""Results on a page."""


@pytest.fixture(scope="module")
def shop(product, goal):
    products = (
        product(
            asin="B000000001",
            title="Soft Lamp, Black",
            query="lamp",
            description="A lamp.",
            bullets=("first feature", "second feature"),
            options={"color": ("black | white", "red"), "size": ("small", "red")},
            reviews=(Review("great", "5", "i like it"),),
            rating="5",
            attributes=("soft",),
            price=25.01,
        ),
        product(asin="B000000002", title="Blue Lamp", query="lamp", price=9.0, price_tag="$9.0"),
        *(product(asin=f"B00000001{n}", title="Lamp", query="lamp", description="x " * n) for n in range(3)),
    )
    goals = (
        goal(title="Soft Lamp, Black", query="lamp", instruction="Find me a soft lamp", options=("red",)),
    )
    return Shop(Stock(products, goals), {"train": goals, "eval": goals}, hits=4, nouns="words")


@pytest.fixture
def visit(shop):
    return Visit(shop.goal(0, "train"))


def click(shop, visit, name, mode="text"):
    named = {click_name(link, mode): link for link in links(shop, visit, SIZE)}
    follow(shop, visit, named[name])


def names(shop, visit, mode="text"):
    return [click_name(link, mode) for link in links(shop, visit, SIZE)]


def show(shop, visit, mode="text"):
    return observe(shop, visit, mode, page_size=SIZE, page_words=3)


@pytest.mark.parametrize(
    ("text", "verb", "argument"),
    [
        ("search[red lamp]", "search", "red lamp"),
        ("click[Buy Now]", "click", "buy now"),
        ("  click [  Back  to\nSearch ] ", "click", "back to search"),
        ("search[a]b]", "search", "a]b"),
        ("search[search[x]]", "search", "search[x]"),
        ("search[ÉTÉ]", "search", "été"),
    ],
)
def test_actions_are_read(text, verb, argument):
    assert parse_action(text) == Action(verb, argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "search",
        "search[]",
        "click[ ]",
        "Search[x]",
        "buy[x]",
        "click[x",
        "click x]",
        "x click[x]",
        "click[x] y",
    ],
)
def test_what_is_no_action_is_none(text):
    assert parse_action(text) is None


@given(st.text(max_size=60), st.sampled_from(["search", "click"]), st.sampled_from(["compact", "text"]))
def test_a_written_action_is_read_back(argument, verb, mode):
    parsed = parse_action(write_action(verb, argument, mode))
    tidy = " ".join(argument.lower().split())
    assert parsed == (Action(verb, tidy) if tidy else None)


@given(st.text(alphabet="searchclik[] \n\x00é", max_size=40))
def test_any_text_is_an_action_or_none(text):
    parsed = parse_action(text)
    if parsed is not None:
        assert parsed.argument == " ".join(parsed.argument.split()).lower() != ""
        assert text.strip().startswith(parsed.verb)


def test_a_long_reply_is_read_in_no_time():
    # quadratic reading of either would not end
    assert parse_action("click[" * 200_000) is None
    assert parse_action("search[" + " " * 500_000 + "]") is None


def test_there_is_a_search_bar_on_the_search_page_only(shop, visit):
    assert names(shop, visit) == []
    search(shop, visit, "blue lamp")
    assert visit.page == "results"
    assert visit.hits[0] == 1
    before = visit.hits
    search(shop, visit, "soft")
    assert (visit.page, visit.hits) == ("results", before)


def test_pages_of_results_follow_each_other(shop, visit):
    search(shop, visit, "lamp")
    assert len(visit.hits) == 4
    assert names(shop, visit)[:2] == ["back to search", "next >"]
    click(shop, visit, "next >")
    assert visit.number == 2
    assert names(shop, visit)[:2] == ["back to search", "< prev"]
    assert [link.product for link in links(shop, visit, SIZE)[2:]] == list(visit.hits[2:])
    click(shop, visit, "< prev")
    assert visit.number == 1
    click(shop, visit, "back to search")
    assert visit.page == "search"


def test_an_item_and_its_pages(shop, visit):
    search(shop, visit, "soft black")
    click(shop, visit, "b000000001")
    expected = ["back to search", "< prev", "black | white", "red", "small", "red"]
    assert names(shop, visit) == [*expected, "description", "features", "reviews", "buy now"]
    click(shop, visit, "black | white")
    for page in ("description", "features", "reviews"):
        click(shop, visit, page)
        assert visit.page == page
        assert names(shop, visit) == ["back to search", "< prev"]
        click(shop, visit, "< prev")
        assert visit.page == "item"
    # what was chosen stays until another product is looked at
    assert visit.chosen == {"color": "black | white"}
    click(shop, visit, "< prev")
    assert (visit.page, visit.number) == ("results", 1)
    click(shop, visit, "b000000001")
    assert visit.chosen == {}


def test_a_value_is_chosen_for_every_option_that_has_it(shop, visit):
    search(shop, visit, "soft black")
    click(shop, visit, "b000000001")
    click(shop, visit, "small")
    click(shop, visit, "red")
    assert visit.chosen == {"size": "red", "color": "red"}


def test_buying_ends_with_a_score(shop, visit):
    search(shop, visit, "soft black")
    click(shop, visit, "b000000001")
    click(shop, visit, "red")
    click(shop, visit, "buy now")
    assert visit.page == "done"
    assert visit.score.total == 1.0
    assert links(shop, visit, SIZE) == []
    assert (
        show(shop, visit) == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"
    )


def test_the_text_of_every_page(shop, visit):
    head = "Instruction: [SEP] Find me a soft lamp [SEP] "
    assert show(shop, visit) == f"WebShop [SEP] {head}Search"
    search(shop, visit, "lamp soft black")
    first, second = (shop.products[index] for index in visit.shown(SIZE))
    assert show(shop, visit) == (
        f"{head}Back to Search [SEP] Page 1 (Total results: 4) [SEP] Next > [SEP] "
        f"{first.asin} [SEP] {first.title} [SEP] $25.0 [SEP] {second.asin} [SEP] {second.title} [SEP] "
        f"{second.price_tag}"
    )
    click(shop, visit, "b000000001")
    item = (
        f"{head}Back to Search [SEP] < Prev [SEP] color [SEP] black | white [SEP] red [SEP] size [SEP] small "
        "[SEP] red [SEP] Soft Lamp, Black [SEP] Price: $25.0 [SEP] Rating: 5 [SEP] Description [SEP] "
        "Features [SEP] Reviews [SEP] Buy Now"
    )
    assert show(shop, visit) == item
    # the official text does not show what was chosen
    click(shop, visit, "small")
    assert show(shop, visit) == item
    for page, text in (
        ("description", "A lamp."),
        ("features", "first feature [SEP] second feature"),
        ("reviews", '"great" [SEP] 5 [SEP] i like it'),
    ):
        click(shop, visit, page)
        assert show(shop, visit) == f"{head}Back to Search [SEP] < Prev [SEP] {text}"
        click(shop, visit, "< prev")


def test_rich_text_tells_buttons_and_what_was_clicked(shop, visit):
    search(shop, visit, "soft black")
    click(shop, visit, "b000000001")
    click(shop, visit, "small")
    lines = show(shop, visit, "text_rich").splitlines()
    assert lines[0] == "You have clicked small."
    assert "[clicked button] small [clicked button_]" in lines
    assert "[button] black | white [button_]" in lines
    assert "Soft Lamp, Black" in lines
    click(shop, visit, "< prev")
    lines = show(shop, visit, "text_rich").splitlines()
    assert "[clicked button] B000000001 [clicked button_]" in lines
    assert not any(line.startswith("You have clicked") for line in lines)


def test_the_compact_pages_are_few_plain_words(shop, visit):
    assert show(shop, visit, "compact") == "soft lamp | search"
    search(shop, visit, "soft black")
    # 25.01 dollars are over a limit of 20 and within one of 30
    assert show(shop, visit, "compact") == "soft lamp | page 1 1 | #1 soft lamp black 30"
    assert names(shop, visit, "compact") == ["back to search", "#1"]
    click(shop, visit, "#1", "compact")
    assert names(shop, visit, "compact")[1:4] == ["prev", "black white", "red"]
    click(shop, visit, "black white", "compact")
    assert show(shop, visit, "compact") == (
        "soft lamp | soft lamp black 30 | color black white red | size small red | chosen black white"
    )
    click(shop, visit, "features", "compact")
    assert show(shop, visit, "compact") == "soft lamp | features first feature second"
    click(shop, visit, "prev", "compact")
    click(shop, visit, "prev", "compact")
    assert show(shop, visit, "compact") == "soft lamp | page 1 1 | #1 soft lamp black 30 seen"
    click(shop, visit, "back to search", "compact")
    assert show(shop, visit, "compact") == "soft lamp | search | tried soft black"
    search(shop, visit, "zebra")
    assert show(shop, visit, "compact") == "soft lamp | page 1 1 | nothing"


def test_no_reviews_are_said_to_be_none(shop, visit):
    search(shop, visit, "blue")
    click(shop, visit, "b000000002")
    click(shop, visit, "reviews")
    assert show(shop, visit).endswith("< Prev [SEP] No reviews found")


def test_queries_go_from_specific_to_general(goal):
    wanted = goal(query="lamp", attributes=("soft", "Warm"), options=("red",))
    every = ["soft warm lamp red", "soft warm lamp", "lamp red", "soft lamp", "warm lamp", "lamp"]
    assert queries(wanted, 9) == every
    assert queries(wanted, 2) == every[:2]
    assert queries(goal(query="lamp", attributes=("soft",)), 9) == ["soft lamp", "lamp"]
