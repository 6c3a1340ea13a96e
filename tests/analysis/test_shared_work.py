"""Work shared by processes is done once each, whatever becomes of those that help."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from analysis.shared_work import SharedWork, useful_helpers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def note(folder: Path, number: int) -> tuple[int, int]:
    """Leaves a mark, slowly enough that helpers get their turn."""
    with (folder / str(number)).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.02)
    return number, os.getpid()


def pieces(folder: Path, count: int) -> list[Callable[[], tuple[int, int]]]:
    return [partial(note, folder, number) for number in range(count)]


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_every_piece_is_done_once_and_results_keep_their_order(tmp_path: Path, helpers: int) -> None:
    told: list[tuple[int, int]] = []
    with SharedWork(pieces(tmp_path, 30), helpers) as work:
        results = work.finish(lambda done, count: told.append((done, count)))
    assert [number for number, _ in results] == list(range(30))
    assert all(len((tmp_path / str(number)).read_text().split()) == 1 for number in range(30))
    assert len({process for _, process in results} - {os.getpid()}) == helpers
    assert told[-1] == (30, 30)


def test_helpers_begin_at_once(tmp_path: Path) -> None:
    with SharedWork(pieces(tmp_path, 4), 1) as work:
        deadline = time.monotonic() + 30
        while len(list(tmp_path.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.getpid() not in {process for _, process in work.finish()}


def killed(main: int) -> int:
    """Ends a helper as the kernel does where memory runs out; the main process lives through it."""
    if os.getpid() != main:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def test_what_a_killed_helper_had_taken_is_done_here(tmp_path: Path) -> None:
    first: list[Callable[[], int]] = [partial(killed, os.getpid())]
    with SharedWork([*first, *(partial(int, str(number)) for number in range(2, 9))], 1) as work:
        time.sleep(0.2)
        assert work.finish() == [1, 2, 3, 4, 5, 6, 7, 8]


def failing(number: int) -> int:
    if number == 3:
        raise ValueError("piece 3 cannot be drawn")
    return number


@pytest.mark.parametrize("helpers", [0, 2])
def test_the_error_of_a_piece_is_raised_here(helpers: int, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(ValueError, match="piece 3 cannot"),
        SharedWork([partial(failing, number) for number in range(6)], helpers) as work,
    ):
        work.finish()
    assert capfd.readouterr().err == ""


def test_helpers_end_with_the_work(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with SharedWork(pieces(tmp_path, 2000), 2):
        pass
    assert len(list(tmp_path.iterdir())) < 100
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_helpers_die_with_the_main_process(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from functools import partial; from analysis.shared_work import SharedWork\n"
        "def sleep(number):\n"
        "    if os.getpid() != main: open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "main = os.getpid(); SharedWork([partial(sleep, number) for number in range(3)], 1).finish()\n"
    )
    mark = tmp_path / "helper"
    with subprocess.Popen([sys.executable, "-c", code, str(mark)]) as main:
        deadline = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        main.kill()
    helper = int(mark.read_text())
    while psutil.pid_exists(helper) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(helper) or psutil.Process(helper).status() == psutil.STATUS_ZOMBIE


def test_there_is_a_helper_a_core_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, helpers in ((1, 0), (2, 2), (64, 8)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, count=cores: set(range(count)))
        assert useful_helpers() == helpers
