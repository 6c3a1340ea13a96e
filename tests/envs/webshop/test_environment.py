"""Episodes, rewards, what is shown and admitted, and what the platform asks."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from envs.webshop import environment as module
from envs.webshop.expert import WebShopExpert
from envs.webshop.files import write_files
from envs.webshop.generator import generate

MODES = ("compact", "text", "text_rich")


@pytest.fixture(scope="module")
def small(load):
    """A quick shop with changes."""
    return lambda **changes: load(**{"eval_goals": 50, "catalogue": {"products": 100}, **changes})


def buy(env, expert, seed):
    """An expert's episode: everything its steps gave."""
    env.reset(seed)
    steps = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(expert.action(env)))
    return steps


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("search", ["choose", "free"])
def test_the_expert_buys_the_right_thing_in_every_mode(small, mode, search):
    environment, config = small(observation=mode, search=search)
    env, expert = environment.make(config), environment.expert(config)
    for seed in range(40):
        for _, reward, _, _, info in buy(env, expert, seed)[:-1]:
            assert (reward, info["success"], info["score"]) == (0.0, False, 0.0)
        _, reward, terminated, truncated, info = buy(env, expert, seed)[-1]
        assert (terminated, truncated) == (True, False)
        assert (reward, info["success"], info["score"]) == (10.0, True, 1.0)


def test_score_and_success_are_kept_apart(small):
    rewards = {"step": -0.25, "score": 4.0, "success": 2.0}
    environment, config = small(rewards=rewards)
    env, expert = environment.make(config), environment.expert(config)
    steps = buy(env, expert, 0)
    assert [step[1] for step in steps[:-1]] == [-0.25] * (len(steps) - 1)
    assert steps[-1][1] == -0.25 + 4.0 + 2.0
    for seed in range(20):
        # the right product, but no option chosen: two attributes and the price of four
        env.reset(seed)
        while "click[ buy now ]" not in (info := env.step(expert.action(env))[-1])["admissible"]:
            pass
        _, reward, terminated, _, info = env.step("click[ buy now ]")
        assert terminated
        assert not info["success"]
        assert info["score"] == 3 / 4
        assert reward == -0.25 + 4.0 * 3 / 4


def test_every_admissible_action_does_something(small):
    environment, config = small()
    env = environment.make(config)
    for seed in range(20):
        for action in env.reset(seed)[1]["admissible"]:
            env.reset(seed)
            text, _, _, _, info = env.step(action)
            assert " | page " in text
            for following in info["admissible"]:
                env.reset(seed)
                env.step(action)
                assert env.step(following)[0] != text


@pytest.mark.parametrize("mode", MODES)
def test_names_are_read_in_any_case_and_spacing(small, mode):
    environment, config = small(observation=mode)
    env = environment.make(config)
    _, info = env.reset(0)
    expected = env.step(info["admissible"][0])
    env.reset(0)
    assert env.step(info["admissible"][0].replace("[", " [ ").replace("]", "  ]")) == expected
    after = env.step(expected[-1]["admissible"][-1])
    env.reset(0)
    env.step(info["admissible"][0])
    verb, name = expected[-1]["admissible"][-1].split("[", 1)
    assert env.step(f"{verb}[{name.upper()}") == after


def test_free_search_admits_anything_and_choosing_a_few_queries(small):
    environment, config = small(search="free")
    env = environment.make(config)
    assert env.reset(0)[1]["admissible"] is None
    assert env.step("search[lamp]")[-1]["admissible"][0] == "click[ back to search ]"
    environment, config = small(queries=4)
    env = environment.make(config)
    for seed in range(30):
        admissible = env.reset(seed)[1]["admissible"]
        assert len(admissible) == len(set(admissible)) == 4
    # where they are listed, others still work: that is for the trainer to penalise
    assert " | page " in env.step("search[lamp]")[0]


def test_turns_that_the_page_does_not_know_are_void(small):
    environment, config = small(search="free")
    env = environment.make(config)
    assert env.reset(0)[1]["void"] is False
    said = [
        ("", True),
        ("buy a lamp", True),
        ("click[buy now]", True),  # not on this page
        ("search[lamp]", False),
        ("search[lamp]", True),  # there is no search bar here
        ("click[no such thing]", True),
        ("click[back to search]", False),
    ]
    assert [env.step(action)[-1]["void"] for action, _ in said] == [void for _, void in said]
    pool = environment.make_pool(config)
    pool.reset([0, 0], "train")
    assert [outcome.void for outcome in pool.step([0, 1], ["what?", "search[lamp]"])] == [True, False]


@pytest.fixture(scope="module")
def playground(small):
    environment, config = small(max_turns=10_000)
    return environment.make(config)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.text(max_size=30), st.integers(0, 99)), max_size=12))
def test_no_text_breaks_an_episode(playground, moves):
    _, info = playground.reset(0)
    for move in moves:
        admissible = info["admissible"]
        action = move if isinstance(move, str) else admissible[move % len(admissible)]
        before = (playground.visit.page, dict(playground.visit.chosen), playground.visit.number)
        text, _, terminated, _, info = playground.step(action)
        if action not in admissible and module.parse_action(action) is None:
            assert (playground.visit.page, playground.visit.chosen, playground.visit.number) == before
        if terminated:
            return
        assert info["admissible"]
        assert text == info["anchor"]


def test_all_episodes_of_a_process_share_one_shop(small):
    environment, config = small()
    _, other = small(observation="text", max_turns=3, rewards={"step": 1.0})
    envs = [environment.make(config) for _ in range(3)] + [environment.make(other)]
    for env in envs:
        env.reset(0)
    assert len({id(env.shop) for env in envs}) == 1
    # an episode that travels to another process takes its visit along, not the shop
    assert len(pickle.dumps(envs[0])) < 10_000


def test_a_search_is_made_once(small, monkeypatch):
    environment, config = small()
    env = environment.make(config)
    shop = env.shop
    calls = []
    ranked = shop._index.search
    monkeypatch.setattr(shop._index, "search", lambda *given: calls.append(given) or ranked(*given))
    for _ in range(3):
        env.reset(0)
        env.step("search[quite a new lamp]")
    assert len(calls) == 1


def test_info_and_data_id_tell_what_found_the_nouns(small):
    environment, config = small(nouns="words")
    env = environment.make(config)
    assert env.reset(0)[1]["nouns"] == "words"
    assert environment.data_id(config).endswith(" nouns:words")
    _, other = small(nouns="en_no_such_model")
    assert environment.data_id(other) != environment.data_id(config)
    assert "python -m spacy download en_no_such_model" in environment.problems(other)[0]


def test_official_files_are_played_and_identified(small, tmp_path):
    environment, config = small()
    raw = generate(config.catalogue)
    asin = raw.items[0]["asin"]
    entries = [
        {
            "instruction": f"i want number {number}",
            "instruction_attributes": ["soft"],
            "instruction_options": [],
        }
        for number in range(60)
    ]
    raw.human[asin] = entries
    write_files(raw, tmp_path)
    _, official = small(data_path=str(tmp_path), goals="human", observation="text")
    assert environment.problems(official) == []
    assert environment.data_id(official).startswith("files-")
    text, _ = environment.make(official).reset(0)
    assert "i want number" in text
    before = environment.data_id(official)
    (tmp_path / "reviews.json").write_text("[]")
    assert environment.data_id(official) != before


def test_human_goals_need_their_file(small, tmp_path):
    environment, config = small()
    write_files(generate(config.catalogue), tmp_path)
    _, official = small(data_path=str(tmp_path), goals="human")
    with pytest.raises(ValueError, match=r"items_human_ins\.json"):
        environment.make(official).reset(0)
    assert any("items_human_ins.json" in problem for problem in environment.problems(official))


def test_problems_say_what_to_do(small, monkeypatch, tmp_path):
    environment, config = small()
    assert environment.problems(config) == []
    assert "for more products" in environment.problems(small(eval_goals=100_000)[1])[0]
    _, nowhere = small(data_path=str(tmp_path / "nowhere"))
    assert "is no folder" in environment.problems(nowhere)[0]
    assert environment.data_id(nowhere).startswith("files-missing")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert environment.problems(config)[0] == "webshop needs bm25s: pip install bm25s"
    assert {problem.split()[-1] for problem in environment.problems(config)} == {
        "bm25s",
        "PyStemmer",
        "rapidfuzz",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goals": "human"}, "data_path"),
        ({"observation": "html"}, "observation"),
        ({"catalogue": {"kinds": 99}}, r"catalogue\.kinds"),
        ({"catalogue": {"goal_attributes": 4}}, "exceeds attributes"),
        ({"catalogue": {"colour": 1}}, r"catalogue\.colour"),
        ({"rewards": {"bonus": 1.0}}, r"rewards\.bonus"),
        ({"hits": 0}, "hits"),
    ],
)
def test_impossible_parameters_are_refused(load, changes, message):
    with pytest.raises(ValidationError, match=message):
        load(**changes)


@pytest.mark.parametrize("name", ["webshop", "webshop_full"])
@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_goal_can_be_reached_in_time(load, name, split):
    environment, config = load(name)
    env, expert = environment.make(config), environment.expert(config)
    count = len(env.shop.goals[split])
    for seed in range(0, count, count // 100):
        env.reset(seed, {"split": split})
        terminated = truncated = False
        while not (terminated or truncated):
            _, _, terminated, truncated, info = env.step(expert.action(env))
        assert info["success"]


def test_the_expert_recovers_from_detours(small):
    environment, config = small(max_turns=40)
    env, expert = environment.make(config), environment.expert(config)
    for seed in range(60):
        _, info = env.reset(seed)
        for detour in (seed, seed // 2, seed // 3, seed // 5):
            choices = [action for action in info["admissible"] if action != "click[ buy now ]"]
            info = env.step(choices[detour % len(choices)])[-1]
        terminated = truncated = False
        while not (terminated or truncated):
            _, _, terminated, truncated, info = env.step(expert.action(env))
        assert info["success"]


def test_the_expert_gives_up_where_nothing_fits(small):
    environment, config = small(hits=1, queries=1, search="choose")
    env, expert = environment.make(config), environment.expert(config)
    stuck = 0
    for seed in range(100):
        env.reset(seed)
        stuck += expert.action(env) is None
    assert 0 < stuck < 100


def test_thoughts_name_what_they_are_about(small):
    environment, config = small()
    env, expert = environment.make(config), WebShopExpert(config)
    _, info = env.reset(0)
    query = info["admissible"][0]
    assert expert.thought(env, query) == "look for " + query.removeprefix("search[ ").removesuffix(" ]")
    env.step(query)
    verdicts = {}
    for place, index in enumerate(env.visit.shown(config.page_size), start=1):
        thought = expert.thought(env, f"click[ #{place} ]").split()
        assert thought[0] == f"#{place}"
        verdicts[index] = thought[-1]
    assert set(verdicts.values()) <= {"fits", "maybe"}
    best = expert.action(env)
    assert expert.thought(env, best).endswith("fits")
    env.step(best)
    (wanted,) = env.visit.goal.options
    assert expert.thought(env, f"click[ {wanted} ]") == f"need {wanted}"
    wrong = next(
        v for values in env.shop.products[env.visit.product].options.values() for v in values if v != wanted
    )
    assert expert.thought(env, f"click[ {wrong} ]") == f"take {wrong}"
    assert expert.thought(env, "click[ buy now ]") == "buy it"
    env.step(f"click[ {wanted} ]")
    assert expert.thought(env, "click[ buy now ]") == "all chosen buy it"
    assert expert.thought(env, "nonsense") == "go back"
