"""Reports say what must be said, of whole studies and of partial ones."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from analysis import evidence, figures
from analysis.answer import answer as paragraphs
from analysis.collapse import CollapseRule
from analysis.paper import published
from analysis.report import render, write_report
from analysis.results import summarise, trial_table
from analysis.study import load_study

AXES = "What changed when only one axis changed"
New = Callable[..., Any]
Methods = tuple[Any, ...]


def report_of(folder: Path) -> str:
    """The report's text without its figures, which take seconds."""
    study = load_study(folder)
    return render(study, summarise(study), [])


def trials_of(folder: Path) -> pd.DataFrame:
    study = load_study(folder)
    return trial_table(study, summarise(study))


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def whole(
    study_builder: type[Any], methods: tuple[Any, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Four methods, three seeds, all finished, with the report written once."""
    folder = tmp_path_factory.mktemp("studies") / "drawn"
    folder.mkdir()
    builder = study_builder(folder)
    for method in methods:
        for seed in range(3):
            builder.trial(method, seed)
    builder.plan()
    write_report(folder)
    return folder


def test_the_report_answers_first(whole: Path) -> None:
    text = (whole / "report" / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# drawn\n\n> Which clipping keeps training from collapsing?\n\n## Answer\n")
    answer = section(text, "Answer")
    assert "**SAMPO** ended highest: success 0." in answer
    assert "CISPO ended lowest" in answer
    assert "Collapsed or diverged with every seed: CISPO." in answer
    assert "Stable and above the clone with every seed: SAMPO, GSPO and GRPO." in answer
    assert "3 seeds a method, fewer than the 5 an interval takes" in answer
    assert "conditional on one clone" in answer
    rows = [line for line in answer.splitlines() if line.startswith("| **")]
    assert [row.split("**")[1] for row in rows] == ["SAMPO", "GSPO", "GRPO", "CISPO"]
    assert "3 collapsed" in rows[-1]
    assert "0 of 3" in rows[-1]


def test_the_numbers_of_the_method_table_are_those_of_the_records(whole: Path) -> None:
    table = pd.read_csv(whole / "report" / "trials.csv")
    curves = pd.read_csv(whole / "report" / "curves.csv")
    sampo = curves[(curves["label"] == "SAMPO") & (curves["kind"] == "eval") & (curves["step"] > 0)]
    finals = [
        group.sort_values("step")["eval/success"].tail(3).mean() for _, group in sampo.groupby("seed")
    ]  # 15 evaluations: the last fifth are three
    assert table[table["label"] == "SAMPO"]["success_final"].tolist() == pytest.approx(finals)
    text = (whole / "report" / "report.md").read_text(encoding="utf-8")
    low, high, mean = min(finals), max(finals), sum(finals) / 3
    assert f"{mean:.2f} ({low:.2f} to {high:.2f})" in section(text, "Answer")


def test_the_page_holds_all_of_the_report_and_sorts_its_tables_alone(whole: Path) -> None:
    page = (whole / "report" / "report.html").read_text(encoding="utf-8")
    text = (whole / "report" / "report.md").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == text.count("](figures/")
    assert page.count("<table>") == text.count("\n| --- |") + text.count("\n| ---: |")
    for title in re.findall(r"^## (.+)$", text, re.MULTILINE):
        assert f">{title}</h2>" in page
    assert not re.search(r"""(?:src|href)=["'](?:https?:|//|file:)""", page)
    assert "default-src 'none'" in page


def test_every_recorded_number_is_in_the_csv(whole: Path) -> None:
    curves = pd.read_csv(whole / "report" / "curves.csv")
    assert len(curves) == 12 * (30 + 16)
    trial = next((whole / "trials").iterdir())
    rows = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    mine = curves[curves["trial"] == trial.name].set_index(["kind", "step"])
    for row in rows:
        for name, value in row.items():
            if name not in ("kind", "step"):
                assert mine.loc[(row["kind"], row["step"]), name] == pytest.approx(value)


def test_the_report_shows_its_figures_and_every_link_leads_somewhere(whole: Path) -> None:
    text = (whole / "report" / "report.md").read_text(encoding="utf-8")
    links = {part.split(")")[0] for part in text.split("](")[1:]}
    files = {link for link in links if not link.startswith("#")}
    assert "trials.csv" in files
    for link in files:
        assert (whole / "report" / link).is_file(), link
    pictures = {link for link in files if link.endswith(".png")}
    assert pictures == {f"figures/{path.name}" for path in (whole / "report" / "figures").iterdir()}
    drawn = {Path(link).stem for link in pictures}
    assert {"overview", "outcomes", "kl", "survival", "cell_map", "ridges", "gradient_weights"} <= drawn
    assert len(drawn) >= 14


def test_the_report_says_what_ran_and_by_which_rule(whole: Path) -> None:
    text = (whole / "report" / "report.md").read_text(encoding="utf-8")
    ran = section(text, "What ran")
    for expected in (
        "12 planned, 12 with a result",
        "abc1234",
        "torch 2.13.0",
        "a processor",
        "0.0006",
        "UTC",
    ):
        assert expected in ran
    assert "every 2 steps on 256 episodes" in ran
    assert "| `best_share` | 0.5 |" in section(text, "Thresholds")
    assert "all 12 planned trials have a result" in section(text, "Trials that do not count")
    assert "88.86" in section(text, "Beside the paper")
    assert "Qwen3-4B" in section(text, "Beside the paper")


def test_collapses_are_told_with_onset_cause_and_warnings_before_them(whole: Path) -> None:
    happened = section((whole / "report" / "report.md").read_text(encoding="utf-8"), "What happened")
    rows = [line for line in happened.splitlines() if line.startswith("| CISPO")]
    assert len(rows) == 3
    assert all("from the clone's" in row and "| collapsed |" in row for row in rows)
    assert all("none possible, still warming up" in row for row in rows), "they fall within ten steps"


def test_axes_are_compared_only_where_one_changed_alone(whole: Path) -> None:
    axes = section(
        (whole / "report" / "report.md").read_text(encoding="utf-8"),
        AXES,
    )
    rows = [line for line in axes.splitlines() if line.startswith("| `")]
    assert len(rows) == 1
    assert "| `is_clipping` | `token` | `cispo` | **-0." in rows[0]
    assert "0 of 3 against 3 of 3" in rows[0]
    assert "Nothing can be said of `loss_aggregation`, `dynamic_filtering`, `advantage`" in axes


def test_the_same_files_give_the_same_report(
    new_study: New, methods: Methods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:2])  # drawing them all takes seconds
    builder = new_study()
    builder.trial(methods[1], 0)
    study = builder.plan()

    def everything() -> dict[str, bytes]:
        write_report(study)
        return {path.name: path.read_bytes() for path in (study / "report").rglob("*") if path.is_file()}

    first = everything()
    assert "overview.png" in first
    (study / "report" / "figures" / "of_an_earlier_report.png").write_bytes(b"old")
    assert everything() == first


def test_figures_of_several_environments_are_files_of_their_own(
    new_study: New, methods: Methods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:1])
    builder = new_study()
    for env in ("sokoban", "TIR math"):
        builder.trial(methods[1], 0, env=env)
    study = builder.plan()
    text = write_report(study).read_text(encoding="utf-8")
    for name in ("overview-sokoban.png", "overview-tir-math.png"):
        assert (study / "report" / "figures" / name).is_file()
        assert f"](figures/{name})" in text


def test_a_study_in_which_nothing_ran_says_so(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for seed in range(3):
        builder.entry(methods[0], seed)
    text = report_of(builder.plan())
    assert "**Nothing can be said yet:** none of the 3 planned trials has a result." in text
    assert "| GRPO | 0 1 2 | missing | never started |" in section(text, "Trials that do not count")


def test_methods_without_a_result_are_no_rows_of_the_answer(new_study: New, methods: Methods) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    for method in methods[1:]:
        builder.entry(method, 0)
    answer = section(report_of(builder.plan()), "Answer")
    assert answer.count("\n| **") == 1
    assert "3 more methods have no result yet ([which](#trials-that-do-not-count))." in answer


def test_of_many_methods_the_answer_counts_and_names_the_first(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for number in range(20):
        falls = number >= 15
        method = replace(
            methods[1 if falls else 2], label=f"M{number}", end=0.1 if falls else 0.9 - number / 40
        )
        builder.trial(method, 0)
    study = load_study(builder.plan())
    text = " ".join(paragraphs(study, summarise(study)))
    assert "Stable and above the clone with every seed (15 of 20): M" in text
    assert "Collapsed or diverged with every seed (5 of 20): M" in text
    assert " and 12 more.\n- Collapsed" in text


def test_an_empty_folder_has_a_report_too(tmp_path: Path) -> None:
    assert "none of the 0 planned trials" in write_report(tmp_path).read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "nothing")


def test_missing_failed_and_interrupted_trials_are_named_and_never_averaged_in(
    new_study: New, methods: Methods
) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    builder.trial(methods[0], 1, outcome={"outcome": "failed", "reason": "killed: out of memory", "exit": -9})
    builder.trial(methods[0], 2, outcome={"outcome": "interrupted", "reason": "stopped by the user"})
    builder.trial(methods[0], 3, finish=False, until=7)
    builder.entry(methods[0], 4)
    builder.entry(methods[0], 5, state="unavailable")
    study = builder.plan()
    text = report_of(study)
    assert "**Incomplete:** 1 of 6 planned trials have a result." in text
    named = section(text, "Trials that do not count")
    for expected in (
        "killed: out of memory",
        "stopped by the user",
        "records up to step 7",
        "never started",
        "could not run on this machine",
    ):
        assert expected in named
    table = trials_of(study)
    assert table["success_final"].notna().tolist() == [True] + [False] * 5
    row = next(line for line in text.splitlines() if line.startswith("| **GRPO**"))
    assert f"| {table['success_final'][0]:.2f} | {table['success_final'][0]:.2f} |" in row
    assert "1 failed" in row
    assert "1 missing" in row


def test_other_trials_in_the_folder_are_listed_not_counted(new_study: New, methods: Methods) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    builder.trial(methods[1], 0)
    builder.entries.pop()
    text = report_of(builder.plan())
    assert "CISPO seed 0 (collapsed, `" in section(text, "Trials that do not count")
    assert "| **CISPO**" not in text


def test_mixed_commits_are_named(new_study: New, methods: Methods) -> None:
    builder = new_study()
    builder.trial(methods[0], 0, commit="1111111")
    builder.trial(methods[0], 1, commit="2222222")
    ran = section(report_of(builder.plan()), "What ran")
    assert "1111111 (1 trials), 2222222 (1 trials)" in ran
    assert "**Mixed code:**" in ran


def test_a_trial_that_went_on_under_other_code_is_named(new_study: New, methods: Methods) -> None:
    builder = new_study()
    sheet = builder.trial(methods[0], 0, commit="1111111") / "trial.yaml"
    document = yaml.safe_load(sheet.read_text())
    document["provenance"]["resumed"] = [{"commit": "2222222", "versions": {"torch": "9.9"}}]
    sheet.write_text(yaml.safe_dump(document))
    ran = section(report_of(builder.plan()), "What ran")
    assert "1111111, then 2222222" in ran
    assert "torch 2.13.0 and 9.9" in ran
    assert "**Mixed code:**" in ran


def test_hostile_text_cannot_leave_its_place(new_study: New, methods: Methods) -> None:
    builder = new_study()
    hostile = "<img src=x onerror=alert(1)> | `x` [l](http://evil.example) \n# gotcha"
    builder.question = hostile
    builder.trial(methods[0], 0, facts={"label": hostile})
    builder.trial(methods[1], 0, outcome={"outcome": "failed", "reason": hostile}, commit=hostile)
    text = report_of(builder.plan())
    assert "<img" not in text
    assert not re.search(r"(?<!\\)\]\(http", text)
    assert "http://" not in text
    assert not any(line.startswith("# gotcha") for line in text.splitlines())
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| **")}
    assert widths == {10}


def test_a_stopped_trial_is_starred(new_study: New, methods: Methods) -> None:
    builder = new_study()
    builder.trial(methods[1], 0, rule=CollapseRule(stop=True))
    text = report_of(builder.plan())
    assert next(line for line in text.splitlines() if line.startswith("| **CISPO**")).count("\\*") == 1


def test_five_seeds_get_an_interval(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for seed in range(5):
        builder.trial(methods[3], seed)
    answer = section(report_of(builder.plan()), "Answer")
    assert "95% interval" in answer
    assert "[0." in next(line for line in answer.splitlines() if line.startswith("| **SAMPO**"))


def test_environments_are_reported_apart(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for env in ("sokoban", "webshop"):
        builder.trial(methods[0], 0, env=env)
        builder.trial(methods[1], 0, env=env)
    text = report_of(builder.plan())
    assert "**sokoban.** " in text
    assert "**webshop.** " in text
    axes = section(text, AXES)
    assert axes.count("| `is_clipping` |") == 1
    assert "2 in 2 surroundings" in axes


def test_cells_that_share_a_label_are_told_apart_by_what_differs(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for rate in (1e-4, 6e-4):
        trainer = {"steps": 30, "learning_rate": rate}
        builder.trial(methods[0], 0, facts={"cell": f"c{rate}", "id": f"c{rate}-s0"}, trainer=trainer)
    text = report_of(builder.plan())
    assert "**GRPO (learning_rate=0.0001)**" in text
    assert "**GRPO (learning_rate=0.0006)**" in text
    assert "| `trainer.learning_rate` | `0.0001` | `0.0006` |" in text


def test_warnings_before_a_collapse_are_told_with_their_lead(new_study: New, methods: Methods) -> None:
    rows: list[dict[str, Any]] = [
        {"step": 0, "kind": "eval", "eval/success": 0.6, "eval/episodes": 4000},
    ]
    for step in range(1, 41):
        kl = 0.01 if step < 16 else 0.5
        rows.append({"step": step, "kind": "train", "train/kl_old": kl, "train/learning_rate": 1e-3})
        if step % 2 == 0:
            success = 0.6 if step < 26 else 0.1
            rows.append({"step": step, "kind": "eval", "eval/success": success, "eval/episodes": 1000})
    builder = new_study()
    folder = builder.trial(methods[0], 0, rows=rows)
    onset = json.loads((folder / "outcome.json").read_text())["onset"]
    happened = section(report_of(builder.plan()), "What happened")
    assert f"off policy kl {onset - 17} steps before" in happened


def test_the_paper_s_numbers_are_found_by_method() -> None:
    assert published("sokoban", ("SAMPO",)) == "88.86"
    assert published("alfworld", ("CISPO",)) == "54.42, collapses about step 130"
    assert published("tir_math", ("GSPO",)) == "51.29 AIME, 37.95 AIME25"
    assert published("sokoban", ("CISPO(hi=4)",)) is None


def test_reporting_imports_nothing_heavy() -> None:
    script = (
        "import sys, analysis.report; found = {name.split('.')[0] for name in sys.modules};"
        "print(sorted(found & {'ray', 'mlflow', 'torch', 'arena', 'trainers', 'envs'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_collapse_rule_imports_nothing_but_the_standard_library() -> None:
    script = "import sys, analysis.collapse; print('numpy' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_every_file_that_a_report_names_is_there(
    study_builder: type[Any], methods: Methods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a crossed design, with tables cut so short that the rest is elsewhere."""
    monkeypatch.setattr(evidence, "MOST_EFFECTS", 1)
    builder = study_builder(tmp_path)
    for (clipping, end), (advantage, gain) in itertools.product(
        [("token", 0.5), ("cispo", 0.3)], [("grpo", 0.0), ("gigpo", 0.1)]
    ):
        method = replace(
            methods[0], label=f"{clipping} {advantage}", is_clipping=clipping, advantage=advantage,
            end=end + gain, methods=(),
        )  # fmt: skip
        for seed in range(5):
            builder.trial(method, seed)
    builder.plan()
    path = write_report(tmp_path, latex=True)
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text))
    assert {"trials.csv", "tables/factorial.csv", "figures/overview.png"} <= named
    assert "smaller ones are in" in text
    # no run collapsed
    assert re.search(r"On share that did not collapse \(mean 1\.00.*\) nothing has an effect", text)
    assert not [name for name in named if not (path.parent / name).is_file()]
