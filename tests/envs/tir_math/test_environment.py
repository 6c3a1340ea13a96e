"""Episodes: code, outputs, sessions, answers, void turns."""

from __future__ import annotations

import json
import shutil

import pytest
from pydantic import ValidationError

from envs.baselines import ExpertPolicy, evaluate
from envs.prompts import parse, write_response
from envs.registry import load_environment
from envs.tir_math.actions import write_answer, write_code
from envs.tir_math.baseline import GuessingPolicy
from envs.tir_math.environment import TIR_MATH, problems
from envs.tir_math.observation import shorten, spell_output
from envs.tir_math.sandbox.limits import Finished

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def make_config(configuration):
    def make(**changes):
        values = configuration("tir_math")
        for key, value in changes.items():
            if isinstance(value, dict):
                value = {**values[key], **value}
            values[key] = value
        return load_environment(values)[1]

    return make


@pytest.fixture
def in_text(make_config, tmp_path):
    """A configuration for language models, with one problem from a file."""
    path = tmp_path / "problems.jsonl"
    rows = [{"prompt": f"What is half of {n}?", "answer": f"{n}/2"} for n in range(1, 40, 2)]
    path.write_text("\n".join(map(json.dumps, rows)))

    def make(**changes):
        return make_config(
            **{
                "spelling": "text",
                "problems": "files",
                "files": {"train": str(path)},
                "output_limit": 200,
                **changes,
            }
        )

    return make


def start(config, seed=0):
    env = TIR_MATH.make(config)
    return env, env.reset(seed, {"split": "train"})[0]


def test_code_is_run_and_its_output_shown_in_words(make_config):
    env, problem = start(make_config())
    for action, shown in (
        ("python: 3 7 * 8 5", "python: 3 7 * 8 5 output: 3 1 4 5"),
        ("python: 3 - 8", "python: 3 - 8 output: - 5"),
        ("python: ( 3", "python: ( 3 output: error"),
    ):
        text, reward, terminated, truncated, info = env.step(action)
        assert text == f"{problem} {shown}"
        assert (reward, terminated, truncated, info["success"], info["void"]) == (
            0,
            False,
            False,
            False,
            False,
        )
        assert info["ending"] == ("raised" if "error" in shown else "done")


def test_an_answer_ends_the_episode(make_config):
    config = make_config(rewards={"correct": 3.0, "wrong": -1.0})
    for wrong in (False, True):
        env, _ = start(config)
        truth = env.episode.problem.truth
        number = str(int(truth) + 1) if wrong else truth
        _, reward, terminated, truncated, info = env.step(f"answer: {' '.join(number)}")
        assert (reward, terminated, truncated) == ((-1.0, True, False) if wrong else (3.0, True, False))
        assert info["success"] is not wrong
        with pytest.raises(ValueError, match="over"):
            env.step("answer: 1")


def test_in_words_only_a_number_is_an_answer(make_config):
    env, _ = start(make_config())
    assert env.step("answer: " + env.episode.problem.code)[-1]["success"] is False


def test_an_answer_at_the_last_turn_counts(make_config):
    env, _ = start(make_config(max_turns=2))
    env.step("")
    _, _, terminated, truncated, info = env.step("answer: " + " ".join(env.episode.problem.truth))
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_void_turns_are_flagged_and_change_nothing_but_the_count(make_config):
    config = make_config(rewards={"void": -0.5})
    env, problem = start(config)
    pool = TIR_MATH.make_pool(config)
    pool.reset([0, 0], "train")
    for action, void in (("", True), ("1 2", True), ("python: 1 + 1", False), ("so what", True)):
        text, reward, _, truncated, info = env.step(action)
        assert info["void"] is void
        assert reward == (-0.5 if void else 0.0)
        (outcome,) = pool.step([1], [action])
        assert (outcome.void, outcome.reward) == (void, reward)
    assert truncated
    assert text == f"{problem} python: 1 + 1 output: 2"


def test_rewards_tell_failed_code_from_good(make_config):
    env, _ = start(make_config(rewards={"code": 0.25, "failed_code": -0.25}))
    assert [env.step(action)[1] for action in ("python: 1 + 1", "python: 1 +")] == [0.25, -0.25]


def test_in_transcripts_only_the_new_output_is_shown(make_config, in_text):
    env, problem = start(make_config(shows="new"))
    texts = [env.step(action)[0] for action in ("", "python: 1 + 1", "so what")]
    assert texts == [problem, "output: 2", "output: 2"]
    env, problem = start(in_text(shows="new"))
    assert problem.startswith("What is half of")
    assert env.step(write_code("print(3)"))[0] == "Its output:\n```\n3\n```"


@pytest.mark.parametrize("shows", ["last", "all"])
def test_text_shows_code_and_output(in_text, shows):
    env, problem = start(in_text(shows=shows))
    assert problem.startswith("What is half of")
    env.step(write_code("x = 3\nprint('x is', x)"))
    text = env.step(write_code("for i in range(2):\n    print(i)\n1 / 0"))[0]
    first = "Your code:\n```python\nx = 3\nprint('x is', x)\n```\nIts output:\n```\nx is 3\n```"
    assert text.startswith(f"{problem}\n\n")
    assert (first in text) is (shows == "all")
    assert (
        "Your code:\n```python\nfor i in range(2):\n    print(i)\n1 / 0\n```\nIts output:\n```\n0\n1\nTrace"
        in text
    )
    assert text.endswith("ZeroDivisionError: division by zero\n```")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("while True: pass", "[Stopped: it took more than"),
        ("x = 1", "[It printed nothing.]"),
        ("print('a' * 100_000)", "[Stopped: it printed too much.]"),
        ("import ctypes; ctypes.string_at(0)", "[Python crashed.]"),
        ("print('\\x1b[2J')", "�[2J"),
        ("print('a' * 100 + 'b' * 300 + 'c' * 100)", f"{'a' * 100}\n[... 300 characters ...]\n{'c' * 100}"),
    ],
)
def test_a_policy_is_told_what_happened(in_text, code, told):
    config = in_text(limits={"cpu_seconds": 0.3, "wall_seconds": 0.8})
    env, _ = start(config)
    assert told in env.step(write_code(code))[0]


def test_sessions_keep_variables_and_others_do_not(in_text):
    for session in (False, True):
        env, _ = start(in_text(session=session, limits={"cpu_seconds": 0.3, "wall_seconds": 0.8}))
        env.step(write_code("x = 20"))
        text = env.step(write_code("print(x + 1)"))[0]
        assert ("```\n21\n```" in text) is session
        assert ("NameError" in text) is not session
    env.step(write_code("x = 5\nwhile True: pass"))
    env.reset(0)
    assert "NameError" in env.step(write_code("x"))[0]


def test_stopped_code_leaves_the_session_as_it_was(in_text):
    env, _ = start(in_text(session=True, limits={"cpu_seconds": 0.3, "wall_seconds": 0.8}))
    env.step(write_code("x = 1"))
    env.step(write_code("x = 2\nwhile True: pass"))
    assert "```\n1\n```" in env.step(write_code("x"))[0]


def test_boxed_answers_are_graded_by_math_verify(in_text):
    pytest.importorskip("math_verify")
    config = in_text()
    for template, right in (("\\frac{%s}{2}", True), ("0.5*%s", False), ("%s", False)):
        env, problem = start(config)
        number = problem.removeprefix("What is half of ").removesuffix("?")
        assert env.step(write_answer(template % number))[-1]["success"] is right
    env, _ = start(config)
    assert env.step("\\boxed{%.1f}" % (int(number) / 2))[-1]["success"] is True


def test_a_pool_makes_one_round_trip_and_runs_equal_code_once(make_config, monkeypatch):
    calls = []

    class Counting:
        def run(self, snippets):
            calls.append(list(snippets))
            return [Finished(f"{len(snippet.code)}\n", "done", 0.0) for snippet in snippets]

    monkeypatch.setattr("envs.tir_math.sandbox.pool.shared_pool", lambda *_: Counting())
    pool = TIR_MATH.make_pool(make_config())
    pool.reset(range(40), "train")
    actions = [["python: 1 1", "python: 2 + 2", "", "answer: 3"][number % 4] for number in range(40)]
    outcomes = pool.step(range(40), actions)
    assert [[snippet.code for snippet in call] for call in calls] == [["11", "2+2"]]
    assert outcomes[0].observation.text.endswith("output: 2")
    assert outcomes[1].observation.text.endswith("output: 3")
    assert [outcome.observation is None for outcome in outcomes] == [number % 4 == 3 for number in range(40)]


def test_demonstrated_outputs_are_those_of_the_sandbox(make_config):
    config = make_config()
    shown = TIR_MATH.demonstrations(config, episodes=150, seed=1, explore=0.5, error=0.5, history=0)
    pairs = dict(
        turn.observation.text.split(" python: ")[1].split(" output: ")
        for turn in shown
        if "output:" in turn.observation.text
    )
    assert len(pairs) > 100
    for code, output in pairs.items():
        env, _ = start(config)
        assert env.step(f"python: {code}")[0].endswith(f"output: {output}")


def test_demonstrations_err_as_often_as_asked(make_config):
    config = make_config()

    def wrong(error):
        turns = TIR_MATH.demonstrations(config, episodes=400, seed=3, explore=0.0, error=error, history=0)
        known = {problem.text: problem for problem in problems(config).train}
        firsts = [turn for turn in turns if turn.observation.text in known]
        actions = [parse(turn.response, None).action for turn in firsts]
        right = [f"python: {known[turn.observation.text].code}" for turn in firsts]
        return sum(a != b for a, b in zip(actions, right, strict=True)) / len(firsts)

    assert wrong(0.0) == 0.0
    assert 0.4 < wrong(0.5) < 0.6


def test_the_whole_eval_split_is_unseen(make_config):
    config = make_config()
    pool = TIR_MATH.make_pool(config)
    train, evaluation = (
        {observation.text for observation in pool.reset(range(count), split)}
        for split, count in (("train", config.train_problems), ("eval", config.eval_problems))
    )
    assert (len(train), len(evaluation)) == (config.train_problems, config.eval_problems)
    assert not train & evaluation
    shown = TIR_MATH.demonstrations(config, episodes=3000, seed=0, explore=0.3, error=0.5, history=0)
    assert not evaluation & {turn.observation.text.split(" python:")[0] for turn in shown}


def test_the_expert_of_text_answers_right(in_text, make_config):
    for config in (in_text(), make_config(spelling="text", output_limit=200)):
        score = evaluate(TIR_MATH, config, ExpertPolicy(TIR_MATH.expert(config)), episodes=10, split="eval")
        assert score.success == 1.0
        assert score.turns == (1.0 if config.problems == "files" else 2.0)
    shown = TIR_MATH.demonstrations(config, episodes=3, seed=0, explore=0.5, error=0.5, history=1)
    for turn in shown:
        parsed = parse(turn.response, None)
        assert write_response(parsed.thought, parsed.action) == turn.response
    assert TIR_MATH.vocabulary(config) == ()


def test_guessing_gets_nowhere(make_config):
    score = evaluate(TIR_MATH, make_config(), GuessingPolicy(0), episodes=1000, split="eval")
    assert score.success < 0.03
    assert score.turns == 1.0


def test_the_task_says_what_there_is(in_text):
    task = TIR_MATH.task(in_text(session=True, packages=["sympy"]))
    assert all(
        part in task for part in ("4 turns", "kept from turn to turn", "sympy", "```python", "\\boxed{")
    )
    assert "starts afresh" in TIR_MATH.task(in_text())


def test_what_is_missing_is_said_with_its_remedy(make_config, in_text, monkeypatch):
    assert TIR_MATH.problems(make_config()) == []
    assert "pip install no-such" in TIR_MATH.problems(make_config(packages=["no-such"]))[0]
    monkeypatch.setattr("envs.tir_math.environment.find_spec", lambda name: name)
    gone = in_text(files={"train": "/nowhere.parquet"})
    assert any("/nowhere.parquet" in problem for problem in TIR_MATH.problems(gone))
    few = make_config(arithmetic={"max_numbers": 2, "max_digits": 1})
    assert any("max_digits" in problem for problem in TIR_MATH.problems(few))
    monkeypatch.setattr("envs.tir_math.environment.find_spec", lambda name: None)
    assert any("arlarena[tir]" in problem for problem in TIR_MATH.problems(in_text()))
    assert TIR_MATH.problems(make_config()) == []
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install bubblewrap" in TIR_MATH.problems(make_config())[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problems": "reasoning_gym"}, "spelling: text"),
        ({"spelling": "text", "problems": "files"}, "needs files.train"),
        ({"max_turns": 1}, "max_turns"),
        ({"limits": {"memory_mb": 1}}, r"limits\.memory_mb"),
        ({"limits": {"threads": 1}}, r"limits\.threads"),
        ({"rewards": {"luck": 1}}, r"rewards\.luck"),
        ({"arithmetic": {"min_numbers": 5}}, "exceeds max_numbers"),
    ],
)
def test_impossible_parameters_are_refused(make_config, changes, message):
    with pytest.raises(ValidationError, match=message):
        make_config(**changes)


def test_outputs_are_spelled_or_called_what_they_are():
    def spell(output, ending="done", limit=6):
        return spell_output(Finished(output, ending, 0.0), limit)

    assert spell("-12\n") == "- 1 2"
    assert spell("2.5\n") == "2 . 5"
    assert spell("1234567\n") == "1 2 3 4 5 ..."
    assert spell("") == "nothing"
    assert spell("True\n") == spell("1\n2\n") == spell("7\n", "cpu") == "error"
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijk", 4) == "ab\n[... 7 characters ...]\njk"


def test_problems_are_made_once_for_all_episodes_of_a_process(make_config):
    assert problems(make_config()) is problems(make_config())
