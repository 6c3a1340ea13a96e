"""Telling failures of the machine, and lack of memory, from those of the trial, which happen again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from arena.records import Cause

UNAVAILABLE = os.EX_TEMPFAIL
"""Exit code (75, of sysexits.h) of a process that failed because something it depends on did."""

_ERRORS = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.EREMOTEIO,
        errno.ENODEV,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
    }
)
"""Of disks, network file systems and networks. A full disk is none: it stays full."""
_OF_RAY = frozenset(
    ("NodeDiedError", "LocalRayletDiedError", "RaySystemError", "RpcError", "WorkerCrashedError")
)
"""Errors of the Ray that a back-end runs for itself."""
_BROKEN = ("uncorrectable ECC error", "GPU has fallen off the bus", "GPU is lost")
_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def cause_of(error: BaseException) -> Cause:
    """What kind of failure an exception means, itself or what it came from; "" when it is the trial's."""
    for one in _chain(error):
        if _is_out_of_memory(one):
            return "out_of_memory"
        if _is_unavailable(one):
            return "unavailable"
    return ""


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def _is_unavailable(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _ERRORS:
        return True
    kind = type(error)
    if kind.__module__.startswith("ray.") and kind.__name__ in _OF_RAY:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _BROKEN)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
