"""Problems of reasoning-gym."""

from __future__ import annotations

import re
import shutil

import pytest

from envs.tir_math.config import ReasoningGymConfig
from envs.tir_math.grading import grade
from envs.tir_math.problem import content
from envs.tir_math.reasoning import data_id, problems

pytest.importorskip("reasoning_gym")

FAMILIES = ["chain_sum", "gcd", "simple_equations"]


def config(families=FAMILIES, difficulty=None, **parameters):
    return ReasoningGymConfig(families=families, difficulty=difficulty, parameters=parameters)


def test_families_take_turns_and_splits_share_nothing():
    found = problems(config(), train=300, evaluation=90, seed=0)
    train, evaluation = ({content(problem.text) for problem in split} for split in (found.train, found.eval))
    assert (len(train), len(evaluation)) == (300, 90)
    assert not train & evaluation
    assert "arithmetic" in found.train[0].text
    assert "Greatest Common" in found.train[1].text
    assert re.search(r"\d\*[a-z]", found.train[2].text)
    assert problems(config(), train=300, evaluation=90, seed=0) == found


def test_other_seeds_give_other_problems():
    # neighbouring seeds of reasoning-gym's data sets share all items but one
    one, two = (problems(config(), train=60, evaluation=30, seed=seed) for seed in (0, 1))
    assert len({p.text for p in one.train + one.eval} & {p.text for p in two.train + two.eval}) < 10


def test_known_code_computes_the_truth():
    found = problems(config(["chain_sum", "products"]), train=40, evaluation=2, seed=0)
    for problem in found.train:
        assert problem.code is not None
        assert str(eval(problem.code.removeprefix("print"))) == problem.truth


def test_difficulty_and_parameters_make_problems_harder():
    easy, hard = (problems(config(["chain_sum"], level), train=50, evaluation=2, seed=0) for level in (0, 4))
    length = [sum(len(problem.text) for problem in found.train) for found in (easy, hard)]
    assert length[1] > 1.2 * length[0]
    long = problems(
        config(["chain_sum"], 0, chain_sum={"min_terms": 9, "max_terms": 9}), train=5, evaluation=1, seed=0
    )
    assert all(problem.text.count(" + ") + problem.text.count(" - ") >= 8 for problem in long.train)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": ["chain_summ"]}, "no 'chain_summ', did you mean chain_sum"),
        ({"families": ["chain_sum"], "chain_sum": {"max_words": 3}}, "parameters.chain_sum"),
        ({"families": ["chain_sum"], "chain_sum": {"min_terms": 9, "max_terms": 2}}, "parameters.chain_sum"),
        ({"families": ["chain_sum"], "chain_sum": {"max_terms": 2, "max_digits": 1}}, r"only \d+ of 900"),
    ],
)
def test_impossible_requests_say_what_to_change(changes, message):
    with pytest.raises(ValueError, match=message):
        problems(config(**changes), train=900, evaluation=50, seed=0)


def test_the_identity_names_the_version():
    assert data_id().startswith("reasoning-gym-0.")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_math_verify_accepts_the_truth_of_every_family_of_the_configuration(configuration):
    families = configuration("tir_math")["reasoning_gym"]["families"]
    found = problems(config(families), train=10 * len(families), evaluation=len(families), seed=0)
    pairs = [(problem.truth, f" {problem.truth} ") for problem in found.train]
    assert all(grade(pairs, plain_numbers=True))
