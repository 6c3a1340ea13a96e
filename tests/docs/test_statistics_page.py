"""`docs/statistics.md` shows hypotheses that plan, and all the forms there are."""

from __future__ import annotations

import re
from pathlib import Path

from analysis.foreign import ALIASES
from analysis.hypotheses import FORMS, METRICS, UNITS
from arena.planning import plan_study

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()


def test_the_example_plans(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "grid.yaml").write_text(text)
    study = plan_study(tmp_path / "grid.yaml", studies=tmp_path / "studies")
    assert text.startswith(f"# {len(study.trials)} trials")
    assert len(study.hypotheses) == 3


def test_every_form_and_metric_is_on_the_page() -> None:
    for form in FORMS:
        assert f"`{form}`" in PAGE
    for name in (*METRICS, *UNITS):
        assert name in PAGE


def test_every_alias_is_on_the_page_of_diagnose() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text()
    for name, aliases in ALIASES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert set(re.findall(r"`([^`]+)`", row)) == {name, *aliases}
