"""The shop as web pages on this machine: a person sees and does what the agent sees and does.

Pages are the parts of the agent's page as HTML; clicking sends the agent's action to a `WebShopEnv`. One
episode per server; `/` shows it, `/step` takes one action (by POST), `/reset` starts another goal. With a
policy the person watches: `/agent` lets it take its next turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

from envs.playing import Move, Policy, Turn
from envs.text_env import Observation, Split
from envs.webshop.config import WebShopConfig
from envs.webshop.environment import WebShopEnv
from envs.webshop.pages import Part, click_name, parts, write_action

LOG = logging.getLogger(__name__)

_LONGEST_FORM = 10_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
form { display: inline } button { font: inherit; margin: 2px; cursor: pointer }
button.clicked { background: #cde }
pre { white-space: pre-wrap; background: #f6f6f6 }
"""


class ShopServer(ThreadingHTTPServer):
    """Serves one visitor's episode on the loopback interface only.

    Forms carry a token of this server: another site that is open in the same browser cannot act here. policy:
    acts in the place of the visitor, a turn at a time.
    """

    daemon_threads = True

    def __init__(
        self,
        config: WebShopConfig,
        *,
        seed: int = 0,
        split: Split = "eval",
        port: int = 0,
        policy: Policy | None = None,
    ) -> None:
        self.env, self.policy = WebShopEnv(config), policy
        self.token = token_urlsafe(16)
        self.lock = Lock()
        self._seed, self._split = seed, split
        self.restart()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where the shop is."""
        return f"http://127.0.0.1:{self.server_port}/"

    def restart(self, *, following: bool = False) -> None:
        """Start the goal again, or the following one."""
        self._seed += following
        self._observation, self._info = self.env.reset(self._seed, {"split": self._split})
        self._turns: list[Turn] = []
        self._over = False

    def act(self, action: str) -> None:
        """Take one action in the episode; nothing happens when it is over, or when a policy acts."""
        if self.policy is None:
            self._take(Move(action))

    def let_act(self) -> None:
        """Let the policy take its next turn; nothing happens when the episode is over."""
        if self.policy is not None and not self._over:
            admissible = self._info["admissible"]
            seen = Observation(
                self._observation, self._info["anchor"], None if admissible is None else tuple(admissible)
            )
            self._take(self.policy.act(self.env, seen, self._turns))

    def _take(self, move: Move) -> None:
        if not self._over:
            before = self._observation
            self._observation, reward, terminated, truncated, self._info = self.env.step(move.action)
            self._turns.append(Turn(before, move, reward))
            self._over = terminated or truncated

    def page(self) -> str:
        """The current page as HTML."""
        env, config = self.env, self.env.config
        body = [self._part(part) for part in parts(env.shop, env.visit, config.page_size)]
        if env.visit.page == "search" and not self._over:
            body.append(self._search_form())
        body += self._agent()
        if self._over:
            body.append(f"<p>The episode is over after {len(self._turns)} turns.</p>")
            body.append(self._form("/reset", '<button id="another">Another goal</button>'))
        seen, turn = escape(self._observation), f"turn {len(self._turns)} of {config.max_turns}"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>WebShop</title>'
            f"<style>{_STYLE}</style></head><body>{''.join(body)}"
            f"<hr><details><summary>What the agent reads ({turn})</summary>"
            f'<pre id="observation">{seen}</pre></details></body></html>'
        )

    def _agent(self) -> list[str]:
        """What the policy did last, whole, and the button that lets it go on."""
        if self.policy is None:
            return []
        shown = []
        if self._turns:
            move = self._turns[-1].move
            shown.append(f'<p>The agent:</p><pre id="move">{escape(move.response or move.action)}</pre>')
        if not self._over:
            shown.append(self._form("/agent", '<button id="agent">Let the agent act</button>'))
        return shown

    @property
    def _disabled(self) -> str:
        return "" if self.policy is None else " disabled"

    def _search_form(self) -> str:
        admissible = self._info["admissible"]
        if admissible is None:
            field = f'<input name="query" autofocus required{self._disabled}>'
            return self._form("/step", f"{field} <button{self._disabled}>Search</button>")
        return "".join(self._action(action, action) for action in admissible)

    def _part(self, part: Part) -> str:
        mode = self.env.config.observation
        if part.link is None:
            return f"<p>{escape(part.text)}</p>"
        action = write_action("click", click_name(part.link, mode), mode)
        return self._action(action, part.text, clicked=part.clicked)

    def _action(self, action: str, text: str, *, clicked: bool = False) -> str:
        mark = ' class="clicked"' if clicked else ""
        button = (
            f'<button name="action" value="{escape(action)}"{mark}{self._disabled}>{escape(text)}</button>'
        )
        return self._form("/step", button)

    def _form(self, where: str, content: str) -> str:
        token = f'<input type="hidden" name="token" value="{self.token}">'
        return f'<form method="post" action="{where}">{token}{content}</form>'


class _Handler(BaseHTTPRequestHandler):
    server: ShopServer

    def do_GET(self) -> None:
        """Show the current page."""
        if not self._is_local():
            return
        if self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with self.server.lock:
            content = self.server.page().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        """Take an action, or start another goal, and show the page that follows."""
        if not self._is_local():
            return
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LONGEST_FORM:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        form = parse_qs(self.rfile.read(length).decode("utf-8", "replace"))
        if form.get("token") != [self.server.token]:
            self.send_error(HTTPStatus.FORBIDDEN, "this form is not of this shop")
            return
        with self.server.lock:
            if self.path == "/reset":
                self.server.restart(following=True)
            elif self.path == "/step":
                self.server.act(_action_of(form, self.server.env.config))
            elif self.path == "/agent":
                self.server.let_act()
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _is_local(self) -> bool:
        """Whether the request was meant for this server: a page elsewhere may point its own name here."""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host in ("127.0.0.1", "localhost"):
            return True
        self.send_error(HTTPStatus.FORBIDDEN, "this shop is for this machine only")
        return False

    def log_message(self, format: str, *args: Any) -> None:
        """To the log, not to the terminal."""
        LOG.debug(format, *args)


def _action_of(form: Mapping[str, list[str]], config: WebShopConfig) -> str:
    if "action" in form:
        return form["action"][0]
    return write_action("search", form.get("query", [""])[0], config.observation)
