"""A report small enough for version control: the page, its figures in few colours, its tables."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image

COLOURS = 128  # a figure of lines and bars has fewer but for the blends at their edges
PAGE, TRIALS, FIGURES, TABLES = "report.md", "trials.csv", "figures", "tables"


def check_target(folder: Path) -> None:
    """Raise FileExistsError where something other than an earlier publication is, or is in, the folder."""
    if folder.is_dir():
        foreign = sorted({path.name for path in folder.iterdir()} - {PAGE, TRIALS, FIGURES, TABLES})
        if foreign:
            raise FileExistsError(
                f"{folder} holds {foreign[0]}; give a new folder, or one of a published report"
            )
    elif folder.exists():
        raise FileExistsError(f"{folder} is a file; give a new folder")


def publish(report: Path, text: str, folder: Path) -> Path:
    """Write the page `text`, and what it links to in a study's `report`, into a folder; returns the page.

    An earlier publication there is replaced as a whole. Raises FileExistsError as `check_target` does.
    """
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        made = Path(place) / "new"
        (made / FIGURES).mkdir(parents=True)
        (made / PAGE).write_text(text, encoding="utf-8")
        shutil.copy(report / TRIALS, made / TRIALS)
        shutil.copytree(report / TABLES, made / TABLES)
        for figure in sorted((report / FIGURES).glob("*.png")):
            if f"({FIGURES}/{figure.name})" in text:
                _reduce(figure, made / FIGURES / figure.name)
        if folder.exists():
            folder.rename(Path(place) / "old")
        made.rename(folder)
    return folder / PAGE


def _reduce(figure: Path, to: Path) -> None:
    with Image.open(figure) as image:
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(to, optimize=True)
