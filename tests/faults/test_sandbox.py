"""Hostile programs against the Python sandbox: each is contained, and the pool still answers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hostile_programs import DOCUMENT, PROGRAMS, document

from envs.tir_math.sandbox.limits import Limits, Snippet
from envs.tir_math.sandbox.pool import SandboxPool
from envs.tir_math.sandbox.readiness import sandbox_problems
from envs.tir_math.sandbox.usage import descendants

ROOT = Path(__file__).parents[2]
LIMITS = Limits(cpu_seconds=0.4, wall_seconds=1.2, memory_mb=192, processes=8, output_kb=64, files_mb=4)
ANSWER = Snippet("print(6 * 7)")


@pytest.fixture(scope="module", autouse=True)
def needs_a_sandbox():
    # a sandbox that starts but does not hold is a failure, not a reason to skip
    for problem in sandbox_problems():
        if "not installed" in problem or "did not start" in problem or "needs Linux" in problem:
            pytest.skip(problem)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """What there is to find outside: a file, a port, an abstract socket, an environment variable."""
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("ESCAPED")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        patch.setenv("ARENA_SECRET", "ESCAPED")
        with socket.socket(socket.AF_UNIX) as abstract:
            name = f"arena-{os.getpid()}"
            abstract.bind(f"\0{name}")
            abstract.listen()
            yield {"SECRET": str(secret), "PORT": str(server.getsockname()[1]), "ABSTRACT": name}


@pytest.fixture(scope="module")
def pool(host):
    with SandboxPool(LIMITS, workers=1) as pool:
        assert pool.run([ANSWER])[0].output == "42\n"
        yield pool


@pytest.fixture(scope="module")
def patient_pool(host):
    """For what memory is to stop: where the machine hands pages out slowly, time would be first."""
    with SandboxPool(LIMITS.model_copy(update={"cpu_seconds": 5.0, "wall_seconds": 15.0}), workers=1) as pool:
        assert pool.run([ANSWER])[0].output == "42\n"
        yield pool


def escaped(finished):
    # a traceback shows the program's lines, indented
    return re.findall(r"^ESCAPED.*", finished.output, re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_is_contained_and_the_pool_still_answers(pool, patient_pool, host, program):
    pool = patient_pool if "memory" in program.endings and "cpu" not in program.endings else pool
    before = set(descendants(os.getpid()))
    code = program.code
    for name, value in host.items():
        code = code.replace(name, value)
    (finished,) = pool.run([Snippet(code)])
    assert not escaped(finished)
    assert finished.ending in program.endings, finished
    assert re.search(program.shows, finished.output, re.MULTILINE), finished.output
    assert len(finished.output) <= LIMITS.output_kb << 10
    # the same worker, without a process more, none replaced
    assert set(descendants(os.getpid())) == before
    if program.then:
        (later,) = pool.run([Snippet(program.then)])
        assert later.ending == "done", later.output
        assert not escaped(later)
    assert pool.run([ANSWER])[0].output == "42\n"


QUICK = "secret or kills_parent or writes_everywhere or becomes_root or leaves_data or fork_bomb or daemon"


@pytest.mark.skipif(os.geteuid() != 0, reason="all of this ran as an ordinary user")
def test_holds_for_an_ordinary_user_too():
    # root and others are confined in different ways; the outer bubblewrap only makes our files readable
    visible = [*dict.fromkeys((os.path.realpath(sys.base_prefix), sys.prefix, str(ROOT)))]
    outer = ["bwrap", "--cap-add", "ALL", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in ("bin", "lib", "lib64"):
        outer += ["--symlink", f"usr/{name}", f"/{name}"]
    outer += ["--proc", "/proc", "--dev-bind", "/dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"]
    parents = sorted({str(parent) for path in visible for parent in Path(path).parents})
    outer += [word for parent in parents for word in ("--perms", "0755", "--dir", parent)]
    outer += [word for path in visible for word in ("--ro-bind", path, path)]
    user = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]
    tests = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "-k", QUICK, __file__]
    finished = subprocess.run(
        [*outer, "--chdir", str(ROOT), *user, sys.executable, "-B", *tests],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": "/tmp", "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis"},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert " skipped" not in finished.stdout, finished.stdout


def test_hostile_neighbours_do_not_disturb_a_batch():
    hostile = [Snippet(program.code) for program in PROGRAMS if program.name in ("fork_bomb", "huge_output")]
    with SandboxPool(LIMITS, workers=2) as pool:
        results = pool.run([*hostile, *(Snippet(f"print({n} ** 2)") for n in range(8))])
    assert [result.output for result in results[2:]] == [f"{n**2}\n" for n in range(8)]


def test_a_worker_that_dies_is_replaced_and_its_snippet_run_again():
    with SandboxPool(LIMITS, workers=1) as pool:
        pool.run([ANSWER])
        (worker,) = pool._idle

        def kill_soon():
            time.sleep(0.3)
            worker._process.kill()

        thread = threading.Thread(target=kill_soon)
        thread.start()
        (finished,) = pool.run([Snippet("import time\ntime.sleep(0.6)\nprint('twice')")])
        thread.join()
        assert (finished.output, finished.ending) == ("twice\n", "done")
        # and one that died between two snippets
        pool._idle[0]._process.kill()
        pool._idle[0]._process.wait()
        assert pool.run([ANSWER])[0].output == "42\n"


def test_closing_the_pool_ends_every_process():
    before = set(descendants(os.getpid()))
    pool = SandboxPool(LIMITS, workers=2)
    pool.run([ANSWER, ANSWER])
    assert set(descendants(os.getpid())) > before
    pool.close()
    assert set(descendants(os.getpid())) == before


def test_the_table_in_the_document_is_that_of_these_programs():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document(text) == text, "run: python tests/faults/hostile_programs.py"
    assert len(PROGRAMS) >= 30
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
