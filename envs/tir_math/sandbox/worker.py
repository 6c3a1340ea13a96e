"""The process inside bubblewrap that forks one child per snippet: standard library only.

It never sees a snippet or its output, only descriptors: the child reads its code and writes its output
itself. So there is nothing in the memory it inherits that belonged to another snippet. Messages on the
control socket (SOCK_SEQPACKET): the host sends `run` with two descriptors (code to read, output to write) or
`stop`; the worker says `ready` once, and after every snippet how it ended. It ends when the host closes the
socket.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib
import io
import json
import linecache
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from envs.tir_math.sandbox.confinement import CLONE_NEWPID, Cage, confine, set_namespace, unshare

CONFINED = b"\x01"
"""The first byte of every output: what follows was written in the cage."""

_FILE = "<snippet>"
_MODULES = ("fractions", "itertools", "math", "random", "re", "collections", "decimal")


def main(settings: dict[str, Any]) -> None:
    """Serve until the host closes the control socket."""
    control = socket.socket(fileno=settings["control"])
    control.set_inheritable(False)
    sys.path.remove(os.environ.pop("PYTHONPATH"))
    sys.path.append(settings["packages"])
    # `-S` keeps the site module, which would look for paths and files of the host, out; these two are missed
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    for module in (*_MODULES, *settings["preload"]):
        importlib.import_module(module)
    exec(settings["warm_up"], {})
    cage = Cage(**settings["cage"])
    # objects that exist now are never collected, so that collections in children do not copy their pages
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    here = os.pidfd_open(os.getpid())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 2)
        if not message:
            return
        if len(descriptors) == 2:  # a late `stop` has none
            report = _run(control, here, cage, settings["wall_seconds"], descriptors)
            try:
                control.send(json.dumps(report).encode())
            except (BrokenPipeError, ConnectionResetError):
                return


def _seed() -> None:
    """Let every snippet draw the same at random (a fork seeds anew): an episode can be played again."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _run(
    control: socket.socket, here: int, cage: Cage, wall_seconds: float, descriptors: Sequence[int]
) -> dict[str, Any]:
    """Fork the snippet as first process of a new namespace: when it ends, all it started ends."""
    unshare(CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        _snippet(control, cage, *descriptors)
    set_namespace(here, CLONE_NEWPID)  # or the next fork would not be the first process of its own
    for descriptor in descriptors:
        os.close(descriptor)
    handle = os.pidfd_open(child)
    deadline = time.monotonic() + wall_seconds
    stopped: str | None = None
    while True:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if stopped is None:
            poll.register(control, select.POLLIN)
        wait = max(0.0, deadline - time.monotonic()) if stopped is None else None
        ready = [descriptor for descriptor, _ in poll.poll(None if wait is None else wait * 1000 + 1)]
        if handle in ready:
            break
        stopped = "host" if ready else "wall"
        if ready:
            control.recv(16)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    os.close(handle)
    return {"status": status, "stopped": stopped, "cpu_seconds": usage.ru_utime + usage.ru_stime}


def _snippet(control: socket.socket, cage: Cage, code: int, output: int) -> NoReturn:
    """In the child: enter the cage, run the snippet, end. Exit status 0 done, 1 raised."""
    leave = os._exit
    try:
        control.close()
        null = os.open("/dev/null", os.O_RDWR)
        for target, source in ((0, null), (1, output), (2, output), (3, code)):
            os.dup2(source, target)
        os.closerange(4, 2**16)
        confine(cage)
        os.write(1, CONFINED)
        with open(3, "rb") as file:
            job = json.loads(file.read())
        leave(execute(job["code"], job["before"]))
    except BaseException as error:  # noqa: BLE001 - nothing may return into the worker's loop
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="backslashreplace"))
        leave(1)
    raise AssertionError("unreachable")


def execute(code: str, before: Sequence[str] = ()) -> int:
    """Run code as a fresh `__main__`, after the code of the same session before it; 0 done, 1 raised.

    As in a notebook, the value of a last expression is printed. What the earlier code prints or raises is
    dropped: it was shown when that code was new.
    """
    _seed()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if before:
        shown, hidden = os.dup(1), os.open("/dev/null", os.O_WRONLY)
        os.dup2(hidden, 1)
        os.dup2(hidden, 2)
        _open_output()
        for earlier in before:
            _interpret(earlier, module)
        os.dup2(shown, 1)
        os.dup2(shown, 2)
        os.close(shown)
        os.close(hidden)
    _open_output()
    return _interpret(code, module)


def _open_output() -> None:
    stream = io.TextIOWrapper(
        io.FileIO(1, "w", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )
    sys.stdout = sys.stderr = stream


def _interpret(code: str, module: types.ModuleType) -> int:
    try:
        linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
        tree = ast.parse(code, _FILE)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, _FILE, "exec"), module.__dict__)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), _FILE, "eval"), module.__dict__)
            if value is not None:
                print(repr(value))  # noqa: T201 - the snippet's own output
    except SystemExit as end:
        return 0 if end.code in (None, 0) else 1
    except BaseException as error:  # noqa: BLE001 - every way to fail is the snippet's result
        _complain(error)
        return 1
    return 0


def _complain(error: BaseException) -> None:
    """Print the traceback from the snippet's first frame on."""
    tail = error.__traceback__
    while tail is not None and tail.tb_frame.f_code.co_filename == __file__:
        tail = tail.tb_next
    if isinstance(error, SyntaxError) or tail is None or tail.tb_frame.f_code.co_filename != _FILE:
        lines = traceback.format_exception_only(error)
    else:
        lines = traceback.format_exception(type(error), error, tail)
    print("".join(lines), end="")  # noqa: T201 - the snippet's own output


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
