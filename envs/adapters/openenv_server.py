"""Our environments as OpenEnv servers, on the loopback interface only. Needs the extra `openenv`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from socket import create_server, socket
from threading import RLock
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from openenv.core.env_server import interfaces, types
from openenv.core.env_server.http_server import create_fastapi_app
from pydantic import Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from envs.text_env import Environment, TextEnv

HOSTS = ("127.0.0.1", "localhost")
SESSIONS = 1024
"""Episodes that can run side by side."""

_Message = MutableMapping[str, Any]
_Application = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Any]], Any]


class TextAction(types.Action):  # type: ignore[misc]
    """An action as text."""

    text: str = Field(max_length=1_000_000)


class TextObservation(types.Observation):  # type: ignore[misc]
    """What `envs.text_env.TextEnv` says of a turn; `task` is the instruction that heads every prompt."""

    text: str
    task: str
    admissible: list[str] | None
    anchor: str | None
    success: bool
    truncated: bool


class ServedEnvironment(interfaces.Environment[TextAction, TextObservation, types.State]):  # type: ignore[misc]
    """One session: one episode at a time.

    Sessions run in threads of the server, and environments share caches and a sandbox: one steps at a time.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment: Environment, config: Any, lock: RLock) -> None:
        super().__init__()
        self._environment, self._config, self._lock = environment, config, lock
        self._env: TextEnv | None = None
        self._state = types.State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, split: str = "train", **other: Any
    ) -> TextObservation:
        """Start the episode of a seed (0 without one) and a split, train or eval."""
        with self._lock:
            if self._env is None:
                self._env = self._environment.make(self._config)
            text, info = self._env.reset(seed or 0, {"split": split})
        self._state = types.State(episode_id=episode_id, step_count=0)
        return self._observation(text, info)

    def step(self, action: TextAction, timeout_s: float | None = None, **other: Any) -> TextObservation:
        """Take an action; `done` at the end of the episode, `truncated` too at the turn limit."""
        if self._env is None:
            raise ValueError("no episode is running: reset first")
        with self._lock:
            text, reward, terminated, truncated, info = self._env.step(action.text)
        self._state.step_count += 1
        return self._observation(text, info, reward=reward, done=terminated or truncated, truncated=truncated)

    @property
    def state(self) -> types.State:
        """Episode id and turns taken."""
        return self._state

    def get_metadata(self) -> types.EnvironmentMetadata:
        """Name, instruction, and what the episodes are made of."""
        return types.EnvironmentMetadata(
            name=self._config.name,
            description=self._environment.task(self._config),
            version=self._environment.data_id(self._config),
        )

    def close(self) -> None:
        """End the session."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _observation(self, text: str, info: Any, **told: Any) -> TextObservation:
        admissible = info["admissible"]
        return TextObservation(
            text=text,
            task=self._environment.task(self._config),
            admissible=None if admissible is None else list(admissible),
            anchor=info["anchor"],
            success=bool(info["success"]),
            truncated=told.pop("truncated", False),
            **told,
        )


class LocalOrigins:
    """Refuses what a web page of another site sends: browsers let any page connect to this machine."""

    def __init__(self, app: _Application) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: Any, send: Any) -> None:
        """Pass on, or refuse: 403, which also refuses a WebSocket."""
        origins = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"origin"]
        if all(urlsplit(origin).hostname in HOSTS for origin in origins):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"this server is for its own machine only"})


def application(environment: Environment, config: Any) -> FastAPI:
    """The web application that offers an environment; config: checked by its schema."""
    lock = RLock()
    app: FastAPI = create_fastapi_app(
        lambda: ServedEnvironment(environment, config, lock),
        TextAction,
        TextObservation,
        max_concurrent_envs=SESSIONS,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    app.add_middleware(LocalOrigins)
    return app


def listen(port: int) -> socket:
    """A socket on the loopback interface; 0 is any free port. Raises OSError where the port is taken."""
    return create_server((HOSTS[0], port))


def serve(environment: Environment, config: Any, listening: socket) -> None:
    """Offer an environment at a socket of `listen` until interrupted."""
    import uvicorn

    uvicorn.Server(uvicorn.Config(application(environment, config), log_level="warning")).run([listening])
