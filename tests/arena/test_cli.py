"""The command line: what it prints where, its exit codes, what it imports, and that errors are for people."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_study import wait_for
from rich.console import Console

from arena import cli
from arena.locks import Lock
from arena.records import Outcome, write_outcome
from arena.status_watch import watch

ROOT = Path(__file__).parents[2]
HEAVY = ("ray", "mlflow", "torch", "pandas", "matplotlib", "scipy", "optuna", "transformers")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARENA_STUDIES", raising=False)

    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def grid(tmp_path: Path) -> Callable[..., str]:
    def write(**content: Any) -> str:
        (tmp_path / "g.yaml").write_text(yaml.safe_dump({"name": "tried", **content}))
        return "g.yaml"

    return write


class Controller:
    """Stands in for the real one, and remembers what it was asked."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.asked: list[dict[str, Any]] = []

    def __call__(self, study: Any, **arguments: Any) -> int:
        print("a line of the live table")  # noqa: T201
        self.asked.append({"study": study, **arguments})
        return self.code


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    import types

    made = Controller()
    module = types.ModuleType("arena.controller")
    module.run_study = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arena.controller", module)
    return made


def test_help_names_every_command(arena: Run) -> None:
    ran = arena("--help")
    assert ran.code == 0
    for command in ("run", "plan", "schema", "trial", "status", "show", "logs", "report", "ui", "sync"):
        assert f"\n  {command} " in ran.out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["plan", "GRID"], ["plan", "GRID", "--format", "json"], ["schema"], ["status", "x"]],
)
def test_light_commands_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    words = [str(ROOT / "grids" / "quickstart.yaml") if word == "GRID" else word for word in arguments]
    program = (
        "import sys\n"
        "from arena.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"sys.stderr.write(' '.join(sorted(set(sys.modules) & set({HEAVY!r}))))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.splitlines()[-1:] in (
        [],
        ["error: no study 'x' in studies: there is none yet; `arena run GRID` makes one"],
    )
    assert list(tmp_path.iterdir()) == []


def test_help_does_not_even_import_what_plans_need(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from arena.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'pydantic', 'yaml', 'rich', 'hydra', 'numpy'} & set(sys.modules)), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.strip() == "[]"


def test_plan_as_json_is_the_document_and_nothing_else(
    arena: Run, grid: Callable[..., str], tmp_path: Path
) -> None:
    ran = arena("plan", grid(methods=["GRPO", "SAMPO"], seeds=2), "seeds=3", "--format", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["study"] == "tried"
    assert len(document["trials"]) == 6
    assert set(document["trials"][0]) >= {"id", "cell", "methods", "point", "env", "seed", "state"}
    assert ran.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["g.yaml"]


def test_plan_as_text_says_what_people_want_to_know(arena: Run, grid: Callable[..., str]) -> None:
    ran = arena("plan", grid(methods=["GRPO", "SAMPO"], seeds=3, question="Which one?"))
    assert ran.code == 0
    assert "Which one?" in ran.out
    assert "6 trials (2 cells): 6 pending" in ran.out
    assert "0-2" in ran.out
    assert "About " in ran.out
    assert "SAMPO" in ran.out


def test_plan_says_what_a_design_can_show(arena: Run, grid: Callable[..., str]) -> None:
    axes = {
        "loss_aggregation": ["token_mean", "seq_mean_token_mean"],
        "is_clipping": ["token", "cispo"],
        "dynamic_filtering": ["none", "group_variance"],
        "advantage": ["grpo", "gigpo"],
    }
    assert "Design full tells apart all main effects and two-factor" in arena("plan", grid(axes=axes)).out
    out = arena("plan", grid(axes=axes, design="fraction")).out
    assert "Design fraction(share=0.5) tells apart (D-efficiency 100%)" in out
    assert "main effects: loss_aggregation, is_clipping, dynamic_filtering, advantage" in out
    assert "mixed up: loss_aggregation:is_clipping, dynamic_filtering:advantage | " in out
    out = arena("plan", grid(axes=axes, design="one_factor")).out
    assert "main effects if nothing interacts: loss_aggregation, " in out
    assert "interactions: none" in out
    assert "together: cells can be compared" in arena("plan", grid(methods=["GRPO", "SAMPO"])).out
    assert "Design" not in arena("plan", grid(axes={"advantage": ["grpo", "rloo"]})).out


def test_plan_over_budget_says_so_and_run_refuses(
    arena: Run, grid: Callable[..., str], controller: Controller
) -> None:
    path = grid(seeds=3, budget={"trials": 2})
    planned = arena("plan", path)
    assert planned.code == 0
    assert "over budget: 3 trials planned, the budget allows 2" in planned.out
    for more in ([], ["--dry-run"]):
        ran = arena("run", path, "--yes", *more)
        assert ran.code == 2
        assert "refused: 3 trials planned, the budget allows 2" in ran.err
    assert controller.asked == []


def test_run_hands_the_plan_and_the_switches_on(
    arena: Run, grid: Callable[..., str], controller: Controller, tmp_path: Path
) -> None:
    controller.code = 1
    words = ["--yes", "--retry", "failed", "--available", "--address", "somewhere", "--studies", "kept"]
    ran = arena("run", grid(), "trainer.steps=3", *words)
    assert ran.code == 1
    (asked,) = controller.asked
    study = asked.pop("study")
    assert asked == {"retry_failed": True, "available_only": True, "address": "somewhere", "reuse": []}
    assert study.folder == tmp_path / "kept" / "tried"
    assert study.trials[0].config.trainer.steps == 3
    assert study.assignments == ("trainer.steps=3",)


def test_run_says_what_other_studies_have_and_takes_it_over_when_told(
    arena: Run, grid: Callable[..., str], controller: Controller, tmp_path: Path
) -> None:
    path = grid(seeds=2)
    assert arena("run", path, "--yes").code == 0
    trial = controller.asked[0]["study"].trials[1].id
    other = tmp_path / "studies" / "other" / "trials" / trial
    other.mkdir(parents=True)
    write_outcome(other, Outcome("stable"))
    told = arena("run", path, "--yes")
    assert "other has results of 1 of them: `--reuse other` takes these over" in told.err
    assert controller.asked[1]["reuse"] == []
    taken = arena("run", path, "--yes", "--reuse", "other")
    assert "1 are taken over from other" in taken.err
    assert [folder.name for folder in controller.asked[2]["reuse"]] == ["other"]
    wrong = arena("run", path, "--yes", "--reuse", "another")
    assert wrong.code == 2
    assert "no study 'another'" in wrong.err
    assert len(controller.asked) == 3


def test_run_may_be_about_some_trials_only(
    arena: Run, grid: Callable[..., str], controller: Controller
) -> None:
    path = grid(axes={"is_clipping": ["token", "cispo"]}, seeds=3)
    assert arena("run", path, "--yes", "--only", "is_clipping=cispo", "--limit", "2").code == 0
    asked = controller.asked[0]
    chosen = [trial for trial in asked["study"].trials if trial.id in asked["only"]]
    assert [(trial.config.is_clipping.option, trial.seed) for trial in chosen] == [("cispo", 0), ("cispo", 1)]
    assert len(asked["study"].trials) == 6
    for words, message in (
        (["--only", "is_clipping=soft"], "no trial of this plan is left"),
        (["--only", "trainer.stepps>2"], "no trial has 'trainer.stepps'; did you mean 'trainer.steps'?"),
        (["--only", "cispo"], "expected key=value"),
    ):
        ran = arena("run", path, "--yes", *words)
        assert (ran.code, ran.out) == (2, "")
        assert message in ran.err


def test_a_budget_of_hours_is_about_what_is_run(
    arena: Run,
    grid: Callable[..., str],
    controller: Controller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of a study may fit where all of it does not, or what is left beside results of others."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    path = grid(seeds=90, budget={"hours": 0.2})
    whole = arena("run", path, "--yes")
    assert whole.code == 2
    assert "the budget allows 0.2" in whole.err
    assert arena("run", path, "--yes", "--limit", "2").code == 0
    study = controller.asked[0]["study"]
    assert set(study.estimate.trial_seconds) == controller.asked[0]["only"]
    for trial in study.trials[1:]:
        other = tmp_path / "studies" / "other" / "trials" / trial.id
        other.mkdir(parents=True)
        write_outcome(other, Outcome("stable"))
    assert arena("run", path, "--yes").code == 2
    assert arena("run", path, "--yes", "--reuse", "other").code == 0
    left = controller.asked[1]["study"]
    assert set(left.estimate.trial_seconds) == {left.trials[0].id}
    assert len(left.trials) == 90


def test_run_may_be_about_the_trials_of_a_swept_value(
    arena: Run, grid: Callable[..., str], controller: Controller
) -> None:
    sweep = {
        "pace": {"slow": {"trainer.learning_rate": 1e-4}, "fast": {"trainer.learning_rate": 1e-3}},
        "trainer.steps": [2, 3],
    }
    path = grid(sweep=sweep, seeds=1)
    assert arena("run", path, "--yes", "--only", "pace=fast", "--only", "trainer.steps=3").code == 0
    asked = controller.asked[0]
    chosen = [trial.config.trainer for trial in asked["study"].trials if trial.id in asked["only"]]
    assert [(trainer.learning_rate, trainer.steps) for trainer in chosen] == [(1e-3, 3)]
    wrong = arena("run", path, "--yes", "--only", "pase=fast")
    assert wrong.code == 2
    assert "no trial has 'pase'; did you mean 'pace'?" in wrong.err


def test_a_report_is_published_into_a_folder_of_its_own(arena: Run, study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    for wrong, message in (
        (["--publish", str(study)], "holds plan.json"),
        (["--publish", str(folder), "--html"], "leave out --html"),
    ):
        refused = arena("report", "tried", *wrong)
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err
        assert not folder.exists()
        assert not (study / "report").exists()
    ran = arena("report", "tried", "--publish", str(folder))
    assert (ran.code, ran.out.strip()) == (0, str(folder / "report.md"))
    assert "fell from its best" in (folder / "report.md").read_text()
    assert (study / "report" / "report.html").exists()


@pytest.mark.usefixtures("study")
def test_rm_asks_and_removes(arena: Run, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    refused = arena("rm", "aaaa")
    assert refused.code == 2
    assert "pass --yes" in refused.err
    assert len(list((study / "trials").iterdir())) == 1
    assert arena("rm", "aaaa", "--yes").code == 0
    assert list((study / "trials").iterdir()) == []
    assert arena("rm", "tried", "--yes").code == 0
    assert list(study.parent.iterdir()) == []
    assert arena("rm", "nobody", "--yes").code == 2


def test_rm_leaves_alone_what_is_running(arena: Run, study: Path) -> None:
    from arena.locks import Lock

    for path in (study / "driver.lock", study / "trials" / "aaaaaaaaaaaa-s0" / "lock"):
        lock = Lock(path)
        for name in ("aaaa", "tried"):
            assert arena("rm", name, "--yes").code == 2
        lock.release()
    assert (study / "trials" / "aaaaaaaaaaaa-s0" / "outcome.json").exists()


def test_the_studies_folder_comes_from_the_environment(
    arena: Run,
    grid: Callable[..., str],
    controller: Controller,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ARENA_STUDIES", str(tmp_path / "elsewhere"))
    arena("run", grid(), "--yes")
    assert controller.asked[0]["study"].folder == tmp_path / "elsewhere" / "tried"


def test_a_dry_run_starts_nothing(
    arena: Run, grid: Callable[..., str], controller: Controller, tmp_path: Path
) -> None:
    ran = arena("run", grid(seeds=2), "--dry-run")
    assert ran.code == 0
    assert "2 pending" in ran.out
    assert controller.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["g.yaml"]


def test_run_asks_nobody_when_there_is_nobody(
    arena: Run, grid: Callable[..., str], controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    ran = arena("run", grid())
    assert ran.code == 2
    assert "pass --yes" in ran.err
    assert controller.asked == []


def test_an_interrupt_is_no_failure(
    arena: Run, grid: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arena.planning.plan_study", interrupted)
    assert arena("plan", grid()).code == 130


def test_run_as_json_prints_only_json(grid: Callable[..., str], tmp_path: Path) -> None:
    program = (
        "import sys, types, os\n"
        "module = types.ModuleType('arena.controller')\n"
        "def run_study(study, **_):\n"
        "    print('a line of the live table'); os.system('echo a line of a child'); return 1\n"
        "module.run_study = run_study\n"
        "sys.modules['arena.controller'] = module\n"
        "from arena.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    words = ["run", grid(), "--yes", "--format", "json"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    document = json.loads(ran.stdout)
    assert (document["study"], document["exit"]) == ("tried", 1)
    assert "a line of the live table" in ran.stderr
    assert "a line of a child" in ran.stderr


BAD_GRIDS = {
    "wrong option": (
        "name: a\naxes: {is_clipping: [cipso]}\n",
        "g.yaml:2:22: axes.is_clipping.0: unknown option",
    ),
    "unknown key": ("name: a\nsedes: 1\n", "g.yaml:2:1: sedes: unknown key"),
    "duplicate key": ("name: a\nname: b\n", "g.yaml:2:1: name: duplicate key"),
    "impossible combination": (
        "name: a\noverrides: {trainer.kl: {where: loss, estimator: k1}}\n",
        "g.yaml:2:50: overrides.trainer.kl.estimator: k1 in the loss",
    ),
    "unknown environment": ("name: a\nenvs: [sokobn]\n", "g.yaml:2:8: envs.0: unknown environment"),
    "empty product": (
        "name: a\nexclude: [{env: sokoban}]\n",
        "g.yaml:2:11: exclude.0: this rule removes everything",
    ),
    "empty file": ("", "g.yaml: empty; expected `key: value` lines"),
    "negative steps": (
        "name: a\noverrides: {trainer.steps: -1}\n",
        "g.yaml:2:28: overrides.trainer.steps: should be",
    ),
    "not UTF-8": (b"name: \xff\n", "g.yaml: not UTF-8 text (line 1); save it as UTF-8"),
    "missing file": (None, "g.yaml: no such file"),
}


@pytest.mark.parametrize("command", [["plan"], ["plan", "--format", "json"], ["run", "--yes"]], ids=" ".join)
@pytest.mark.parametrize(("content", "message"), BAD_GRIDS.values(), ids=BAD_GRIDS.keys())
def test_a_bad_grid_is_one_line_on_stderr_and_exit_code_2(
    content: str | bytes | None,
    message: str,
    command: list[str],
    arena: Run,
    controller: Controller,
    tmp_path: Path,
) -> None:
    if content is not None:
        (tmp_path / "g.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    ran = arena(command[0], "g.yaml", *command[1:])
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert line.startswith(message)
    assert controller.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["g.yaml"])


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_an_unreadable_file_says_why(arena: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("name: a\n")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", "g.yaml")

    monkeypatch.setattr(Path, "open", refused)
    ran = arena("plan", "g.yaml")
    assert (ran.code, ran.err) == (2, "g.yaml: cannot be read: Permission denied\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "g.yaml", "--format", "xml"],
        ["run", "g.yaml", "--retry", "all"],
        ["fly"],
        ["status"],
        ["status", "nobody"],
        ["show", "nobody"],
        ["logs", "nobody"],
        ["trial", "nobody"],
        ["report", "nobody"],
        ["sync"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_exit_code_2_without_a_traceback(arguments: list[str], arena: Run) -> None:
    ran = arena(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err
    assert "Traceback" not in ran.err


def test_schema_prints_a_schema(arena: Run) -> None:
    assert json.loads(arena("schema").out)["title"] == "ARLArena grid"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a finished trial and one that is planned."""
    folder = tmp_path / "studies" / "tried"
    names = ["aaaaaaaaaaaa-s0", "bbbbbbbbbbbb-s0"]
    trials = [{"id": name, "label": "GRPO", "env": "sokoban", "seed": 0} for name in names]
    trial = folder / "trials" / names[0]
    trial.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"study": "tried", "trials": trials}))
    sheet = {
        "trial": names[0],
        "cell": "aaaaaaaaaaaa",
        "study": "tried",
        "label": "GRPO",
        "env": "sokoban",
        "seed": 0,
        "clone": "0" * 16,
        "methods": ["GRPO"],
        "config": {"trainer": {"steps": 9}},
    }
    (trial / "trial.yaml").write_text(yaml.safe_dump(sheet))
    outcome = {
        "outcome": "collapsed",
        "learned": False,
        "reason": "fell from its best",
        "onset": 4,
        "step": 9,
        "steps": 9,
    }
    (trial / "outcome.json").write_text(json.dumps(outcome))
    (trial / "stdout.log").write_text("first line\nlast line\n")
    return folder


def test_status_shows_the_last_success_of_finished_trials(arena: Run, study: Path) -> None:
    rows = [
        {"step": 8, "kind": "eval", "eval/success": 0.25},
        {"step": 9, "kind": "eval", "eval/success": 0.75},
        {"step": 9, "kind": "train", "rollout/success": 0.1},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"step": 10, "kind": "eval", "eval/succ'
    (study / "trials" / "aaaaaaaaaaaa-s0" / "metrics.jsonl").write_text(text)
    document = json.loads(arena("status", "tried", "--format", "json").out)
    assert [trial["success"] for trial in document["trials"]] == [0.75, None]
    assert "0.75" in arena("status", "tried").out


@pytest.mark.usefixtures("study")
def test_status_shows_every_trial(arena: Run) -> None:
    ran = arena("status", "tried")
    assert ran.code == 0
    assert "collapsed, flat from step 4" in ran.out
    assert "2 trials: 1 done, 1 pending" in ran.out
    document = json.loads(arena("status", "tried", "--format", "json").out)
    assert [trial["state"] for trial in document["trials"]] == ["done", "pending"]


def test_a_study_may_be_given_by_its_folder(arena: Run, study: Path) -> None:
    assert arena("status", str(study)).code == 0


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize("name", ["aaaa", "tried/a", "aaaaaaaaaaaa-s0"])
def test_a_trial_may_be_given_by_a_unique_beginning(arena: Run, name: str) -> None:
    ran = arena("show", name)
    assert ran.code == 0
    for expected in ("fell from its best", "steps: 9", "last line", "tried/aaaaaaaaaaaa-s0"):
        assert expected in ran.out
    document = json.loads(arena("show", name, "--format", "json").out)
    assert document["outcome"]["onset"] == 4


@pytest.mark.usefixtures("study")
def test_logs_shows_what_was_printed(arena: Run) -> None:
    assert arena("logs", "aaaa").out == "first line\nlast line\n"
    assert arena("logs", "aaaa", "-n", "1").out == "last line\n"
    assert arena("logs", "aaaa", "-f").out == "first line\nlast line\n"


@pytest.mark.usefixtures("study")
def test_a_damaged_outcome_is_told_not_raised(arena: Run, study: Path) -> None:
    (study / "trials" / "aaaaaaaaaaaa-s0" / "outcome.json").write_text("{")
    ran = arena("show", "aaaa")
    assert ran.code == 0
    assert "not JSON" in ran.out


def test_retries_and_less_memory_are_shown(arena: Run, study: Path) -> None:
    trial = study / "trials" / "aaaaaaaaaaaa-s0"
    outcome = {"outcome": "stable", "attempts": 2, "retries": 1, "micro_rows": 8}
    (trial / "outcome.json").write_text(json.dumps(outcome))
    sheet = yaml.safe_load((trial / "trial.yaml").read_text())
    retry = {"cause": "out_of_memory", "reason": "MemoryError", "micro_rows": 8}
    (trial / "trial.yaml").write_text(yaml.safe_dump({**sheet, "retries": [retry], "micro_rows": 8}))
    assert "stable, 1 retry" in arena("status", "tried").out
    shown = arena("show", "aaaa").out
    assert "8 at once, since memory ran out" in shown
    assert "out_of_memory: MemoryError" in shown


def test_a_large_study_is_shown_by_those_of_its_trials_that_count(arena: Run, study: Path) -> None:
    plan = json.loads((study / "plan.json").read_text())
    more = [{**plan["trials"][0], "id": f"{index:012x}-s0"} for index in range(1000)]
    (study / "plan.json").write_text(json.dumps({**plan, "trials": [*plan["trials"], *more]}))
    failed = study / "trials" / more[-1]["id"]
    failed.mkdir()
    (failed / "outcome.json").write_text(json.dumps({"outcome": "failed", "reason": "it broke"}))
    shown = arena("status", "tried").out
    assert failed.name in shown
    assert "aaaaaaaaaaaa-s0" not in shown, "what is done comes last"
    assert "... and 602 more" in shown
    assert "1,002 trials: 1 done, 1,000 pending, 1 failed" in shown


def test_a_study_that_nobody_runs_is_watched_once(arena: Run, study: Path) -> None:
    assert arena("status", "tried", "--watch").out == "tried: 2 trials: 1 done, 1 pending\n"
    assert arena("status", "tried", "--watch", "--format", "json").code == 2


def test_a_study_is_watched_until_nobody_runs_it_any_more(study: Path) -> None:
    lock = Lock(study / "driver.lock")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=30)
    watching = threading.Thread(target=watch, args=(study,), kwargs={"console": console, "interval": 0.01})
    watching.start()
    wait_for(lambda: screen.getvalue().count("aaaaaaaaaaaa-s0") > 1)
    assert watching.is_alive()
    lock.release()
    watching.join(20)
    assert not watching.is_alive()
