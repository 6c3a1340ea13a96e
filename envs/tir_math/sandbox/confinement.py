"""What a snippet's process gives up before it runs anything: runs inside the sandbox, standard library only.

A worker keeps CAP_SYS_ADMIN (and, as root, the right to change its user) because it makes a new cage for each
snippet. Everything here happens in the forked child, in this order: a session of its own, new mount and IPC
namespaces, an empty /tmp, resource limits, another user, no capabilities, a filter on system calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from dataclasses import dataclass

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_ANY_NAMESPACE = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)
_MS_NOSUID, _MS_NODEV = 2, 4
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Cage:
    """The limits of one snippet.

    user  the uid and gid it runs as, None to keep the worker's (which then is nobody outside its namespace)
    """

    user: int | None
    cpu_seconds: int
    memory_bytes: int
    processes: int
    file_bytes: int
    files: int = 1024
    descriptors: int = 64


def confine(cage: Cage) -> None:
    """Lock this process in; there is no way back. Raises OSError when the kernel refuses a step."""
    os.setsid()  # signals to its process group would reach the worker, whose group it is born into
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    options = f"size={cage.file_bytes},nr_inodes={cage.files},mode=1777".encode()
    _call("mount", b"tmpfs", b"/tmp", b"tmpfs", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), options)
    os.chdir("/tmp")
    for limit, value in (
        (resource.RLIMIT_AS, cage.memory_bytes),
        (resource.RLIMIT_CPU, cage.cpu_seconds),
        (resource.RLIMIT_NPROC, cage.processes),
        (resource.RLIMIT_FSIZE, cage.file_bytes),
        (resource.RLIMIT_NOFILE, cage.descriptors),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (value, value))
    if cage.user is not None:
        os.setgroups([])
        os.setresgid(cage.user, cage.user, cage.user)
        os.setresuid(cage.user, cage.user, cage.user)
    _drop_capabilities()
    _filter_system_calls()


def unshare(namespaces: int) -> None:
    """Enter new namespaces. (`os.unshare` came with Python 3.12.)"""
    _call("unshare", namespaces)


def set_namespace(descriptor: int, kind: int) -> None:
    """Enter the namespace of a kind that a process (pidfd) is in. (`os.setns` came with Python 3.12.)"""
    _call("setns", descriptor, kind)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _prctl(operation: int, *arguments: object) -> None:
    padded = [*arguments, 0, 0, 0, 0][:4]
    _call("prctl", operation, *(a if not isinstance(a, int) else ctypes.c_ulong(a) for a in padded))


def _drop_capabilities() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _call("capset", header, bytes(24))


_DENIED = {
    # name: (x86_64, aarch64); errors as for an ordinary user without the right
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # key rings outlive processes: a place to leave data for a later snippet
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory that no limit counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # new namespaces and mounts: capabilities over them, and much kernel code
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # kernel interfaces with a history of holes
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHITECTURES = tuple(_AUDIT_ARCHITECTURES)
"""Machines whose system calls the filter knows."""

_AF_UNIX = 1
_X32_BIT = 0x40000000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; arguments little-endian
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def _error(number: int) -> int:
    return 0x00050000 | number


def filter_program(machine: str) -> bytes:
    """The filter for a `platform.machine()` as classic BPF instructions; KeyError for an unknown machine.

    Sockets other than AF_UNIX are refused as well: some families (AF_VSOCK) reach beyond the network
    namespace. clone3 is said not to exist, so that the C library falls back to clone, whose flags a filter
    can read.
    """
    which = ARCHITECTURES.index(machine) if machine in ARCHITECTURES else None
    if which is None:
        raise KeyError(machine)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in _DENIED.values():
        program += [(_JUMP_EQUAL, 0, 1, numbers[which]), (_RETURN, 0, 0, _error(errno.EPERM))]
    program += [
        (_JUMP_EQUAL, 0, 1, _CLONE3[which]),
        (_RETURN, 0, 0, _error(errno.ENOSYS)),
        (_JUMP_EQUAL, 0, 4, _SOCKET[which]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _error(errno.EAFNOSUPPORT)),
        (_JUMP_EQUAL, 0, 3, _CLONE[which]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _ANY_NAMESPACE),
        (_RETURN, 0, 0, _error(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _filter_system_calls() -> None:
    program = filter_program(platform.machine())
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(header))
