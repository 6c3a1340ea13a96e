"""A shop's data in the schema of the official files, read from a folder or written to one.

`items_shuffle*.json` (products), `items_ins_v2*.json` (attributes and synthetic instructions by product),
`items_human_ins.json` (human instructions by product) and `reviews.json` (optional) as WebShop has them
(Yao et al. 2022).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

ITEMS, INSTRUCTIONS = "items_shuffle", "items_ins_v2"
HUMAN, REVIEWS = "items_human_ins.json", "reviews.json"

_WHOLE = 64 * 2**20
_SAMPLES, _SAMPLE = 64, 2**18


class DataError(ValueError):
    """The folder does not hold what is needed; the message says what and what to do."""


@dataclass(frozen=True)
class RawShop:
    """The files' contents, as they are.

    items: one dict a product; attributes: by asin, `{attributes, instruction, instruction_attributes}`;
    human: by asin, a list of `{instruction, instruction_attributes, instruction_options}`;
    reviews: `{asin, average_rating, reviews: [{title, stars, review}]}`.
    """

    items: list[dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    reviews: list[dict[str, Any]] = field(default_factory=list)


def find_files(folder: Path, *, human: bool = False) -> dict[str, Path]:
    """The files of a shop by what they hold: items, attributes, and human and reviews where they exist.

    human: whether the human instructions are needed. Where there are several catalogues, the one without a
    suffix is taken. Raises DataError.
    """
    if not folder.is_dir():
        raise DataError(f"data_path: {folder} is no folder: expected one with WebShop's files")
    catalogues = sorted(folder.glob(f"{ITEMS}*.json"), key=lambda path: (len(path.name), path.name))
    if not catalogues:
        raise DataError(f"data_path: no {ITEMS}*.json in {folder}: put WebShop's files there")
    suffix = catalogues[0].stem.removeprefix(ITEMS)
    attributes = folder / f"{INSTRUCTIONS}{suffix}.json"
    if not attributes.is_file():
        raise DataError(f"data_path: {catalogues[0].name} needs {attributes.name} beside it in {folder}")
    found = {"items": catalogues[0], "attributes": attributes}
    for name, file in (("human", HUMAN), ("reviews", REVIEWS)):
        if (folder / file).is_file():
            found[name] = folder / file
    if human and "human" not in found:
        raise DataError(f"goals: human needs {HUMAN} in {folder}")
    return found


def read_files(folder: Path, *, human: bool = False) -> RawShop:
    """Read a shop's files. Raises DataError for missing files and for files that hold something else.

    human: whether the human instructions are needed.
    """
    contents = {name: _read(path) for name, path in find_files(folder, human=human).items()}
    for name, expected in (("items", list), ("attributes", dict), ("human", dict), ("reviews", list)):
        if name in contents and not isinstance(contents[name], expected):
            raise DataError(f"data_path: the {name} in {folder} are no JSON {expected.__name__}")
    return RawShop(**contents)


def write_files(raw: RawShop, folder: Path) -> None:
    """Write a shop as the official files, into an existing folder."""
    human = {HUMAN: raw.human} if raw.human else {}
    reviews = {REVIEWS: raw.reviews} if raw.reviews else {}
    contents = {f"{ITEMS}.json": raw.items, f"{INSTRUCTIONS}.json": raw.attributes, **human, **reviews}
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def fingerprint(folder: Path) -> str:
    """What the files of a folder hold, wherever it lies: 16 hexadecimal digits. Raises DataError.

    Of a file over 64 MiB, its size and 64 evenly spaced blocks are hashed.
    """
    digest = hashlib.sha256()
    for name, path in sorted(find_files(folder).items()):
        status = path.stat()
        digest.update(f"{name}:{_hash(path, status.st_size, status.st_mtime_ns)};".encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=64)
def _hash(path: Path, size: int, modified: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE:
            while block := file.read(_SAMPLE):
                digest.update(block)
        else:
            for sample in range(_SAMPLES):
                file.seek(sample * (size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"data_path: {path} is no JSON: {error}") from error
