"""Whether the sandbox holds on this machine, tried out before a study is planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from envs.tir_math.sandbox.launch import SandboxUnavailableError, command
from envs.tir_math.sandbox.limits import Limits, Snippet

_NAMESPACES = (
    "the kernel or the container forbids what it needs; for a container as root: `docker run "
    "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt apparmor=unconfined`; for an ordinary user: "
    "user namespaces have to be allowed (`sysctl kernel.unprivileged_userns_clone=1` on Debian, "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu)"
)
_PROCESSES = 4
_PROBE = f"""
import os, time
held = []
try:
    while len(held) < {_PROCESSES}:
        child = os.fork()
        if not child:
            time.sleep(60)
        held.append(child)
except BlockingIOError:
    print(sorted(os.listdir("/")), len(held))
"""


def sandbox_problems(packages: Sequence[str] = ()) -> list[str]:
    """Why snippets that import these distributions cannot run here, each with its remedy; empty if they can.

    Starts a worker and runs a snippet, once per process.
    """
    try:
        command(Limits(), packages, "", 0)
    except SandboxUnavailableError as error:
        return [str(error)]
    return list(_probe())


@lru_cache(maxsize=1)
def _probe() -> tuple[str, ...]:
    from envs.tir_math.sandbox.pool import SandboxPool
    from envs.tir_math.sandbox.process import SandboxError

    try:
        with SandboxPool(Limits(processes=_PROCESSES), workers=1) as pool:
            (finished,) = pool.run([Snippet(_PROBE)])
    except SandboxError as error:
        return (f"{error}: {_NAMESPACES}",)
    if finished.ending != "done" or f" {_PROCESSES - 1}" not in finished.output:
        return (
            "the sandbox does not limit the processes of a snippet here (Linux 5.14 or newer is needed): "
            f"{finished.ending}, {finished.output.strip()!r}",
        )
    return ()
