"""Scalars of TensorBoard event files, read without TensorBoard.

An event file is a sequence of records: length (8 bytes), checksum (4), a protocol buffer, checksum (4). Of
an Event the step (field 2) and the summary (field 5) count; of a summary's values (field 1) the tag (1), a
simple value (2) or a tensor of one number (8).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_MOST_RECORD = 64_000_000
_FLOAT, _DOUBLE = 1, 2


class EventsError(ValueError):
    """A file is no event file."""


def read_events(path: Path) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of every scalar. A record cut short ends the file.

    Raises EventsError where the first record is none.
    """
    with path.open("rb") as file:
        first = True
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", head[:8])
            if length > _MOST_RECORD:
                if first:
                    raise EventsError(f"{path}: not an event file")
                return
            record = file.read(length)
            if len(record) < length or len(file.read(4)) < 4:
                return
            try:
                yield from _scalars(record)
            except (IndexError, struct.error, UnicodeDecodeError) as error:
                if first:
                    raise EventsError(f"{path}: not an event file") from error
                return
            first = False


def _scalars(event: bytes) -> Iterator[tuple[int, str, float]]:
    step, summaries = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, found = _value(value)
                if tag and found is not None:
                    yield step, tag, found


def _value(message: bytes) -> tuple[str, float | None]:
    tag, found = "", None
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            found = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            found = _tensor(value)
    return tag, found


def _tensor(message: bytes) -> float | None:
    """A tensor of one number: its content (field 4), or floats (5) or doubles (6) written out."""
    kind = content = None
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    if content is None or kind not in (_FLOAT, _DOUBLE):
        return None
    size, letter = (4, "<f") if kind == _FLOAT else (8, "<d")
    return float(struct.unpack(letter, content)[0]) if len(content) == size else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: varints as int, everything else as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, message[place : place + size]
            place += size
        elif wire == 2:
            size, place = _varint(message, place)
            if place + size > len(message):
                raise IndexError
            yield number, message[place : place + size]
            place += size
        else:
            raise IndexError


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise IndexError
