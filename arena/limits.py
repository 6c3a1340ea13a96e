"""How a run of a study treats its trials: when it ends one, when it starts one again. Changes no result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OnOutOfMemory = Literal["fail", "halve_micro_batch"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond what a job is ended, in seconds; None is never.

    hang: without a new record. total: altogether, in all attempts. grace: between asking a process to end
    and killing it. log_bytes: how much is kept of what it prints, the beginning and the end.
    """

    hang: float | None = 1800.0
    total: float | None = None
    grace: float = 5.0
    log_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Handling:
    """What happens to a trial that takes too long, or is ended by something that is not its fault.

    retries: how often one run starts a trial again after a failure of the machine. on_out_of_memory: whether
    a trial that runs out of memory goes on with half as many rows in memory at once.
    """

    limits: Limits = Limits()
    retries: int = 2
    on_out_of_memory: OnOutOfMemory = "fail"


USUAL = Handling()
