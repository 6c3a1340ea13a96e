"""Problems from files, in the columns that people use."""

from __future__ import annotations

import json
import os

import pandas as pd
import pytest

from envs.tir_math.config import FilesConfig
from envs.tir_math.files import ProblemFileError, data_id, problems
from envs.tir_math.problem import Problem


def config(train, evaluation=None, **changes):
    paths = {"train": str(train), "eval": None if evaluation is None else str(evaluation)}
    return FilesConfig(
        **{**paths, "eval_share": 0.25, "prompt_column": None, "answer_column": None, **changes}
    )


def read(found):
    return problems(found, train=10**6, evaluation=10**6, seed=0)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "1+1?", "ground_truth": "2"},
        {
            "prompt": [{"role": "system", "content": "Solve."}, {"role": "user", "content": "1+1?"}],
            "answer": 2,
        },
        {"data_source": "x", "prompt": "1+1?", "reward_model": {"style": "rule", "ground_truth": "2"}},
        {"question": "1+1?", "answer": "One and one.\n#### 2"},
        {"problem": "1+1?", "solution": "We see \\boxed{3}, no: \\boxed{2}.", "level": "Level 1"},
        {"Problem": "1+1?", "Answer": 2},
        {"problem": "1+1?", "answer": "2", "solution": "\\boxed{5}"},
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_the_usual_columns_are_found(tmp_path, row, kind):
    path = tmp_path / f"train.{kind}"
    if kind == "parquet":
        pd.DataFrame([row, row]).to_parquet(path)
    elif kind == "json":
        path.write_text(json.dumps([row, row]))
    else:
        lines(path, [row, row])
    found = read(config(path, lines(tmp_path / "eval.jsonl", [{"prompt": "other", "answer": "0"}])))
    assert found.train == (Problem("1+1?", "2"),)
    assert found.eval == (Problem("other", "0"),)


def test_named_columns_and_csv(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('ask,tell,prompt\n"a, ""b""?",1,x\n"c\nd?",2,y\n', encoding="utf-8")
    other = tmp_path / "eval.csv"
    other.write_text("ask,tell\ne?,3\n", encoding="utf-8")
    found = read(config(path, other, prompt_column="ask", answer_column="tell"))
    assert found.train == (Problem('a, "b"?', "1"), Problem("c\nd?", "2"))
    assert found.eval == (Problem("e?", "3"),)


def test_thousands_separators_of_gsm8k_are_dropped(tmp_path):
    path = lines(tmp_path / "a.jsonl", [{"question": "q", "answer": "#### 1,234"}])
    other = lines(tmp_path / "b.jsonl", [{"question": "p", "answer": "#### 5"}])
    assert read(config(path, other)).train[0].truth == "1234"


def test_what_is_evaluated_is_never_trained_on(tmp_path, caplog):
    train = lines(tmp_path / "train.jsonl", [{"prompt": f"Problem  {n}?", "answer": n} for n in range(100)])
    # the same problems under other capitals and spaces, and beyond the limit
    test = lines(tmp_path / "test.jsonl", [{"prompt": f"problem {n} ?", "answer": n} for n in range(60, 90)])
    found = problems(config(train, test), train=1000, evaluation=10, seed=0)
    assert [problem.text for problem in found.eval] == [f"problem {n} ?" for n in range(60, 70)]
    assert [problem.truth for problem in found.train] == [str(n) for n in (*range(60), *range(90, 100))]
    assert "30 problems left out" in caplog.text


def test_a_share_is_held_out_without_an_eval_file(tmp_path):
    rows = [{"prompt": f"Problem {n % 300}?", "answer": n % 300} for n in range(400)]
    path = lines(tmp_path / "train.jsonl", rows)
    found = read(config(path))
    train, evaluation = ({problem.text for problem in split} for split in (found.train, found.eval))
    assert not train & evaluation
    assert len(train | evaluation) == 300
    assert 50 < len(evaluation) < 140
    assert read(config(path)) == found
    assert problems(config(path), train=500, evaluation=500, seed=1).eval != found.eval
    limited = problems(config(path), train=7, evaluation=3, seed=0)
    assert (limited.train, limited.eval) == (found.train[:7], found.eval[:3])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.jsonl", None, "No such file"),
        ("empty.jsonl", "", "no rows"),
        ("bad.jsonl", "{", "bad.jsonl"),
        (
            "list.jsonl",
            '{"frage": "1"}',
            "no column one of prompt, question, .* among frage; .*prompt_column",
        ),
        ("answer.jsonl", '{"prompt": "1", "antwort": 1}', "among prompt, antwort; .*files.answer_column"),
        ("gap.jsonl", '{"prompt": "1", "answer": 1}\n{"prompt": "2", "answer": ""}', "row 2 has no answer"),
        ("data.xlsx", "", "unknown kind of file '.xlsx'"),
        ("one.jsonl", '{"prompt": "1", "answer": 1}', "no problem is left for"),
    ],
)
def test_unusable_files_say_why(tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ProblemFileError, match=message):
        read(config(path))


def test_the_identity_is_that_of_the_content(tmp_path):
    first = lines(tmp_path / "a.jsonl", [{"prompt": "1", "answer": 1}])
    same = lines(tmp_path / "b.jsonl", [{"prompt": "1", "answer": 1}])
    other = lines(tmp_path / "c.jsonl", [{"prompt": "2", "answer": 1}])
    assert data_id(config(first)) == data_id(config(same)) != data_id(config(other))
    assert data_id(config(first, same)) != data_id(config(first))
    before = data_id(config(first))
    lines(first, [{"prompt": "3", "answer": 1}])
    os.utime(first, ns=(1, 1))
    assert data_id(config(first)) != before
