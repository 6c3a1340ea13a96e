"""Following a record file that another process appends to, and may cut back to a checkpoint."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena.records import read_lines

logger = logging.getLogger(__name__)

_WINDOW = 4096


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was read: a byte offset, and a digest of the bytes before it.

    The digest tells a file that only grew from one that was cut back and written again: every row of metrics
    carries the time at which it was reported, so a step that is trained twice never gives the same bytes.
    """

    offset: int = 0
    digest: str = ""

    def dumps(self) -> str:
        """Short text, for a tag; `loads` reads it."""
        return f"{self.offset}:{self.digest}"

    @classmethod
    def loads(cls, text: str) -> Position:
        """The position written by `dumps`; the start of the file when the text is something else."""
        offset, _, digest = text.partition(":")
        return cls(int(offset), digest) if offset.isdecimal() and digest else cls()


@dataclass(frozen=True, slots=True)
class Chunk:
    """What `Tail.read` found: the new rows, and whether they replace everything read before."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rewound: bool = False


class Tail:
    """Reads what was added to a record file since the last call.

    A file that does not exist yet is empty, and an unfinished last line waits for its end. When the file no
    longer holds what was read of it (cut back to a checkpoint, replaced, removed), the next read starts from
    the beginning and says so.
    """

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self.path = path
        self.position = position or Position()

    def read(self) -> Chunk:
        """The rows added since the last read, or all of them when the file was rewound."""
        rewound = not self.holds()
        if rewound:
            self.position = Position()
        lines = read_lines(self.path, self.position.offset)
        for problem in lines.problems:
            logger.warning("%s: %s", self.path.parent, problem)
        if lines.end > self.position.offset:
            self.position = Position(lines.end, self._digest(lines.end))
        return Chunk(lines.rows, rewound)

    def holds(self) -> bool:
        """Whether the file still holds what was read of it."""
        return self.position.offset == 0 or self._digest(self.position.offset) == self.position.digest

    def _digest(self, offset: int) -> str:
        """Of the last bytes before `offset`; of the file's end where it is shorter."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, offset - _WINDOW))
                return hashlib.sha256(file.read(min(offset, _WINDOW))).hexdigest()[:16]
        except FileNotFoundError:
            return ""
