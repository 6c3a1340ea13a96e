"""The generated catalogue, the official files, and products made from either."""

from __future__ import annotations

import json
import zlib
from itertools import combinations, pairwise

import pytest

from envs.webshop.files import DataError, RawShop, find_files, fingerprint, read_files, write_files
from envs.webshop.generator import generate
from envs.webshop.products import read_products, uniform
from envs.webshop.reward import attributes_met, plain_color, similar
from envs.webshop.shop import open_shop, split_stock
from envs.webshop.wordbook import ATTRIBUTES, KINDS, OPTIONS


@pytest.fixture(scope="module")
def catalogue(load):
    return lambda name="webshop", **changes: load(name, catalogue=changes)[1].catalogue


def test_a_catalogue_of_a_seed_never_changes(catalogue):
    # other numbers here mean that old results cannot be reproduced: raise GENERATOR
    prints = [zlib.crc32(json.dumps(generate(catalogue(name)).items).encode()) for name in NAMES]
    assert prints == [3843044463, 4026596766]


NAMES = ("webshop", "webshop_full")


@pytest.mark.parametrize("name", NAMES)
def test_products_are_as_the_configuration_says(catalogue, name):
    config = catalogue(name)
    raw = generate(config)
    products = read_products(raw)
    assert len(products) == len({product.asin for product in products}) == config.products
    kinds = {kind.name: kind for kind in KINDS[: config.kinds]}
    assert {product.query for product in products} == set(kinds)
    for product in products:
        kind = kinds[product.query]
        assert len(product.asin) == 10
        assert len(product.attributes) == len(set(product.attributes)) == config.attributes
        shown = [attribute for attribute in product.attributes if attribute in product.title.lower()]
        assert len(shown) == config.attributes - config.hidden_attributes
        assert kind.low <= product.price < kind.high
        assert len(product.options) == min(config.options, len(kind.options))
        for name_, values in product.options.items():
            assert len(set(values)) == config.option_values
            assert set(values) <= set(OPTIONS[name_])
        wanted = raw.attributes[product.asin]["instruction_attributes"]
        assert len(wanted) == config.goal_attributes
        assert set(wanted) <= set(product.attributes)


def test_the_first_products_stay_when_more_are_asked_for(catalogue):
    few, many = (generate(catalogue(products=count)) for count in (20, 50))
    assert many.items[:20] == few.items
    assert generate(catalogue(products=20, seed=1)).items != few.items


def test_a_small_shop_has_few_words(load):
    environment, config = load()
    assert len(environment.vocabulary(config)) < 300


def test_an_attribute_is_met_by_the_products_that_have_it_only(load):
    _, config = load("webshop_full")
    for product in split_stock(config)[0].products[:300]:
        met = {attribute for attribute in ATTRIBUTES if attributes_met(product, [attribute])}
        assert met == set(product.attributes)


def test_the_options_of_the_word_book_are_told_apart_by_the_reward():
    for values in OPTIONS.values():
        for one, other in combinations(values, 2):
            assert not similar(plain_color(one), plain_color(other))


def test_searching_is_hard(load):
    # the kind alone finds many products, of other kinds too, and most do not have what is asked for
    shop = open_shop(load("webshop_full")[1])
    hits = shop.search("lamp")
    assert len(hits) == 50
    assert len({shop.products[index].query for index in hits}) > 1
    alike = [sum(a.query == b.query for a in shop.products) for b in shop.products[:50]]
    assert min(alike) > 10


def test_the_generated_shop_survives_the_official_files(load, tmp_path):
    _, config = load(catalogue={"products": 40}, eval_goals=10)
    write_files(generate(config.catalogue), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "items_shuffle.json",
        "items_ins_v2.json",
        "reviews.json",
    }
    _, from_files = load(data_path=str(tmp_path), eval_goals=10)
    assert split_stock(from_files) == split_stock(config)
    _, fewer = load(data_path=str(tmp_path), max_products=15, eval_goals=10)
    assert split_stock(fewer)[0].products == split_stock(config)[0].products[:15]


ITEM = {
    "asin": "B000000001",
    "name": "Lamp, Black / White",
    "query": " Desk Lamps ",
    "category": "home",
    "product_category": "Home › Lighting ›  Lamps",
    "full_description": None,
    "small_description": "One feature",
    "pricing": "$1,299.99$1,499.00",
    "customization_options": {
        "Color": [{"value": " Black/White ", "image": "x"}, {"value": "RED"}, {"value": "red"}],
        "Size": None,
    },
    "images": ["x"],
}


def read_one(**fields):
    return read_products(RawShop([{**ITEM, **fields}], {}))[0]


def test_official_fields_are_read_as_officially():
    product = read_one()
    assert product.title == "Lamp, Black / White"
    assert product.query == "desk lamps"
    assert product.category == {"Home", "Lighting", "Lamps"}
    assert product.bullets == ("One feature",)
    assert product.options == {"color": ("black | white", "red")}
    assert product.attributes == ("DUMMY_ATTR",)
    assert product.price_tag == "$1299.99 to $1499.0"
    assert 1299.99 <= product.price <= 1499.0
    assert product.price == read_one().price
    assert product.price != read_one(asin="B000000002").price
    assert product.text == "Lamp, Black / White  One feature color: black | white, red"
    assert (product.rating, product.reviews) == ("N.A.", ())


@pytest.mark.parametrize(
    ("pricing", "price", "tag"),
    [("$7.5", 7.5, "$7.5"), (None, 100.0, "$100.0"), ("", 100.0, "$100.0"), ("$20.00", 20.0, "$20.0")],
)
def test_prices(pricing, price, tag):
    product = read_one(pricing=pricing)
    assert (product.price, product.price_tag) == (price, tag)


def test_repeated_and_malformed_asins_are_left_out():
    asins = ["B000000001", "nan", "B000000001", "B0000000012", "B000000002"]
    products = read_products(RawShop([{**ITEM, "asin": asin} for asin in asins], {}))
    assert [product.asin for product in products] == ["B000000001", "B000000002"]


@pytest.mark.parametrize("key", ["name", "query", "product_category", "small_description"])
def test_an_item_of_another_schema_is_named(key):
    item = {name: value for name, value in ITEM.items() if name != key}
    with pytest.raises(DataError, match=rf"item 0 \(B000000001\) has another schema: .*{key}"):
        read_products(RawShop([item], {}))
    with pytest.raises(DataError, match="item 0"):
        read_one(pricing="$x")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"no items_shuffle\*.json"),
        ({"items_shuffle.json": []}, "items_shuffle.json needs items_ins_v2.json beside it"),
        ({"items_shuffle_1000.json": [], "items_ins_v2.json": {}}, "needs items_ins_v2_1000.json"),
        ({"items_shuffle.json": {}, "items_ins_v2.json": {}}, "items in .* are no JSON list"),
        ({"items_shuffle.json": [], "items_ins_v2.json": []}, "attributes in .* are no JSON dict"),
    ],
)
def test_missing_and_strange_files_are_named(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_files(tmp_path)


def test_broken_files_are_named(tmp_path):
    (tmp_path / "items_shuffle.json").write_text("[{")
    (tmp_path / "items_ins_v2.json").write_text("{}")
    with pytest.raises(DataError, match=r"items_shuffle\.json is no JSON"):
        read_files(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        find_files(tmp_path / "nowhere")


def test_the_catalogue_without_a_suffix_is_preferred(tmp_path):
    for suffix in ("", "_1000"):
        (tmp_path / f"items_shuffle{suffix}.json").write_text("[]")
        (tmp_path / f"items_ins_v2{suffix}.json").write_text("{}")
    assert find_files(tmp_path)["items"].name == "items_shuffle.json"
    (tmp_path / "items_shuffle.json").unlink()
    assert find_files(tmp_path)["attributes"].name == "items_ins_v2_1000.json"


def test_a_fingerprint_is_of_what_the_files_hold_wherever_they_lie(tmp_path):
    prints = []
    for number, item in enumerate((ITEM, ITEM, {**ITEM, "name": "Mug"})):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_files(RawShop([item], {}), folder)
        prints.append(fingerprint(folder))
    assert prints[0] == prints[1] != prints[2]


def test_keyed_numbers_are_uniform_and_depend_on_the_key_only():
    def take(count, *key):
        return [number for number, _ in zip(uniform(*key), range(count), strict=False)]

    numbers = take(4000, "a", 1)
    assert numbers == take(4000, "a", 1)
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 4000 - 0.5) < 0.02
    assert len({take(1, *key)[0] for key in (("a", 1), ("a", 2), ("b", 1), ("a1",))}) == 4
    assert all(one != other for one, other in pairwise(numbers))
