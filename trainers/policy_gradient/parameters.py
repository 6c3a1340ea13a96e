"""What is read of an option beside its own function's parameters. Imports no torch: planning reads it.

An option file gives the import path of its function and every parameter with its default. The function's
keyword-only parameters are the option's own; those below belong to the axis and are the same for each of its
options. The annotations of an option function resolve in this module's namespace, so that parameters can be
checked from source, without importing the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from trainers.config import Count, NonNegative, OptionConfig, Positive, Section, Share

__all__ = [
    "AXES",
    "PER_TURN",
    "SETTINGS",
    "AdvantageSettings",
    "AggregationSettings",
    "Axis",
    "ClippingSettings",
    "Count",
    "DualClip",
    "FilteringSettings",
    "Gate",
    "Literal",
    "Mask",
    "NonNegative",
    "Positive",
    "Section",
    "Share",
    "settings",
]

Axis = Literal["loss_aggregation", "is_clipping", "dynamic_filtering", "advantage"]


DualClip = Annotated[float, Field(gt=1)]
"""The bound c of a dual clip: at 1 or below it would clip ratios of 1."""


class Gate(Section):
    """One side of the `gated` option.

    level: of tokens or of sequences. eps: how far the ratio of that level may go from 1; or, in its place,
    share: which share of tokens or sequences is gated at random, whatever their ratio: its control.
    """

    level: Literal["token", "sequence"]
    eps: Positive | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Gate:
        if (self.eps is None) == (self.share is None):
            raise ValueError("give exactly one of eps (a band of ratios) and share (at random)")
        return self


class Mask(Section):
    """A modifier that drops terms of the policy loss (never of KL or entropy).

    `denominator: kept` takes what was dropped out of the aggregation's denominator too; `all` leaves it
    there.
    """

    delta: NonNegative
    denominator: Literal["kept", "all"] = "kept"


class AggregationSettings(Section):
    """What every option of `loss_aggregation` shares.

    scope: over what the mean is taken; `minibatch` is exact under any split into micro-batches, `microbatch`
    averages the means of micro-batches (verl 0.4).
    sequence: what is one sequence; the trajectory's is that of the rows the mini-batch holds of it.
    """

    scope: Literal["minibatch", "microbatch"] = "minibatch"
    sequence: Literal["row", "trajectory"] = "row"


class ClippingSettings(Section):
    """The modifiers of every option of `is_clipping`, all off by default."""

    sequence_mask: Mask | None = None
    token_mask: Mask | None = None
    random_mask: Mask | None = None


class FilteringSettings(Section):
    """How rollouts are collected under every option of `dynamic_filtering`.

    max_tries: full batches of new initial states rolled out at most to fill the step;
    fill: whether dropped groups of the last try make up for what is missing;
    cold_start_steps: filtering is off while step <= this.
    """

    max_tries: Count = 3
    fill: Literal["uniform", "shrink"] = "uniform"
    cold_start_steps: Annotated[int, Field(ge=0)] = 0


class AdvantageSettings(Section):
    """Every option of `advantage` shares nothing: its parameters are all its own."""


SETTINGS: Mapping[Axis, type[Section]] = {
    "loss_aggregation": AggregationSettings,
    "is_clipping": ClippingSettings,
    "dynamic_filtering": FilteringSettings,
    "advantage": AdvantageSettings,
}
AXES: tuple[Axis, ...] = tuple(SETTINGS)

PER_TURN = frozenset(f"trainers.policy_gradient.advantage.{name}" for name in ("gigpo", "empg"))
"""The functions of advantages that compare turns: with others of their state, or the next of a trajectory."""

SettingsT = TypeVar("SettingsT", bound=Section)


def settings(option: OptionConfig, schema: type[SettingsT]) -> SettingsT:
    """The part of an option's parameters that `schema`, one of `SETTINGS`, describes."""
    return schema.model_validate(
        {name: value for name, value in option.parameters.items() if name in schema.model_fields}
    )
