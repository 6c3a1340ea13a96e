"""A published report is small, whole, and never written over something else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis.report import write_report

LINK = re.compile(r"\]\(([^)#]+)\)")


def pixels(path: Path) -> np.ndarray:
    """(height, width, 3), from 0 to 1, on white."""
    with Image.open(path) as image:
        whole = image.convert("RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole))[..., :3] / 255


def test_a_publication_has_what_it_links_to_and_looks_the_same(drawn_study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "drawn"
    stale = folder / "figures" / "stale.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier publication")
    page = write_report(drawn_study, publication=folder)
    assert page == folder / "report.md"
    links = {link for link in LINK.findall(page.read_text()) if not link.startswith("http")}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"trials.csv", "tables/claims.csv", "figures/overview.png"} <= links
    assert links <= files
    assert not stale.exists()
    assert {path.name for path in folder.parent.iterdir()} == {"drawn"}
    whole = drawn_study / "report"
    assert (folder / "trials.csv").read_bytes() == (whole / "trials.csv").read_bytes()
    kept, drawn = ([place / name for name in links if name.endswith(".png")] for place in (folder, whole))
    assert sum(path.stat().st_size for path in kept) < 0.5 * sum(path.stat().st_size for path in drawn)
    for one, other in zip(kept, drawn, strict=True):
        assert np.abs(pixels(one) - pixels(other)).mean() < 0.01


def test_a_folder_of_other_files_is_left_as_it_is(drawn_study: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for folder, message in ((mine, r"holds notes\.txt"), (mine / "notes.txt", "is a file")):
        with pytest.raises(FileExistsError, match=message):
            write_report(drawn_study, publication=folder)
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    assert not (drawn_study / "report").exists()
