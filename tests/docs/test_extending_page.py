"""What docs/extending.md adds works as it says: its blocks are put into a copy of the tree and run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
COPIED = (
    "analysis",
    "arena",
    "envs",
    "trainers",
    "docs",
    "tests/conftest.py",
    "tests/envs",
    "tests/trainers",
)
SUITE = "tests/trainers/policy_gradient/test_is_clipping.py"


def block(first_line: str) -> str:
    """The block that begins with this comment, or with one that begins so, without it."""
    found = re.findall(
        rf"^```\w+\n# {re.escape(first_line)}[^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert len(found) == 1, first_line
    return str(found[0])


def put_in(path: Path, before: str, text: str) -> None:
    whole = path.read_text()
    assert whole.count(before) == 1
    path.write_text(whole.replace(before, text + before))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with everything on the page added to it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tree / name)
    shutil.copy(ROOT / "pyproject.toml", tree)
    option = tree / "trainers/policy_gradient/is_clipping.py"
    put_in(option, "def _pessimistic(", block(f"added to {option.relative_to(tree)}") + "\n\n")
    put_in(tree / SUITE, '    ("none", {}),\n', block(f"a row of CASES in {SUITE}"))
    put_in(tree / SUITE, '    if option == "none":\n', block(f"added to token_of in {SUITE}"))
    (tree / "envs/walk").mkdir()
    for name in (
        "arena/conf/is_clipping/quadratic.yaml",
        "arena/conf/method/SPO.yaml",
        "arena/conf/env/walk.yaml",
        "envs/walk/environment.py",
        "worst_of_group.py",
        "worst.yaml",
        "walk.yaml",
        "hands.py",
        "hands.yaml",
    ):
        (tree / name).write_text(block(name))
    return tree


def run(tree: Path, *command: str) -> str:
    environment = dict(os.environ, PYTHONPATH=str(tree), OMP_NUM_THREADS="1")
    ran = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def test_the_option_and_the_environment_pass_their_suites(tree: Path) -> None:
    files = (SUITE, "tests/trainers/policy_gradient/test_options.py", "tests/envs/test_conformance.py")
    wanted = "quadratic or walk or SPO or has_a_case"
    plain = ("-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-v", "--tb=short")
    said = run(tree, "-m", "pytest", *plain, *files, "-k", wanted)
    passed = [sum(f"{file}::" in line and "PASSED" in line for line in said.splitlines()) for file in files]
    assert passed[0] >= 12
    assert passed[1] >= 3
    assert passed[2] >= 15
    assert "SKIPPED" not in said


def test_the_option_gets_into_the_page_of_the_axes(tree: Path) -> None:
    run(tree, "docs/axes.py")
    page = (tree / "docs/axes.md").read_text()
    assert "### `quadratic`" in page
    assert "the ratio at which the gradient vanishes" in page
    assert "| SPO | `token_mean` | `quadratic` | `none` | `grpo` |" in page


@pytest.mark.parametrize(
    ("grid", "labels"), [("worst", ["GRPO", "worst"]), ("walk", ["GIGPO"]), ("hands", ["GRPO"])]
)
def test_the_grids_train(tree: Path, tmp_path: Path, grid: str, labels: list[str]) -> None:
    if grid == "hands":
        pytest.importorskip("gymnasium", reason="needs the extra `adapters`")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from arena.planning import plan_study\n"
        "from trainers.monitor import MemoryMonitor\n"
        "from trainers.native.cloning import make_clone\n"
        "from trainers.native.training import train\n"
        "folder, grid = map(Path, sys.argv[1:])\n"
        "trials = plan_study(grid, studies=folder).trials\n"
        "for trial in trials:\n"
        "    clone = folder / trial.clone\n"
        "    if not clone.exists():\n"
        "        clone.mkdir()\n"
        "        make_clone(trial.config, clone, lambda done, total: None)\n"
        "    monitor = MemoryMonitor()\n"
        "    train(trial.config, clone=clone, checkpoints=folder / trial.id, monitor=monitor)\n"
        "    print(trial.label, monitor.rows[1]['train/updates'])\n"
    )
    said = run(tree, "-c", script, str(tmp_path), f"{grid}.yaml")
    lines = said.splitlines()
    assert all(line.endswith(" 4.0") for line in lines)
    for label in labels:
        assert any(label in line or (label == "GRPO" and "SPO" in line) for line in lines), said
