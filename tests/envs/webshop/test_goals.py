"""Goals, their splits, and that a goal is the same everywhere."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import zlib
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from envs.process_pool import ProcessPool
from envs.registry import load_environment
from envs.webshop.files import DataError, RawShop
from envs.webshop.goals import goals_of, split_goals
from envs.webshop.shop import open_shop, split_stock

NAMES = ("webshop", "webshop_full")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("observation", ["compact", "text", "text_rich"])
@pytest.mark.parametrize("name", NAMES)
def test_no_eval_goal_is_ever_seen_in_training(load, name, observation):
    environment, config = load(name, observation=observation)
    env = environment.make(config)
    starts = {
        split: [env.reset(seed, {"split": split})[0] for seed in range(len(goals))]
        for split, goals in open_shop(config).goals.items()
    }
    env.close()
    assert len(set(starts["eval"])) == len(starts["eval"]) == config.eval_goals
    assert len(set(starts["train"])) == len(starts["train"]) > 1000
    assert not set(starts["eval"]) & set(starts["train"])


SCRIPT = """
import random, sys
import numpy
from envs.process_pool import ProcessPool
from envs.registry import load_environment
from tests_of_goals import describe
random.seed(1), numpy.random.seed(1)
sys.stdout.write(describe(*load_environment({values!r})))
"""


def describe(environment, config):
    """Whatever the first goals of both splits are, as episodes meet them."""
    env = environment.make(config)
    env.reset(7)
    parts = []
    for split in ("train", "eval"):
        for seed in range(400):
            text, _ = env.reset(seed, {"split": split})
            goal = env.visit.goal
            parts.append(repr((text, goal.asin, goal.attributes, goal.options, goal.price_limit)))
    return str(zlib.crc32("".join(parts).encode()))


def test_a_goal_index_means_the_same_goal_in_every_process(configuration, tmp_path):
    # with another hash seed and other global randomness, as workers have them
    values = configuration("webshop")
    (tmp_path / "tests_of_goals.py").write_text("import zlib\n" + inspect.getsource(describe))
    script = SCRIPT.format(values=values)
    path = os.pathsep.join((str(ROOT), str(tmp_path)))
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout
    assert found == describe(*load_environment(values))


def test_a_goal_index_means_the_same_goal_in_every_worker(load):
    environment, config = load()
    seeds = list(range(60))
    here = environment.make_pool(config)
    apart = ProcessPool(partial(environment.make, config), workers=2, step_seconds=60)
    for split in ("train", "eval"):
        assert apart.reset(seeds, split) == here.reset(seeds, split)
    # whichever worker has it, and however often
    assert apart.reset(seeds[::-1], "eval") == here.reset(seeds, "eval")[::-1]
    apart.close(), here.close()


def test_goals_of_a_seed_never_change(load):
    # other numbers here mean that old results cannot be reproduced: raise GENERATOR
    goals = open_shop(load()[1]).goals
    texts = ["\n".join(goal.instruction for goal in goals[split]) for split in ("train", "eval")]
    assert [zlib.crc32(text.encode()) for text in texts] == [2423143511, 2172689322]


def test_other_numbers_of_train_goals_leave_the_evaluation_alone(load):
    few, many = (split_stock(load(train_goals=count)[1])[1] for count in (50, 500))
    assert few["eval"] == many["eval"]
    assert few["train"] == many["train"][:50]
    other = split_stock(load(goal_seed=1)[1])[1]
    assert other["eval"] != few["eval"]


def test_too_few_goals_are_counted():
    with pytest.raises(DataError, match="3 different goals, but 3 eval_goals and at least 1 train_goals"):
        split_goals(["a", "b", "c"], seed=0, train=None, evaluation=3)
    with pytest.raises(DataError, match="2 train_goals"):
        split_goals(["a", "b", "c"], seed=0, train=2, evaluation=2)


def shop_of(product, ins, human=None):
    return [product], RawShop([], {product.asin: ins}, human or {})


def test_a_synthetic_goal_for_every_combination_of_options(product):
    item = product(options={"size": ("s", "m"), "color": ("red", "blue", "green")}, price=25.0)
    ins = {"instruction": "Find me soft shirt", "instruction_attributes": ["soft"]}
    goals = goals_of(*shop_of(item, ins), "synthetic", 0)
    assert len({goal.instruction for goal in goals}) == 6
    first = goals[0]
    # options by name, as in the instruction
    assert first.option_names == ("color", "size")
    assert first.options == ("red", "s")
    assert first.instruction.startswith("Find me soft shirt with color: red, and size: s, and price ")
    assert first.instruction.endswith(f" {first.price_limit:.2f} dollars")
    assert first.attributes == ("soft",)


@pytest.mark.parametrize("ins", [{}, {"instruction": None}, {"instruction": "x"}])
def test_products_without_an_instruction_have_no_goal(product, ins):
    assert goals_of(*shop_of(product(), ins), "synthetic", 0) == []


def test_some_combinations_of_a_product_are_drawn_by_the_seed(product):
    item = product(options={"size": ("s", "m", "l"), "color": ("red", "blue", "green")})
    shop = shop_of(item, {"instruction": "Find me soft shirt", "instruction_attributes": ["soft"]})
    every = goals_of(*shop, "synthetic", 0)
    seen = set()
    for seed in range(40):
        some = goals_of(*shop, "synthetic", seed, 2)
        assert len(some) == 2
        seen |= {goal.options for goal in some}
    assert seen == {goal.options for goal in every}
    some = goals_of(*shop, "synthetic", 0, 2)
    assert some == [goal for goal in every if goal in some]
    assert goals_of(*shop, "synthetic", 0, 9) == every


def test_human_instructions_are_taken_as_they_are(product):
    entries = [
        {"instruction": text, "instruction_attributes": attributes, "instruction_options": options}
        for text, attributes, options in (
            ("i'm looking for a soft shirt.", ["soft"], ["red"]),
            ("nothing asked for", [], []),
            ("I want a SOFT shirt!", ["soft"], []),
            ("a warm one", ["warm"], {"size": "m"}),
        )
    ]
    item = product(price=985.0)
    goals = goals_of(*shop_of(item, {}, {item.asin: entries}), "human", 0)
    # no limit where no two tens are above the price; the third reads as the first
    assert [goal.instruction for goal in goals] == ["i'm looking for a soft shirt", "a warm one"]
    assert [goal.options for goal in goals] == [("red",), ("m",)]
    assert [goal.option_names for goal in goals] == [("",), ("size",)]
    assert {goal.price_limit for goal in goals} == {1_000_000.0}


def test_price_limits_are_the_larger_of_two_of_the_next_four_tens(product):
    limits = Counter()
    for number in range(3000):
        item = product(asin=f"B{number:09}", price=20.0)
        ins = {"instruction": "x", "instruction_attributes": ["soft"]}
        (goal,) = goals_of(*shop_of(item, ins), "synthetic", 0)
        limits[goal.price_limit] += 1
    # of the six pairs of 30, 40, 50, 60, three have 60 as the larger, two 50, one 40
    assert set(limits) == {40.0, 50.0, 60.0}
    assert limits[60.0] / 3000 == pytest.approx(3 / 6, abs=0.04)
    assert limits[50.0] / 3000 == pytest.approx(2 / 6, abs=0.04)


def test_limits_follow_the_goal_seed_alone(product):
    item = product()
    ins = {"instruction": "x", "instruction_attributes": ["soft"]}
    limits = [goals_of(*shop_of(item, ins), "synthetic", seed)[0].price_limit for seed in range(30)]
    assert limits == [goals_of(*shop_of(item, ins), "synthetic", seed)[0].price_limit for seed in range(30)]
    assert len(set(limits)) == 3
