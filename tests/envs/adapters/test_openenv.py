"""A client of served environments, and ours served: real servers on this machine."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("openenv", reason="needs the extra `openenv`")

import uvicorn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from envs.adapters.openenv_server import application
from envs.registry import load_environment
from tests.envs.adapters.libraries import Broken

SERVED = {"name": "served", "environment": "envs.adapters.openenv.OPENENV", "max_turns": 9}


@contextmanager
def serving(environment, config):
    """The address of a server in a thread."""
    server = uvicorn.Server(
        uvicorn.Config(application(environment, config), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def sokoban(configuration):
    environment, config = load_environment(configuration("sokoban"))
    with serving(environment, config) as url:
        yield url, environment, config


def client(url, **changes):
    environment, config = load_environment(SERVED | {"url": url} | changes)
    assert environment.problems(config) == []
    return environment, config


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_served_environment_plays_as_it_does_here(sokoban, split):
    url, environment, config = sokoban
    adapter, adapted = client(url, train_seeds=config.train_levels, anchors=True)
    here, there = environment.make(config), adapter.make(adapted)
    expert = environment.expert(config)
    for seed in range(3):
        text, info = here.reset(seed if split == "train" else adapted.train_seeds + seed, {"split": split})
        far, told = there.reset(seed, {"split": split})
        assert far == text
        over = False
        while not over:
            assert told["admissible"] == list(info["admissible"])
            assert told["anchor"] == info["anchor"]
            action = expert.action(here)
            text, reward, terminated, truncated, info = here.step(action)
            far, earned, ended, cut, told = there.step(action)
            assert (far, earned, ended, cut) == (text, pytest.approx(reward), terminated, truncated)
            assert told["success"] == info["success"]
            over = terminated or truncated
        assert told["success"]
    there.close()


def test_the_turn_limit_of_the_server_truncates(sokoban):
    url, _, config = sokoban
    adapter, adapted = client(url, max_turns=50)
    env = adapter.make(adapted)
    env.reset(0)
    ended = [env.step(("up", "down")[turn % 2])[2:4] for turn in range(config.max_turns)]
    assert ended == [(False, False)] * (config.max_turns - 1) + [(False, True)]
    env.close()


def test_sessions_play_side_by_side(sokoban):
    url, environment, config = sokoban
    adapter, adapted = client(url, train_seeds=config.train_levels)
    pool, here = adapter.make_pool(adapted), environment.make_pool(config)
    seeds = list(range(20))
    assert [seen.text for seen in pool.reset(seeds, "train")] == [
        seen.text for seen in here.reset(seeds, "train")
    ]
    order = seeds[::-1]
    assert [out.observation.text for out in pool.step(order, ["left"] * 20)] == [
        out.observation.text for out in here.step(order, ["left"] * 20)
    ]
    pool.close()


def test_the_identity_knows_what_is_served_and_not_where(sokoban):
    url, environment, config = sokoban
    adapter, adapted = client(url)
    assert adapter.data_id(adapted).endswith(f"sokoban {environment.data_id(config)}")
    from arena.identity import section_text

    elsewhere = adapted.model_copy(update={"url": "http://127.0.0.1:1"})
    texts = {section_text("env", one.model_dump(mode="json")) for one in (adapted, elsewhere)}
    assert len(texts) == 1


def test_only_this_machine_is_answered(sokoban):
    url, _, _ = sokoban
    port = url.rpartition(":")[2]
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{url}/schema", headers=headers))
        assert refused.value.code in (400, 403)
    with pytest.raises(InvalidStatus):
        connect(f"ws://127.0.0.1:{port}/ws", additional_headers={"Origin": "https://evil.example"})
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers={"Origin": f"http://localhost:{port}"}):
        pass
    others = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for address in set(others) - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, int(port)), 5)


def test_no_server_is_a_problem_with_its_remedy():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment, config = load_environment(SERVED | {"url": f"http://127.0.0.1:{free.getsockname()[1]}"})
    (problem,) = environment.problems(config)
    assert "no OpenEnv server answers" in problem
    assert "start it first" in problem
    assert environment.data_id(config).endswith("missing")


def test_a_field_that_is_not_there_is_told(sokoban):
    url, _, _ = sokoban
    environment, config = load_environment(SERVED | {"url": url, "action": "move"})
    (problem,) = environment.problems(config)
    assert "it has no field 'move'" in problem
    assert "text" in problem


def test_the_command_serves_an_environment_until_interrupted():
    command = [sys.executable, "-c", "from arena.cli import main; main()", "serve", "sokoban", "max_turns=7"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as serving:
        url = re.search(r"http://127\.0\.0\.1:\d+", serving.stdout.readline())[0]
        adapter, adapted = client(url)
        env = adapter.make(adapted)
        env.reset(0)
        assert [env.step("up")[3] for _ in range(7)] == [False] * 6 + [True]
        env.close()
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0


@pytest.fixture
def echo(tmp_path):
    """The environment that the library itself makes for a beginner, served by its own code."""
    made = "from openenv.cli.__main__ import main; main()"
    subprocess.run([sys.executable, "-c", made, "init", "echo_env"], cwd=tmp_path, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port), "--log-level", "warning"],
        cwd=tmp_path / "echo_env",
    )
    url = f"http://127.0.0.1:{port}"
    while server.poll() is None:
        try:
            urlopen(f"{url}/health")
            break
        except OSError:
            time.sleep(0.1)
    yield url
    server.terminate()
    server.wait()


def test_the_librarys_own_environment_is_played(echo):
    environment, config = client(echo, success_reward=2.0)
    env = environment.make(config)
    text, info = env.reset(0)
    assert text == "Echo Env environment ready!"
    assert info["admissible"] is None
    assert env.step("hello")[:3] == ("hello", pytest.approx(0.5), False)
    for _ in range(config.max_turns - 1):
        text, _, terminated, truncated, _ = env.step("hello again")
    assert (text, terminated, truncated) == ("hello again", False, True)
    env.close()


def test_an_error_in_an_environment_is_told_to_the_client(configuration):
    _, config = load_environment(configuration("sokoban"))

    class Environment:
        def make(self, config):
            return Broken()

        def task(self, config):
            return "nothing"

    with serving(Environment(), config) as url:
        adapter, adapted = load_environment(SERVED | {"url": url})
        assert "does not start" in adapter.problems(adapted)[0]
