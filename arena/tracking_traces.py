"""Some of a trial's sampled episodes as traces: a span per turn, in MLflow's own viewer of conversations.

A trace's id is made from its run and what the episode says, so that an episode sent twice is one trace.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

TRACES = 8
"""Episodes of a trial that become traces: each costs the store as much as a hundred numbers."""
LONGEST_PREVIEW = 900
_TURN_NANOSECONDS = 1_000_000
"""Turns are not timed; a millisecond each keeps them in order on the page's time line."""


@dataclass(frozen=True)
class Owner:
    """Whose episodes they are: experiment and run, tags for the page's filters, and when the run began.

    start, end: seconds since the epoch; steps: the last step. They place an episode's step in time.
    """

    experiment: str
    run: str
    tags: Mapping[str, str]
    start: float
    end: float
    steps: int


def choose_episodes(episodes: Sequence[Mapping[str, Any]], onset: int | None) -> list[Mapping[str, Any]]:
    """At most `TRACES` of a trial's episodes: its first and last, and around a collapse those on both sides.

    Without a collapse they are spread over the training.
    """
    usable = [episode for episode in episodes if _readable(episode)]
    if len(usable) <= TRACES:
        return usable
    if onset is None:
        places = {round(k * (len(usable) - 1) / (TRACES - 1)) for k in range(TRACES)}
    else:
        after = next((k for k, episode in enumerate(usable) if episode["step"] >= onset), len(usable) - 1)
        quarter = TRACES // 4
        places = {*range(quarter), *range(len(usable) - quarter, len(usable))}
        places |= {k for k in range(after - quarter, after + quarter) if 0 <= k < len(usable)}
    return [usable[k] for k in sorted(places)]


def trace_id(owner: Owner, episode: Mapping[str, Any]) -> str:
    """The id of an episode's trace."""
    text = json.dumps([owner.run, episode], sort_keys=True)
    return f"tr-{sha256(text.encode()).hexdigest()[:32]}"


def send_traces(uri: str, owner: Owner, episodes: Sequence[Mapping[str, Any]]) -> None:
    """Send episodes to the store at this tracking URI; those that are there already stay as they are."""
    from mlflow.tracing.client import TracingClient

    client = TracingClient(uri)
    spans: list[Any] = []
    for episode in episodes:
        name, begun = trace_id(owner, episode), _begun(owner, episode)
        client.start_trace(_trace(name, begun, owner, episode))
        spans += _spans(name, begun, episode)
    if spans:
        client.log_spans(owner.experiment, spans)


def _begun(owner: Owner, episode: Mapping[str, Any]) -> int:
    """When the episode's step was, in milliseconds since the epoch: steps are taken to be equally long."""
    share = min(1.0, max(0, episode["step"]) / max(1, owner.steps))
    return int((owner.start + share * max(0.0, owner.end - owner.start)) * 1000)


def _trace(name: str, begun: int, owner: Owner, episode: Mapping[str, Any]) -> Any:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    turns = episode["turns"]
    return TraceInfo(
        trace_id=name,
        trace_location=TraceLocation.from_experiment_id(owner.experiment),
        request_time=begun,
        execution_duration=len(turns),
        state=TraceState.OK,
        request_preview=_shortened(turns[0].get("observation")),
        response_preview=_shortened(_ending(episode)),
        trace_metadata={"mlflow.sourceRun": owner.run},
        tags={
            **owner.tags,
            "mlflow.traceName": f"step {episode['step']}, {episode.get('kind', 'train')}",
            "step": str(episode["step"]),
            "episode": str(episode.get("kind", "train")),
            "success": "yes" if episode.get("success") else "no",
            "rejected": str(sum(bool(turn.get("rejection")) for turn in turns)),
        },
    )


def _spans(name: str, begun: int, episode: Mapping[str, Any]) -> list[Any]:
    turns = episode["turns"]
    start = begun * 1_000_000
    end = start + len(turns) * _TURN_NANOSECONDS
    root = _span(
        name,
        0,
        "episode",
        "AGENT",
        (start, end),
        {"observation": _verbatim(turns[0].get("observation"))},
        {"success": bool(episode.get("success")), "total_reward": episode.get("total_reward")},
    )
    parts = [
        _span(
            name,
            number,
            f"turn {number}",
            "LLM",
            (start + (number - 1) * _TURN_NANOSECONDS, start + number * _TURN_NANOSECONDS),
            {"observation": _verbatim(turn.get("observation"))},
            {key: _verbatim(turn.get(key)) for key in ("response", "action", "reward", "rejection")},
            problem=turn.get("rejection"),
        )
        for number, turn in enumerate(turns, start=1)
    ]
    return [root, *parts]


def _verbatim(value: Any) -> Any:
    """Text in a code block that it cannot end.

    The page reads texts as markdown: it would take a wall `#` for a heading, and would load the pictures that
    a policy links to.
    """
    if not isinstance(value, str):
        return value
    longest = max(map(len, re.findall("`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{value}\n{fence}"


def _span(
    name: str,
    number: int,
    title: str,
    kind: str,
    times: tuple[int, int],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    problem: Any = None,
) -> Any:
    """Number 0 is the root, the parent of all others. problem: why the environment took no action."""
    from mlflow.entities import Span

    digits = name.removeprefix("tr-")
    code = "STATUS_CODE_ERROR" if problem else "STATUS_CODE_OK"
    attributes = {
        "mlflow.traceRequestId": name,
        "mlflow.spanType": kind,
        "mlflow.spanInputs": inputs,
        "mlflow.spanOutputs": outputs,
    }
    return Span.from_dict(
        {
            "name": title,
            "trace_id": base64.b64encode(bytes.fromhex(digits)).decode(),
            "span_id": _span_id(digits, number),
            "parent_span_id": _span_id(digits, 0) if number else "",
            "start_time_unix_nano": times[0],
            "end_time_unix_nano": times[1],
            "attributes": {key: json.dumps(value) for key, value in attributes.items()},
            "status": {"code": code, "message": str(problem or "")},
            "events": [],
        }
    )


def _span_id(digits: str, number: int) -> str:
    """8 bytes that are never all zero, which would be no id."""
    digest = sha256(f"{digits} {number}".encode()).digest()[:8]
    return base64.b64encode(bytes([digest[0] | 1, *digest[1:]])).decode()


def _readable(episode: Mapping[str, Any]) -> bool:
    turns = episode.get("turns")
    whole = isinstance(turns, list) and bool(turns) and all(isinstance(turn, Mapping) for turn in turns)
    return whole and isinstance(episode.get("step"), int)


def _ending(episode: Mapping[str, Any]) -> str:
    success = "success" if episode.get("success") else "no success"
    return f"{success}, reward {float(episode.get('total_reward') or 0):.4g}, {len(episode['turns'])} turns"


def _shortened(value: Any) -> str:
    text = str(value if value is not None else "")
    return text if len(text) <= LONGEST_PREVIEW else text[: LONGEST_PREVIEW - 1] + "…"
