"""`arena play`: who plays, what is shown, and what people are told when they type something else."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from arena import cli
from arena.environments import choose_environment
from arena.play_view import choice, hint, in_columns, printable
from trainers.config import EvaluationConfig, ModelConfig, PenaltyConfig, PromptConfig
from trainers.native.checkpoint import save_checkpoint
from trainers.native.policy import TinyPolicy
from trainers.native.tokenizer import WordTokenizer
from trainers.policy import Sampling
from trainers.rollout import Prompter, rollout


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Play = Callable[..., Ran]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARENA_STUDIES", raising=False)

    def run(*arguments: str, typed: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            cli.main(["play", *arguments])
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


def replay(episode: dict[str, Any], **changes: Any) -> list[float]:
    """The rewards of an episode's actions in a fresh environment."""
    chosen = choose_environment("sokoban", [f"{key}={value}" for key, value in changes.items()])
    env = chosen.environment.make(chosen.config)
    text, _ = env.reset(episode["seed"], {"split": "eval"})
    rewards = []
    for turn in episode["transcript"]:
        assert turn["observation"] == text
        text, reward, *_ = env.step(turn["action"])
        rewards.append(reward)
    assert episode["last"] == text
    return rewards


def test_the_expert_wins_and_the_document_is_what_happened(play: Play) -> None:
    ran = play("sokoban", "--policy", "expert", "--episodes", "4", "--seed", "3", "--format", "json")
    assert ran.code == 0
    assert [episode["seed"] for episode in ran.json["episodes"]] == [3, 4, 5, 6]
    for episode in ran.json["episodes"]:
        rewards = replay(episode)
        assert episode["success"]
        assert episode["turns"] == len(rewards)
        assert episode["return"] == pytest.approx(sum(rewards))
    assert ran.json["success"] == 1.0
    assert ran.json["turns"] == sum(episode["turns"] for episode in ran.json["episodes"]) / 4


def test_random_play_repeats_itself_and_rarely_wins(play: Play) -> None:
    arguments = ("sokoban", "--policy", "random", "--episodes", "20", "--format", "json")
    first = play(*arguments)
    assert play(*arguments).out == first.out
    assert first.json["success"] < 0.5


def test_people_see_the_turns(play: Play) -> None:
    ran = play("sokoban", "--policy", "expert", "--seed", "1")
    lines = ran.out.splitlines()
    assert lines[0] == "sokoban, eval split, seed 1"
    assert lines[-2].startswith("success: ")
    assert "<action>" in ran.out
    assert "\x1b" not in ran.out


def test_a_person_plays_by_number_or_text_and_mistakes_cost_no_turn(play: Play) -> None:
    solution = play("sokoban", "--policy", "expert", "--format", "json").json["episodes"][0]
    actions = [turn["action"] for turn in solution["transcript"]]
    numbered = {"up": "1", "down": "2", "left": "3", "right": "4"}
    typed = ["lft", "17", "", numbered[actions[0]], *(action.upper() for action in actions[1:])]
    ran = play("sokoban", "--format", "json", typed="\n".join(typed) + "\n")
    (episode,) = ran.json["episodes"]
    assert [turn["action"] for turn in episode["transcript"]] == actions
    assert episode["success"]
    assert "'lft' is not admissible here; did you mean 'left'?" in ran.err
    assert "there is no action 17: type a number from 1 to 4" in ran.err
    assert "You play Sokoban" in ran.err


@pytest.mark.parametrize("typed", ["up\nq\n", "up\n"])
def test_a_person_who_leaves_ends_the_game(play: Play, typed: str) -> None:
    ran = play("sokoban", "--episodes", "3", "--format", "json", typed=typed)
    assert ran.code == 0
    assert ran.json["episodes"] == []
    assert "ended after 0 whole episodes" in ran.err


def test_settings_of_the_command_line_reach_the_environment(play: Play) -> None:
    ran = play(
        "sokoban",
        "max_turns=9",
        "env.rewards.step=-0.5",
        "--policy",
        "random",
        "--seed",
        "2",
        "--format",
        "json",
    )
    (episode,) = ran.json["episodes"]
    assert replay(episode, max_turns=9, **{"rewards.step": -0.5}) == [
        turn["reward"] for turn in episode["transcript"]
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sokobn",), "unknown environment 'sokobn'; did you mean 'sokoban'?"),
        (("sokoban", "max_trns=3"), "env.max_trns: unknown key 'max_trns'; did you mean 'max_turns'?"),
        (("sokoban", "size"), "command line (size): expected key=value"),
        (("sokoban", "size=[1"), "command line (size=[1): not valid YAML"),
        (("sokoban", "size=one"), "env.size: should be a valid integer, got 'one'"),
        (("sokoban", "prompt.styl=full"), "did you mean 'style'?"),
        (("sokoban", "name=x"), "environments are chosen by their name"),
        (("sokoban", "--policy", "nobody"), "policy 'nobody': expected human, expert, random, a trial"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_played(
    play: Play, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ran = play(*arguments)
    assert ran.code == 2
    assert message in ran.err
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


MODEL = ModelConfig(hidden=32, layers=1, heads=2, intermediate=32)
PROMPT = PromptConfig(history=1, max_response_tokens=12)


@pytest.fixture
def policy() -> TinyPolicy:
    chosen = choose_environment("sokoban")
    words = (
        ["<obs>", "</obs>", "<think>", "</think>", "<action>", "</action>"],
        chosen.environment.task(chosen.config).split(),
        chosen.environment.vocabulary(chosen.config),
    )
    return TinyPolicy.create(MODEL, WordTokenizer.from_vocabulary(*words), torch.Generator().manual_seed(0))


@pytest.fixture
def sections() -> dict[str, Any]:
    chosen = choose_environment("sokoban", ["max_turns=9"])
    return {
        "env": chosen.config.model_dump(mode="json"),
        "model": MODEL.model_dump(mode="json"),
        "prompt": PROMPT.model_dump(mode="json"),
        "evaluation": EvaluationConfig(top_k=1).model_dump(mode="json"),
    }


@pytest.fixture
def trial(tmp_path: Path, policy: TinyPolicy, sections: dict[str, Any]) -> Path:
    folder = tmp_path / "studies" / "tried" / "trials" / "0123456789ab-s0"
    folder.mkdir(parents=True)
    sheet = {
        "trial": folder.name,
        "cell": folder.name[:12],
        "study": "tried",
        "label": "GRPO",
        "methods": ["GRPO"],
    }
    config = {**sections, "trainer": {"steps": 3}, "backend": "native"}
    sheet |= {"env": "sokoban", "seed": 0, "clone": "0" * 16, "config": config}
    (folder / "trial.yaml").write_text(yaml.safe_dump(sheet))
    return folder


def saved(policy: TinyPolicy, trial: Path, step: int) -> Path:
    optimizer = torch.optim.AdamW(policy.module.parameters())
    save_checkpoint(trial / "checkpoints", step, policy, optimizer, {}, keep=2)
    return trial / "checkpoints" / f"step-{step:06d}"


def test_a_checkpoint_plays_as_its_evaluation_does(play: Play, trial: Path, policy: TinyPolicy) -> None:
    folder = saved(policy, trial, 3)
    chosen = choose_environment("sokoban", ["max_turns=9"])
    pool = chosen.environment.make_pool(chosen.config)
    expected = rollout(
        policy,
        pool,
        Prompter(policy, PROMPT, chosen.environment.task(chosen.config)),
        [5, 6],
        split="eval",
        group_size=1,
        sampling=Sampling(top_k=1, max_tokens=PROMPT.max_response_tokens),
        penalty=PenaltyConfig(),
        generator=torch.Generator(),
        transcripts=2,
    ).transcripts
    for name in ("0123", "tried/0123", str(trial), str(folder)):
        ran = play("sokoban", "--policy", name, "--seed", "5", "--episodes", "2", "--format", "json")
        assert ran.json["policy"] == "0123456789ab-s0 step-000003"
        for episode, transcript in zip(ran.json["episodes"], expected, strict=True):
            assert [{**turn} for turn in episode["transcript"]] == [{**turn} for turn in transcript.turns]
            assert episode["return"] == pytest.approx(transcript.total_reward)


def test_the_newest_checkpoint_of_a_trial_plays(play: Play, trial: Path, policy: TinyPolicy) -> None:
    saved(policy, trial, 1)
    saved(policy, trial, 2)
    assert play("sokoban", "--policy", "0123", "--format", "json").json["policy"].endswith("step-000002")


def test_a_clone_plays(play: Play, tmp_path: Path, policy: TinyPolicy, sections: dict[str, Any]) -> None:
    folder = tmp_path / "cloned"
    folder.mkdir()
    policy.save(folder)
    (folder / "clone.json").write_text(json.dumps({"sections": sections}))
    ran = play("sokoban", "--policy", str(folder), "--format", "json")
    assert ran.json["policy"] == "clone cloned"
    assert ran.json["episodes"][0]["turns"] <= 9


def test_policies_that_cannot_play_say_why(play: Play, trial: Path, policy: TinyPolicy) -> None:
    ran = play("sokoban", "--policy", "0123")
    assert ran.code == 2
    assert "has no checkpoint yet" in ran.err
    saved(policy, trial, 1)
    ran = play("webshop", "--policy", "0123")
    assert ran.code == 2
    assert "was trained in sokoban and knows no words of webshop" in ran.err


def test_numbers_and_texts_are_choices_and_nothing_else_is() -> None:
    actions = ["go to desk 1", "1", "look"]
    assert choice("1", actions) == "go to desk 1"
    assert choice("3", actions) == "look"
    assert choice("  Go  TO desk 1", actions) == "go to desk 1"
    assert [choice(text, actions) for text in ("0", "4", "-1", "", "go", "²")] == [None] * 6


def test_hints_name_the_nearest_action() -> None:
    assert "did you mean 'go to desk 1'?" in hint("goto desk 1", ["go to desk 1", "look"])
    assert "\x1b" not in hint("\x1b[2Jlook", ["look"])


def test_columns_are_read_downwards_and_lose_nothing() -> None:
    assert in_columns(["a", "b", "c", "d", "e"], width=9) == "a  c  e\nb  d"
    assert in_columns(["wide" * 10], width=9) == "wide" * 10
    assert in_columns([]) == ""


def test_text_of_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\x07\r\nb\tc\x9b") == "a\ufffd[2J\ufffd\ufffd\nb    c\ufffd"


def test_an_environment_without_web_pages_says_so(play: Play) -> None:
    ran = play("sokoban", "--browser")
    assert ran.code == 2
    assert "sokoban has no web pages" in ran.err
