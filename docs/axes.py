"""Writes `axes.md` and `figures/gradients.png` from the code, the option files and their comments.

python docs/axes.py
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import torch
from matplotlib.lines import Line2D
from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from analysis.plot_style import FAINT, MUTED, PALETTE, figure_style, new_figure, plain_numbers, save  # noqa: E402
from arena.options import AXES, CONF, Catalogue  # noqa: E402
from trainers.config import OptionConfig, VoidTurnsConfig  # noqa: E402
from trainers.policy_gradient import kl, masks, objective  # noqa: E402
from trainers.policy_gradient.options import bind, load  # noqa: E402
from trainers.policy_gradient.parameters import SETTINGS, Gate, Mask  # noqa: E402

PAGE = ROOT / "docs" / "axes.md"
FIGURE = ROOT / "docs" / "figures" / "gradients.png"
CATALOGUE = Catalogue()

INTRODUCTION = """\
# The four axes

A policy-gradient update is four choices that have nothing to do with each other: how the losses of tokens
become one number, what is done about ratios that left 1, which groups of a rollout are learned from, and what
a row is worth. Any option of one goes with any option of the others.

This page is written by `docs/axes.py` from the functions, their option files
(`arena/conf/<axis>/<option>.yaml`) and the comments in both; edit those and run `make docs`.

**Notation.** A trajectory *i* of K_i turns gives K_i rows, one per turn: a prompt and the T tokens of the
response. G trajectories from the same initial state are a group. r_ik is the environment's reward of turn k,
R_i their sum, p_ik the penalty of a malformed or inadmissible response, u_ik = R_i - p_ik the score of a row,
A its advantage. w is the ratio pi_theta / pi_old of a token, s that of a sequence.

**Rows.** `rows: transcript` makes one row per trajectory instead: the prompt is what the policy saw first,
the response all that followed, and what the environment said in between is masked out of the loss and of
every statistic. T counts what the policy wrote in all turns, T_max is `prompt.max_response_tokens` times
`env.max_turns`, the row's reward is R_i and its penalty the sum of its turns'. An episode ends where
another whole response would not fit into `prompt.max_context_tokens` (or the model's positions);
`rollout/context_full` counts these. `gigpo` and `empg` give each turn an advantage of its own and are
refused there. A clone is made of whole transcripts too, of an expert that does what it writes
(`cloning.explore: 0`).
"""

STOP = """\
`trainer.stop_at_kl: 0.02`, off by default: a step makes no further update once the KL to the policy that
wrote its responses (mean of w - 1 - log w over a mini-batch's tokens, before its update) is above this.
Like a random gate (`gated` with `share`) a control: it keeps the policy near without looking at signs.
`train/stopped_at_kl` says whether it happened, `train/updates` how many updates were made.
"""


@dataclass(frozen=True)
class Drawn:
    """A panel of the figure: an option and the parameters in which it differs from its defaults."""

    option: str
    parameters: dict[str, Any]
    said: str


VARIANTS = (
    Drawn("token", {"dual_clip": 2.0}, "dual_clip 2"),
    Drawn(
        "gated",
        {"weight": "one", "low": {"level": "token", "eps": 0.5}, "high": {"level": "token", "eps": 1.0}},
        "weight one\nlow 0.5, high 1",
    ),
)
"""Panels beside every option's defaults; an option that has no gate by default has its variant alone."""


def panels() -> list[Drawn]:
    """What the figure shows, in the order of the code."""
    shown = []
    for name in sorted(CATALOGUE.names("is_clipping"), key=partial(_line, "is_clipping")):
        option = CATALOGUE.option("is_clipping", name)
        own = [key for key in option.defaults if key not in SETTINGS["is_clipping"].model_fields]
        numbers = [
            f"{key} {option.defaults[key]:g}" for key in own if isinstance(option.defaults[key], float)
        ]
        if name != "gated":
            shown.append(Drawn(name, {}, "\n".join(numbers)))
        shown += [variant for variant in VARIANTS if variant.option == name]
    return shown


def gradient_weights(
    option: str, parameters: dict[str, Any], ratios: torch.Tensor, sign: int
) -> torch.Tensor:
    """(n,) what multiplies A grad log pi at the given ratios (n,) and sign of A, by differentiating.

    Every ratio is that of a row of one token, where w and s are the same.
    """
    known = CATALOGUE.option("is_clipping", option)
    entry = {"option": option, "function": known.function, **known.defaults, **parameters}
    function = bind("is_clipping", OptionConfig.model_validate(entry))
    old = torch.full((len(ratios), 1), -1.0, dtype=torch.float64)
    log_probs = (old + ratios.double().log()[:, None]).requires_grad_()
    advantages = torch.full((len(ratios),), float(sign), dtype=torch.float64)
    every = torch.ones_like(old, dtype=torch.bool)
    function(log_probs, old, advantages, every, torch.arange(len(ratios))).sum().backward()
    assert log_probs.grad is not None
    return log_probs.grad[:, 0] * sign


def draw_gradients(path: Path) -> None:
    """One panel per option: the weight on grad log pi against the ratio, for A > 0 and A < 0."""
    ratios = torch.linspace(0.25, 4.0, 4001)
    shown = panels()
    rows = -(-len(shown) // 4)
    lines = [
        Line2D([], [], color=PALETTE[0], linewidth=2.2, label="A > 0"),
        Line2D([], [], color=PALETTE[1], linewidth=2.2, linestyle=(0, (4, 1.6)), label="A < 0"),
        Line2D([], [], color=MUTED, linewidth=1.0, label="unclipped: the ratio itself"),
    ]
    with figure_style():
        figure = new_figure(
            2.3 * rows,
            "What each clipping option multiplies grad log pi with",
            "Weight on A grad log pi against the ratio pi / pi_old of a row of one token, where the token's "
            "and the sequence's ratio are the same. All agree at ratio 1; a token at weight 0 is silent.",
            lines,
        )
        grid = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        for drawn, axes in zip(shown, grid.flat, strict=False):
            axes.plot(ratios, ratios, color=MUTED, linewidth=1.0, zorder=1)
            axes.axvline(1, color=FAINT, linewidth=1.2, zorder=0)
            for sign, line in ((1, lines[0]), (-1, lines[1])):
                weights = gradient_weights(drawn.option, drawn.parameters, ratios, sign)
                style = {"color": line.get_color(), "linestyle": line.get_linestyle()}
                axes.plot(ratios, weights, linewidth=2.2, zorder=3 if sign < 0 else 2, **style)
            axes.set_title(drawn.option)
            axes.text(0.04, 0.95, drawn.said, color=MUTED, fontsize=8.5, va="top", transform=axes.transAxes)
            axes.set_xscale("log")
            axes.set_xlim(0.25, 4)
            axes.set_ylim(-0.08, 2.6)
            plain_numbers(axes.xaxis)
            axes.set_xticks([0.25, 0.5, 1, 2, 4])
            axes.minorticks_off()
        for axes in grid[-1]:
            axes.set_xlabel("ratio")
        for axes in grid[:, 0]:
            axes.set_ylabel("weight")
        save(figure, path)


def page() -> str:
    """The text of the page."""
    return "\n".join([*_page(), ""]).replace("\n\n\n", "\n\n")


def _page() -> Iterator[str]:
    yield INTRODUCTION
    yield from _overview()
    yield "## The loss of a mini-batch\n"
    yield _docstring(objective)
    for axis in AXES:
        module = import_module(f"trainers.policy_gradient.{axis}")
        yield f"## `{axis}`\n"
        yield _docstring(module)
        if axis == "is_clipping":
            yield "![Weight on grad log pi against the ratio, per option](figures/gradients.png)\n"
        yield from _shared(axis)
        for name in sorted(CATALOGUE.names(axis), key=partial(_line, axis)):
            yield from _option(axis, name)
        if axis == "is_clipping":
            yield "### Masks\n"
            yield _docstring(masks.kept_tokens)
            yield from _table(_fields(Mask))
            yield "### Void turns\n"
            yield "`trainer.void_turns: {drop, denominator}`, off by default.\n"
            yield _docstring(VoidTurnsConfig)
            yield "### Stopping a step\n"
            yield STOP
    yield "## KL to the reference\n"
    yield _docstring(kl)
    for estimator in (kl.k1, kl.k2, kl.k3):
        yield f"- `{estimator.__name__}`: {_prose(inspect.getdoc(estimator) or '')}"
    yield ""
    yield _docstring(kl.charge_rewards)
    yield "## Named methods\n"
    yield "A method is a point, one file in `arena/conf/method`. Parameters are given where they differ.\n"
    yield from _methods()


def _overview() -> Iterator[str]:
    yield "| axis | options |"
    yield "|---|---|"
    for axis in AXES:
        names = sorted(CATALOGUE.names(axis), key=partial(_line, axis))
        yield f"| [`{axis}`](#{axis}) | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


def _shared(axis: str) -> Iterator[str]:
    settings = SETTINGS[axis]  # type: ignore[index]
    if not settings.model_fields:
        return
    yield f"**Every option of `{axis}` also takes**\n"
    comments = _comments(axis, CATALOGUE.names(axis)[-1])
    rows = [
        (name, _value(field.get_default()), _kind(field.rebuild_annotation()), comments.get(name, ""))
        for name, field in settings.model_fields.items()
    ]
    yield from _table(rows)


def _option(axis: str, name: str) -> Iterator[str]:
    option = CATALOGUE.option(axis, name)
    yield f"### `{name}`\n"
    yield _docstring(load(option.function))
    own = {
        parameter.name
        for parameter in inspect.signature(load(option.function)).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    shared = SETTINGS[axis].model_fields  # type: ignore[index]
    comments = _comments(axis, name)
    rows = [
        (
            key,
            _value(default),
            _kind(option.schema.model_fields[key].rebuild_annotation()),
            comments.get(key, ""),
        )
        for key, default in option.defaults.items()
        if key in own or default != shared[key].get_default()
    ]
    yield from _table(rows)
    used = [method.name for method in CATALOGUE.methods.values() if method.point[axis][0] == name]
    said = f"In {', '.join(used)}. " if used else ""
    yield f"{said}Function: `{option.function}`\n"


def _methods() -> Iterator[str]:
    yield "| method | " + " | ".join(f"`{axis}`" for axis in AXES) + " |"
    yield "|---" * (len(AXES) + 1) + "|"
    for method in CATALOGUE.methods.values():
        cells = []
        for axis in AXES:
            name, parameters = method.point[axis]
            given = ", ".join(f"{key}: {_value(value)}" for key, value in parameters.items())
            cells.append(f"`{name}`" + (f" ({given})" if given else ""))
        yield f"| {method.name} | " + " | ".join(cells) + " |"


def _table(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield "| parameter | default | may be | meaning |"
    yield "|---|---|---|---|"
    for name, default, kind, meaning in rows:
        yield f"| `{name}` | {default} | {kind} | {_prose(meaning)} |"
    yield ""


def _fields(model: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    meanings = {"delta": "how far below 1 a ratio's logarithm may fall", "denominator": "see above"}
    return [
        (
            name,
            "needed" if field.is_required() else _value(field.get_default()),
            _kind(field.rebuild_annotation()),
            meanings[name],
        )
        for name, field in model.model_fields.items()
    ]


def _line(axis: str, name: str) -> int:
    """Where an option's function stands in its module."""
    return inspect.getsourcelines(load(CATALOGUE.option(axis, name).function))[1]


def _comments(axis: str, name: str) -> dict[str, str]:
    """What an option's file says beside its parameters."""
    found = {}
    for line in (CONF / axis / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"(\w+):.*?\s#\s*(.+)", line):
            found[match[1]] = match[2]
    return found


def _docstring(source: Callable[..., Any] | types.ModuleType) -> str:
    """A docstring as Markdown: paragraphs joined, indented and tabular lines kept as they are."""
    blocks = []
    for block in (inspect.getdoc(source) or "").split("\n\n"):
        lines = block.split("\n")
        tabular = all(line.startswith("    ") or re.match(r"\S+ {2,}\S", line) for line in lines)
        blocks.append("```text\n" + inspect.cleandoc("\n" + block) + "\n```" if tabular else _prose(block))
    return "\n\n".join(blocks) + "\n"


def _prose(text: str) -> str:
    """Text whose formulas survive Markdown: marks escaped outside of backticks, papers linked."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    for place, part in enumerate(parts):
        if place % 2 == 0:
            escaped = re.sub(r"([*_\[\]<>|~])", r"\\\1", part)
            parts[place] = re.sub(
                r"(arXiv )?\b(\d{4}\.\d{5})\b", r"[arXiv \2](https://arxiv.org/abs/\2)", escaped
            )
        else:
            parts[place] = part.replace("|", "\\|")
    return "".join(parts)


def _value(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind(annotation: Any) -> str:
    """What a type allows, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound for bound in map(_bound, arguments[1:]) if bound]
        return f"{_kind(arguments[0])} {' and '.join(bounds)}".strip()
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        kinds = [_kind(kind) for kind in arguments if kind is not type(None)]
        return " or ".join([*kinds, "null"])
    if annotation is Gate:
        return "`{level: token \\| sequence, eps}` or `{level, share}`"
    if annotation is Mask:
        return "[a mask](#masks)"
    return {float: "number", int: "whole number", bool: "true, false", str: "text"}.get(
        annotation, "anything"
    )


def _bound(mark: Any) -> str:
    if hasattr(mark, "metadata"):
        return " and ".join(bound for bound in map(_bound, mark.metadata) if bound)
    signs = {"Gt": ("gt", "&gt;"), "Ge": ("ge", "≥"), "Lt": ("lt", "&lt;"), "Le": ("le", "≤")}
    kind = type(mark).__name__
    if not isinstance(mark, annotated_types.BaseMetadata) or kind not in signs:
        return ""
    name, sign = signs[kind]
    return f"{sign} {getattr(mark, name):g}"


def main() -> None:
    """Write both."""
    PAGE.write_text(page(), encoding="utf-8")
    draw_gradients(FIGURE)


if __name__ == "__main__":
    main()
