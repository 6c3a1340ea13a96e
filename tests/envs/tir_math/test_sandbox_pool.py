"""What a snippet's author is told: output, how it ended, sessions."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import pairwise

import pytest

from envs.tir_math.sandbox import launch
from envs.tir_math.sandbox.confinement import ARCHITECTURES, filter_program
from envs.tir_math.sandbox.launch import SandboxUnavailableError, bubblewrap, command
from envs.tir_math.sandbox.limits import Finished, Limits, Snippet
from envs.tir_math.sandbox.pool import SandboxPool, default_workers, shared_pool
from envs.tir_math.sandbox.readiness import sandbox_problems

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def run():
    with SandboxPool(Limits(cpu_seconds=2, wall_seconds=10), workers=2) as pool:

        def run(*codes, before=()):
            finished = pool.run([Snippet(code, tuple(before)) for code in codes])
            return finished if len(codes) > 1 else finished[0]

        yield run


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "output", "ending"),
    [
        ("", "", "done"),
        ("1 + 1", "2\n", "done"),
        ("x = 3", "", "done"),
        ("print('a')\n'b'", "a\n'b'\n", "done"),
        ("None", "", "done"),
        ("for i in range(2):\n    i", "", "done"),
        ("def f():\n    return 7\n\nf()", "7\n", "done"),
        ("print('only this')\nexit()\nprint('not this')", "only this\n", "done"),
        ("import sys; sys.exit('why')", "", "raised"),
        ("print('before')\n1 / 0", "before\nTraceback", "raised"),
        ("x = (", "  File", "raised"),
        ("import sys; print('o'); print('e', file=sys.stderr); print('o')", "o\ne\no\n", "done"),
        ("import os; os.system; print(__name__)", "__main__\n", "done"),
        ("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__", "'A'\n", "done"),
        ("print('π')\n'\\ud800'", "π\n'\\ud800'\n", "done"),
        ("print('\\ud800')", "\\ud800\n", "done"),
        ("open('note', 'w').write('text')\nopen('/tmp/note').read()", "'text'\n", "done"),
    ],
)
def test_output_is_what_a_notebook_shows(run, code, output, ending):
    finished = run(code)
    assert finished.ending == ending
    assert finished.output.startswith(output)
    assert ending != "done" or finished.output == output


@needs_bubblewrap
def test_a_traceback_shows_the_snippet_only():
    with SandboxPool(Limits(), workers=1) as pool:
        (finished,) = pool.run([Snippet("def f(n):\n    return 1 / n\nf(0)")])
    lines = finished.output.splitlines()
    assert [line.strip() for line in lines if "File" in line] == [
        'File "<snippet>", line 3, in <module>',
        'File "<snippet>", line 2, in f',
    ]
    assert "    return 1 / n" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


@needs_bubblewrap
def test_results_come_in_the_order_of_the_snippets(run):
    finished = run(*(f"import time; time.sleep({0.05 * (n % 3)}); print({n})" for n in range(9)))
    assert [result.output for result in finished] == [f"{n}\n" for n in range(9)]


@needs_bubblewrap
def test_snippets_start_afresh(run):
    outputs = run("x = 1", "'x' in globals()", "import math; math.tau = 0", "import math; round(math.tau, 2)")
    assert [finished.output for finished in outputs] == ["", "False\n", "", "6.28\n"]


@needs_bubblewrap
def test_a_session_goes_on_where_it_was(run):
    before = [
        "import math\nx = 4\nprint('said before')",
        "x += 1\n1 / 0\nx += 100",
        "def root(n): return n ** 0.5",
    ]
    assert run("x, root(x * 5)", before=before) == Finished("(5, 5.0)\n", "done", pytest.approx(0, abs=2))
    assert run("y", before=["y = 1", "del y"]).ending == "raised"
    # an earlier snippet cannot write into the output of the present one
    assert (
        run(
            "1", before=["import os, sys\nsys.stdout.write('a'); os.write(1, b'b'); os.write(2, b'c')"]
        ).output
        == "1\n"
    )


@needs_bubblewrap
def test_chance_repeats_itself(run):
    outputs = {finished.output for finished in run(*["import random\nrandom.random(), hash('a')"] * 4)}
    assert len(outputs) == 1


@needs_bubblewrap
def test_limits_end_a_snippet_and_keep_what_it_said():
    limits = Limits(cpu_seconds=0.2, wall_seconds=0.6, output_kb=1, memory_mb=128)
    with SandboxPool(limits, workers=1) as pool:
        busy, asleep, loud, hungry = pool.run(
            [
                Snippet("print('start')\nwhile True: pass"),
                Snippet("print('start')\nimport time\ntime.sleep(60)"),
                Snippet("print('a' * 5000)"),
                Snippet("print('start')\nbytes(1 << 30)"),
            ]
        )
    assert (busy.output, asleep.output) == ("start\n", "start\n")
    assert busy.ending in ("cpu", "wall")  # a loaded machine gives it too little CPU to reach that limit
    assert asleep.ending == "wall"
    assert (loud.ending, loud.output) == ("output", "a" * 1024)
    assert hungry.ending == "raised"
    assert hungry.output.endswith("MemoryError\n")


@needs_bubblewrap
def test_packages_are_there_when_asked_for_and_not_otherwise(run):
    pytest.importorskip("sympy")
    assert "ModuleNotFoundError" in run("import sympy").output
    assert "ModuleNotFoundError" in run("import pytest").output
    with SandboxPool(Limits(), ["sympy"], warm_up="import sympy\nsympy.warm = True", workers=1) as pool:
        solved, listed = pool.run(
            [
                Snippet("from sympy import *\nx = symbols('x')\nsolve(x**2 - 5*x + 6)"),
                Snippet("import os, sympy\nsorted(os.listdir('/packages')), sympy.warm"),
            ]
        )
    assert solved.output == "[2, 3]\n"
    assert all(f"'{name}'" in listed.output for name in ("mpmath", "sympy"))
    assert "'pytest'" not in listed.output
    assert "pytest" not in listed.output
    assert listed.output.endswith("True)\n")


@needs_bubblewrap
def test_nothing_is_started_for_nothing():
    pool = SandboxPool(Limits(), ["no-such-package"])
    assert pool.run([]) == []
    with pytest.raises(SandboxUnavailableError, match="pip install no-such-package"):
        pool.run([Snippet("1")])
    # and it is still usable after a failed start
    with pytest.raises(SandboxUnavailableError):
        pool.run([Snippet("1")])
    pool.close()
    pool.close()


@needs_bubblewrap
def test_a_pool_can_be_used_after_closing():
    pool = SandboxPool(Limits(), workers=1)
    for _ in range(2):
        assert pool.run([Snippet("1")])[0].output == "1\n"
        pool.close()


def test_without_bubblewrap_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailableError, match="apt-get install bubblewrap"):
        bubblewrap()
    assert "apt-get install bubblewrap" in sandbox_problems()[0]
    with pytest.raises(SandboxUnavailableError, match="apt-get install bubblewrap"):
        SandboxPool(Limits(), workers=1).run([Snippet("1")])


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailableError, match="needs Linux"):
        bubblewrap()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailableError, match="riscv64"):
        bubblewrap()


@needs_bubblewrap
def test_nothing_of_the_host_is_mounted_but_libraries_python_and_packages():
    words = command(Limits(), (), "", 9)
    sources = [before for word, before in pairwise(words) if word == "--ro-bind"]
    allowed = ("/usr/lib", "/lib", launch._executable(), str(launch.Path(launch.__file__).parent))
    prefix = launch.os.path.realpath(sys.base_prefix)
    assert all(source.startswith((*allowed, f"{prefix}/lib")) for source in sources), sources
    assert "--bind" not in words
    assert json.loads(words[-1])["preload"] == []


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_filter_is_a_valid_program(machine):
    # every jump stays inside, the last instruction returns
    program = filter_program(machine)
    instructions = [program[place : place + 8] for place in range(0, len(program), 8)]
    for number, instruction in enumerate(instructions):
        if instruction[0] & 0x07 == 0x05:
            assert number + 1 + max(instruction[2], instruction[3]) < len(instructions)
    assert instructions[-1][0] == 0x06
    with pytest.raises(KeyError):
        filter_program("riscv64")


def test_workers_follow_the_environment(monkeypatch):
    monkeypatch.setenv("ARENA_SANDBOX_WORKERS", "3")
    assert default_workers() == 3
    monkeypatch.delenv("ARENA_SANDBOX_WORKERS")
    assert 1 <= default_workers() <= 8
    assert shared_pool(Limits()) is shared_pool(Limits())
    assert shared_pool(Limits()) is not shared_pool(Limits(processes=3))
