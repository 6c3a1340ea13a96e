"""The shop as web pages: the agent's pages and actions, escaped, for this machine only."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import subprocess
import sys
from copy import copy
from dataclasses import replace
from functools import partial
from html import unescape
from threading import Thread
from urllib.parse import urlencode

import pytest

from envs.baselines import ExpertPolicy
from envs.playing import Move, play
from envs.webshop.browser import ShopServer

HOSTILE = "<script>document.title='broken'</script>\"'&<b>"


@pytest.fixture
def serve(load):
    servers = []

    def start(policy=None, **changes):
        _, config = load(eval_goals=50, catalogue={"products": 100}, **changes)
        server = ShopServer(config, policy=policy)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(server, method="GET", path="/", host=None, **form):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if host:
        headers["Host"] = host
    connection.request(method, path, urlencode(form) if form else None, headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


def act(server, **form):
    status, _ = ask(server, "POST", "/step", token=server.token, **form)
    assert status == 303
    return ask(server)[1]


def observation(page):
    return unescape(re.search(r'<pre id="observation">(.*?)</pre>', page, re.DOTALL)[1])


def buttons(page):
    return [unescape(value) for value in re.findall(r'name="action" value="([^"]*)"', page)]


@pytest.mark.parametrize("mode", ["compact", "text", "text_rich"])
def test_a_person_can_do_what_the_agent_can_and_sees_what_it_saw(serve, load, mode):
    server = serve(observation=mode)
    environment, config = load(eval_goals=50, catalogue={"products": 100}, observation=mode)
    agent, expert = environment.make(config), environment.expert(config)
    text, info = agent.reset(0, {"split": "eval"})
    page = ask(server)[1]
    over = False
    while not over:
        assert observation(page) == text
        assert buttons(page) == info["admissible"]
        action = expert.action(agent)
        text, _, over, _, info = agent.step(action)
        page = act(server, action=action)
    assert "Your score (min 0.0, max 1.0)" in page
    assert ">1.0<" in page
    assert "Another goal" in page
    # nothing more happens once it is over, but another goal can be had
    assert act(server, action="click[ back to search ]") == page
    assert ask(server, "POST", "/reset", token=server.token)[0] == 303
    assert observation(ask(server)[1]) == agent.reset(1, {"split": "eval"})[0]


class Scripted:
    """Does what it is told, and says so in markup."""

    def __init__(self, actions):
        self.actions = actions

    def act(self, env, observation, turns):
        assert observation.admissible is None or self.actions[len(turns)] in observation.admissible
        return Move(self.actions[len(turns)], f"<think> {HOSTILE} </think>")


def test_a_person_watches_a_policy_a_turn_at_a_time_and_cannot_meddle(serve, load):
    environment, config = load(eval_goals=50, catalogue={"products": 100})
    played = play(environment.make(config), ExpertPolicy(environment.expert(config)), seed=0, split="eval")
    server = serve(Scripted([turn.move.action for turn in played.turns]))
    page = ask(server)[1]
    for turn in played.turns:
        assert observation(page) == turn.observation
        assert act(server, action=turn.move.action) == page
        assert all("disabled" in button for button in re.findall(r'<button name="action"[^>]*>', page))
        assert ask(server, "POST", "/agent", token=server.token)[0] == 303
        page = ask(server)[1]
        assert HOSTILE in unescape(re.search(r'<pre id="move">(.*?)</pre>', page)[1])
        assert "<script" not in page
    assert "The episode is over" in page
    assert 'id="agent"' not in page


def test_free_search_is_a_text_field(serve):
    server = serve(search="free", observation="text")
    page = ask(server)[1]
    assert 'name="query"' in page
    assert buttons(page) == []
    assert "Page 1 (Total results: " in act(server, query="lamp or ] mug")


def test_whatever_a_product_or_a_visitor_says_is_escaped(serve):
    server = serve(search="free", observation="text_rich")
    # a copy: the shop belongs to the whole process
    visit, shop = server.env.visit, copy(server.env.shop)
    hostile = [replace(product, title=HOSTILE, options={HOSTILE: (HOSTILE,)}) for product in shop.products]
    shop.products = tuple(hostile)
    server.env._shop = shop
    visit.goal = replace(visit.goal, instruction=HOSTILE)
    for page in (
        act(server, action="nothing"),
        act(server, query=f"lamp {HOSTILE}"),
        act(server, action=f"click[{shop.products[visit.hits[0]].asin}]"),
        act(server, action=f"click[{HOSTILE}]"),
    ):
        assert "<script" not in page
        assert "<b>" not in page
        assert HOSTILE in observation(page)
    assert visit.chosen == {HOSTILE: HOSTILE}


@pytest.mark.parametrize(
    ("method", "path", "form", "host", "status"),
    [
        ("GET", "/nowhere", {}, None, 404),
        ("GET", "/", {}, "evil.example", 403),
        ("POST", "/step", {"action": "x"}, None, 403),
        ("POST", "/step", {"action": "x", "token": "guess"}, None, 403),
        ("POST", "/step", {"action": "x" * 20_000, "token": "guess"}, None, 413),
        ("POST", "/reset", {"token": "guess"}, "evil.example:80", 403),
    ],
)
def test_strange_requests_are_refused(serve, method, path, form, host, status):
    server = serve()
    before = ask(server)[1]
    assert ask(server, method, path, host, **form)[0] == status
    assert ask(server)[1] == before
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_the_page_and_runs_nothing_from_it(serve, tmp_path):
    server = serve(search="free", observation="text")
    server.env.visit.goal = replace(server.env.visit.goal, instruction=HOSTILE)
    act(server, query="lamp")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    shown = subprocess.run(
        [*command, "--dump-dom", server.url], check=True, stdout=subprocess.PIPE, text=True, timeout=240
    ).stdout
    assert "<title>WebShop</title>" in shown
    assert "Total results: " in shown
    assert "Next &gt;" in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("policy", ["human", "expert"])
def test_the_command_opens_a_shop_that_a_browser_shows(policy, tmp_path):
    shop = ["webshop", "catalogue.products=100", "eval_goals=50", "--policy", policy, "--browser"]
    command = [sys.executable, "-c", "from arena.cli import main; main()", "play", *shop]
    # what a script starts in the background ignores Ctrl-C, and so do its children
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as playing:
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/", playing.stdout.readline())[0]
            browser = [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path}",
            ]
            shown = subprocess.run(
                [*browser, "--dump-dom", url], check=True, stdout=subprocess.PIPE, text=True, timeout=240
            ).stdout
            playing.send_signal(signal.SIGINT)
            assert playing.wait(30) == 0
        finally:
            playing.kill()
    assert "<title>WebShop</title>" in shown
    assert ("Let the agent act" in shown) == (policy == "expert")
    assert 'name="action"' in shown
