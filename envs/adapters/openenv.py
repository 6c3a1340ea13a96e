"""Environments that an OpenEnv server offers: actions and observations are the text fields of its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from envs.adapters.config import OpenEnvConfig
from envs.adapters.engine import AdapterError, Engine, Reply, Start
from envs.adapters.environment import AdapterEnvironment
from envs.text_env import Split

_USUAL = "text"
_QUICK_SECONDS = 5.0


class OpenEnvEngine(Engine):
    """One session with a server, over its WebSocket.

    `admissible`, `success` and `truncated` are taken from an observation that has them, as those of our own
    environments have.
    """

    def __init__(self, config: OpenEnvConfig) -> None:
        from openenv.core import GenericEnvClient

        schema = _asked(config.url, "schema")
        self._config = config
        self._action = _text_field(schema["action"], config.action, "action")
        self._observation = _text_field(schema["observation"], config.observation, "observation")
        client: Any = GenericEnvClient(base_url=config.url, message_timeout_s=config.timeout_seconds)
        self.inner = client.sync() if hasattr(client, "sync") else client

    def start(self, seed: int, split: Split) -> Start:
        """See `Engine.start`; servers that know no splits leave `split` out of account."""
        result = self.inner.reset(seed=seed, split=split, **self._config.reset)
        return Start(self._text(result.observation), _admissible(result.observation))

    def act(self, action: str) -> Reply:
        """See `Engine.act`."""
        result = self.inner.step({self._action: action})
        seen = result.observation
        truncated = bool(seen.get("truncated", False))
        says = seen.get("success")
        return Reply(
            self._text(seen),
            _admissible(seen),
            float(result.reward or 0.0),
            terminated=bool(result.done) and not truncated,
            truncated=truncated,
            success=says if isinstance(says, bool) else None,
        )

    def close(self) -> None:
        """See `Engine.close`."""
        self.inner.close()

    def _text(self, observation: Mapping[str, Any]) -> str:
        return str(observation[self._observation])


def _admissible(observation: Mapping[str, Any]) -> tuple[str, ...] | None:
    listed = observation.get("admissible")
    return tuple(map(str, listed)) if isinstance(listed, list) else None


def _text_field(schema: Mapping[str, Any], named: str | None, key: str) -> str:
    """The field of a schema that holds text. Raises AdapterError where it cannot be told."""
    fields = schema.get("properties", {})
    texts = [name for name, field in fields.items() if field.get("type") == "string"]
    if named is not None and named in fields:
        return named
    if named is None and (_USUAL in texts or len(texts) == 1):
        return _USUAL if _USUAL in texts else texts[0]
    wrong = "which of its fields is the text?" if named is None else f"it has no field {named!r}"
    raise AdapterError(f"{key}: {wrong} (fields: {', '.join(fields) or 'none'}; name one in `{key}`)")


def _asked(url: str, what: str) -> Any:
    """What a server says of itself. Raises AdapterError where there is none."""
    if not url.startswith(("http://", "https://")):
        raise AdapterError(f"url: expected http:// or https://, got {url!r}")
    try:
        with urlopen(f"{url.rstrip('/')}/{what}", timeout=_QUICK_SECONDS) as answer:
            return json.load(answer)
    except (URLError, OSError, ValueError) as error:
        raise AdapterError(f"no OpenEnv server answers at {url} ({error}); start it first") from error


def _served(config: OpenEnvConfig) -> str:
    """Name and version of what is served."""
    try:
        told = _asked(config.url, "metadata")
    except AdapterError:
        return "missing"  # `problems` says so
    return f"{told.get('name')} {told.get('version')}"


def open_openenv(config: OpenEnvConfig) -> OpenEnvEngine:
    """The engine of a configuration. Raises AdapterError."""
    return OpenEnvEngine(config)


OPENENV = AdapterEnvironment(
    OpenEnvConfig,
    open_openenv,
    module="openenv",
    distribution="openenv",
    remedy="pip install 'arlarena[openenv]'",
    source=_served,
)
