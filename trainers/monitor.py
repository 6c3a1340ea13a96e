"""What a trainer tells the outside world, and what it is told back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Kind = Literal["train", "eval"]


@dataclass(frozen=True)
class Histogram:
    """Counts of one quantity over fixed bins.

    `name` is `<quantity>/<split>`, for example `log_ratio_token/negative`. `edges` has one entry more than
    `counts`; the first and last bin also hold what lies outside. `exact` counts values in a bin of their own
    (log-ratios of exactly zero before the first update).
    """

    name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    exact: int = 0


@dataclass(frozen=True)
class Transcript:
    """One sampled episode: what the policy saw and wrote, turn by turn."""

    kind: Kind
    success: bool
    total_reward: float
    turns: tuple[Mapping[str, object], ...]


class Diverged(ArithmeticError):
    """A loss, gradient or parameter stopped being finite."""


class Monitor(Protocol):
    """Receives a trainer's records and tells it when to stop.

    `report` may be slow only in proportion to what it is given; everything it receives is durable when it
    returns. `position` and `rewind` let a checkpoint pin how much had been recorded when it was taken.
    """

    def report(
        self,
        step: int,
        kind: Kind,
        metrics: Mapping[str, float],
        *,
        histograms: Sequence[Histogram] = (),
        episodes: Sequence[Transcript] = (),
    ) -> None:
        """Record the metrics of one step (train) or of one evaluation after `step` updates (eval)."""

    def should_stop(self) -> bool:
        """Whether training ends before the next step (collapse rule, or a user's request)."""

    def position(self) -> dict[str, int]:
        """Byte length of every record file, for a checkpoint."""

    def rewind(self, position: Mapping[str, int]) -> None:
        """Drop everything recorded after `position`; an empty mapping drops everything."""


@dataclass
class MemoryMonitor:
    """A monitor that keeps everything in memory: for tests, notebooks and behaviour cloning."""

    rows: list[dict[str, object]] = field(default_factory=list)
    histograms: list[tuple[int, Histogram]] = field(default_factory=list)
    episodes: list[Transcript] = field(default_factory=list)
    stop_after: int | None = None

    def report(
        self,
        step: int,
        kind: Kind,
        metrics: Mapping[str, float],
        *,
        histograms: Sequence[Histogram] = (),
        episodes: Sequence[Transcript] = (),
    ) -> None:
        """Append to the lists."""
        self.rows.append({"step": step, "kind": kind, **metrics})
        self.histograms.extend((step, histogram) for histogram in histograms)
        self.episodes.extend(episodes)

    def should_stop(self) -> bool:
        """True once a train row of step `stop_after` was reported."""
        return self.stop_after is not None and any(
            row["kind"] == "train" and row["step"] == self.stop_after for row in self.rows
        )

    def position(self) -> dict[str, int]:
        """Length of every list."""
        return {"rows": len(self.rows), "histograms": len(self.histograms), "episodes": len(self.episodes)}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Truncate every list."""
        for name in ("rows", "histograms", "episodes"):
            del getattr(self, name)[position.get(name, 0) :]
