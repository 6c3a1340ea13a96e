"""The command line that puts a worker behind bubblewrap, and why there may be none on this machine."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from envs.tir_math.sandbox.limits import Limits

INSTALL = "install it: `apt-get install bubblewrap` (Debian, Ubuntu), `dnf install bubblewrap` (Fedora)"
_CODE, _PACKAGES = "/sandbox", "/packages"
_INSIDE = ("worker", "confinement")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_USERS = range(20_000, 60_000)
"""Where root's workers take the user of their snippets from: no system or login accounts."""
_OWN_PROCESSES = 2
"""bubblewrap's and the worker's, which count where snippets run as the same user."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SandboxUnavailableError(RuntimeError):
    """There is no sandbox on this machine; the message says why and what to do."""


def bubblewrap() -> str:
    """Path of `bwrap`. Raises SandboxUnavailableError where it cannot be."""
    if sys.platform != "linux":
        raise SandboxUnavailableError(
            f"the Python sandbox needs Linux, this is {sys.platform}: run in a Linux container or machine"
        )
    from envs.tir_math.sandbox.confinement import ARCHITECTURES  # cannot be imported elsewhere

    if platform.machine() not in ARCHITECTURES:
        raise SandboxUnavailableError(
            f"the Python sandbox knows the system calls of {' and '.join(ARCHITECTURES)}, "
            f"not of {platform.machine()}"
        )
    if (found := shutil.which("bwrap")) is None:
        raise SandboxUnavailableError(f"bubblewrap (bwrap) is not installed; {INSTALL}")
    return found


def command(limits: Limits, packages: Sequence[str], warm_up: str, control: int) -> list[str]:
    """The command of a worker.

    packages: names of installed distributions; snippets can import them and what they require, and find them
    imported. warm_up: code that the worker runs once, so that snippets find its imports and caches. control:
    descriptor of the worker's end of the control socket.

    Raises SandboxUnavailableError where bubblewrap, or a package, is missing.
    """
    user = _user()
    wrapped = [bubblewrap(), "--die-with-parent", "--new-session", "--clearenv"]
    wrapped += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    wrapped += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    if user is None:
        wrapped += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    else:
        for right in ("SETUID", "SETGID", "KILL"):
            wrapped += ["--cap-add", f"CAP_{right}"]
    places = {**_libraries(), **_interpreter()}
    places |= {f"{_PACKAGES}/{path.name}": ("--ro-bind", str(path)) for path in _files(packages)}
    for name in _INSIDE:
        source = Path(__file__).with_name(f"{name}.py")
        places[f"{_CODE}/{_module(name, '/')}.py"] = ("--ro-bind", str(source))
    places |= {f"/dev/{device}": ("--dev-bind", f"/dev/{device}") for device in _DEVICES}
    # bubblewrap makes missing parents for their owner only
    for parent in sorted({str(parent) for place in places for parent in Path(place).parents}):
        wrapped += ["--perms", "0755", "--dir", parent]
    for place, how in places.items():
        wrapped += [*how, place]
    wrapped += ["--dir", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
    for name, value in _environment().items():
        wrapped += ["--setenv", name, value]
    settings = {
        "control": control,
        "packages": _PACKAGES,
        "preload": [module for package in packages for module in _modules(package)],
        "warm_up": warm_up,
        "wall_seconds": limits.wall_seconds,
        "cage": _cage(limits, user),
    }
    return [
        *wrapped,
        _executable(),
        "-P",
        "-s",
        "-S",
        "-B",
        "-m",
        _module("worker", "."),
        json.dumps(settings),
    ]


def _module(name: str, separator: str) -> str:
    return __name__.rpartition(".")[0].replace(".", separator) + separator + name


def _cage(limits: Limits, user: int | None) -> Mapping[str, Any]:
    return {
        "user": user,
        # the host kills at the exact limit, this catches what hides from it
        "cpu_seconds": math.ceil(limits.cpu_seconds) + 1,
        "memory_bytes": limits.memory_mb << 20,
        "processes": limits.processes + (_OWN_PROCESSES if user is None else 0),
        "file_bytes": limits.files_mb << 20,
    }


def _user() -> int | None:
    """As root: the user of this worker's snippets. None: this user, in a namespace of the worker's own.

    The kernel does not limit the processes of the real root, whatever capabilities they lack.
    """
    if os.geteuid() != 0:
        return None
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = map(int, line.split())
        if first <= _USERS.start and _USERS.stop <= first + count:
            return random.SystemRandom().choice(_USERS)
    return None


_Places = dict[str, tuple[str, ...]]
"""Path inside the sandbox -> bubblewrap's option for it, without that path."""


def _libraries() -> _Places:
    """The system's shared libraries, and nothing else of it."""
    places: _Places = {}
    for path in (Path("/usr/lib"), Path("/usr/lib64"), Path("/lib"), Path("/lib64")):
        if path.is_symlink():
            places[str(path)] = ("--symlink", os.readlink(path))
        elif path.is_dir():
            places[str(path)] = ("--ro-bind", str(path))
    return places


def _executable() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _interpreter() -> _Places:
    """The Python that runs us, without the packages installed in it."""
    prefix = Path(os.path.realpath(sys.base_prefix))
    places: _Places = {_executable(): ("--ro-bind", _executable())}
    for name in ("lib", "lib64"):
        folder = prefix / name
        if folder.is_dir() and not folder.is_symlink() and prefix != Path("/usr"):
            places[str(folder)] = ("--ro-bind", str(folder))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = prefix / "lib" / version / "site-packages"
    if installed.is_dir():
        places[str(installed)] = ("--tmpfs", str(installed), "--remount-ro")
    return places


def _environment() -> Mapping[str, str]:
    return {
        "PYTHONPATH": _CODE,
        "HOME": "/tmp",
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": str(Path(os.path.realpath(sys.base_prefix)) / "lib"),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _files(packages: Sequence[str]) -> list[Path]:
    """Folders and modules of distributions and of all they require."""
    waiting, seen, files = list(packages), set(), dict[Path, None]()
    while waiting:
        name = waiting.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            if name in packages:
                raise SandboxUnavailableError(
                    f"the Python package {name} is not installed; install it: `pip install {name}`"
                ) from error
            continue  # a requirement of another platform or version
        files.update(dict.fromkeys(_top_level(distribution)))
        for requirement in distribution.requires or ():
            match = _REQUIREMENT.match(requirement)
            if match and "extra ==" not in requirement:
                waiting.append(match[0])
    return list(files)


def _top_level(distribution: metadata.Distribution) -> list[Path]:
    """What a distribution puts into site-packages; its metadata too, which some packages read themselves."""
    first = dict.fromkeys(file.parts[0] for file in distribution.files or () if file.parts)
    paths = [Path(str(distribution.locate_file(name))) for name in first if name not in ("..", "__pycache__")]
    return [path for path in paths if path.suffix != ".pth" and path.exists()]


def _modules(package: str) -> list[str]:
    return [
        path.stem
        for path in _top_level(metadata.distribution(package))
        if (path / "__init__.py").exists() or path.suffix == ".py"
    ]
