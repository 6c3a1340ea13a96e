"""Programs that try to break out of the Python sandbox, starve it, or spy on their neighbours.

A program prints ESCAPED when it got what it wanted. `docs/security.md` shows this list; `python
tests/faults/hostile_programs.py` writes it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- hostile programs: begin -->", "<!-- hostile programs: end -->"


@dataclass(frozen=True)
class Hostile:
    """A program, and how it has to end.

    tries, holds   what it tries and what stops it, for people
    endings        how it may end (`envs.tir_math.sandbox.limits.Ending`)
    shows          a regular expression that its output must contain
    then           a later snippet that looks for what this one left
    """

    name: str
    tries: str
    holds: str
    code: str
    endings: frozenset[str]
    shows: str = ""
    then: str = ""


PROGRAMS: list[Hostile] = []


def hostile(
    name: str, tries: str, holds: str, code: str, endings: str, shows: str = "", then: str = ""
) -> None:
    PROGRAMS.append(
        Hostile(name, tries, holds, dedent(code), frozenset(endings.split()), shows, dedent(then))
    )


# Time

hostile("busy_loop", "burns CPU for ever", "CPU limit", "while True: pass", "cpu wall")
hostile(
    "timer_storm",
    "a timer whose signals never stop",
    "CPU or wall limit, by SIGKILL",
    """
    import signal
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
    while True: pass
    """,
    "cpu wall",
)
hostile("sleep_forever", "sleeps for ever", "wall limit", "import time\ntime.sleep(1e6)", "wall")
hostile(
    "regular_expression",
    "stays in C code that never checks for signals",
    "CPU limit, by SIGKILL",
    "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "cpu wall",
)
hostile("huge_power", "computes 9**9**9", "CPU or memory limit", "9**9**9", "cpu wall raised memory")
hostile(
    "ignores_signals",
    "ignores every signal and catches every exception",
    "SIGKILL from outside cannot be ignored",
    """
    import signal
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True:
        try:
            while True: pass
        except BaseException: pass
    """,
    "cpu wall",
)
hostile(
    "stops_itself",
    "stops its processes with SIGSTOP",
    "wall limit",
    """
    import os, signal, time
    child = os.fork()
    os.kill(os.getpid(), signal.SIGSTOP)
    if child: os.waitpid(child, 0)
    time.sleep(1e6)
    """,
    "wall",
)
hostile(
    "closes_output_and_stays",
    "closes its output, so that it looks finished, and goes on",
    "the worker waits for the process, not for its output",
    "import os, time\nos.close(1); os.close(2)\ntime.sleep(1e6)",
    "wall",
)
hostile(
    "many_children_burn",
    "shares the CPU time among children",
    "CPU time is added up over all processes",
    """
    import os
    for _ in range(3): os.fork()
    while True: pass
    """,
    "cpu wall",
)

# Memory, files, output

hostile(
    "memory_bomb",
    "one huge string",
    "limit on address space",
    "text = 'a' * (4 << 30)",
    "raised",
    "MemoryError",
)
hostile(
    "memory_bomb_slow",
    "a list that grows for ever",
    "limit on address space",
    "held = []\nwhile True: held.append(bytearray(1 << 20))",
    "raised memory",
)
hostile(
    "memory_bomb_children",
    "children that each stay below the limit of a process",
    "resident memory is added up over all processes",
    """
    import os, time
    for _ in range(5):
        if not os.fork():
            held = bytearray(60 << 20)
            held[::4096] = b'x' * len(held[::4096])
            time.sleep(1e6)
    time.sleep(1e6)
    """,
    "memory wall",
)
hostile(
    "shared_mapping",
    "anonymous shared memory",
    "limit on address space",
    "import mmap\nmmap.mmap(-1, 4 << 30)",
    "raised",
    "Cannot allocate memory",
)
hostile(
    "memory_file",
    "a file that exists in memory only",
    "system call refused",
    "import os\nos.memfd_create('x')\nprint('ESCAPED')",
    "raised",
    "PermissionError",
)
hostile(
    "fills_folder",
    "fills the temporary folder",
    "size of the folder, which is gone with the snippet",
    """
    import os
    for number in range(1000):
        with open(f'/tmp/{number}', 'wb') as file:
            for _ in range(64): file.write(bytes(1 << 20))
    print('ESCAPED')
    """,
    "raised",
    "(No space left|File too large)",
    then="import os\nprint('ESCAPED' if os.listdir('/tmp') else 'empty')",
)
hostile(
    "deep_folders",
    "nests folders without end",
    "number of files in the folder",
    "import os\nwhile True: os.mkdir('deeper'); os.chdir('deeper')",
    "raised",
    "No space left",
)
hostile(
    "sparse_file",
    "a file of a terabyte that holds nothing",
    "limit on the size of files",
    "open('/tmp/sparse', 'wb').truncate(1 << 40)",
    "raised",
    "File too large",
)
hostile(
    "many_files",
    "makes more files than there may be",
    "number of files in the folder",
    "for number in range(10**5): open(f'/tmp/{number}', 'w').close()",
    "raised",
    "No space left",
)
hostile(
    "open_files",
    "opens files until there are no descriptors",
    "limit on descriptors",
    "held = [open('/dev/null') for _ in range(10**5)]",
    "raised",
    "Too many open files",
)
hostile("huge_output", "prints without end", "output limit", "while True: print('a' * 10**6)", "output")
hostile(
    "huge_output_of_child",
    "a child writes without end after its parent has finished",
    "nothing outlives the snippet",
    """
    import os
    if not os.fork():
        while True: os.write(2, b'x' * 4096)
    """,
    "done output",
)

# Processes

hostile(
    "fork_bomb",
    "forks for ever",
    "limit on processes",
    """
    import os
    while True:
        try: os.fork()
        except OSError: pass
    """,
    "cpu wall",
)
hostile(
    "fork_chain",
    "each process forks the next and ends, always on the run",
    "nothing outlives the first process, or the wall limit",
    """
    import os
    if os.fork():
        import time
        time.sleep(1e6)
    while True:
        try:
            if os.fork(): os._exit(0)
        except OSError: pass
    """,
    "cpu wall",
)
hostile(
    "thread_bomb",
    "starts threads for ever",
    "limit on processes, which counts threads",
    """
    import threading, time
    while True: threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    """,
    "raised",
    "can't start new thread",
)
hostile(
    "thread_stays",
    "leaves a thread and an exit handler running",
    "the process ends with its code",
    """
    import atexit, threading, time
    threading.Thread(target=lambda: time.sleep(1e6)).start()
    atexit.register(time.sleep, 1e6)
    print("ended")
    """,
    "done",
    "ended",
)
hostile(
    "daemon",
    "leaves a daemon behind: double fork, a session of its own",
    "the process namespace ends with the snippet",
    """
    import os, time
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.closerange(0, 64)
            time.sleep(1e6)
        os._exit(0)
    os.wait()
    print('left')
    """,
    "done",
    "left",
)
hostile(
    "kills_parent",
    "kills its parent, its process group and everything it may signal",
    "process namespace and session of its own: there is nobody else",
    """
    import os, signal
    for target in (os.getppid(), 0, -1):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try: os.kill(target, number)
            except OSError as error: print(error)
    """,
    "done died",
)
hostile(
    "kills_numbers",
    "sends SIGKILL to every process number up to 50,000",
    "process namespace",
    """
    import os, signal
    for number in range(2, 50_000):
        try:
            os.kill(number, signal.SIGKILL)
            print('ESCAPED', number)
        except OSError: pass
    """,
    "done cpu",
)
hostile(
    "kills_with_ctypes",
    "the same through the C library",
    "process namespace",
    """
    import ctypes
    libc = ctypes.CDLL(None)
    print(libc.kill(-1, 9), libc.killpg(0, 9), libc.tgkill(1, 1, 0))
    """,
    "done died",
)
hostile(
    "executes_python",
    "replaces itself with a fresh interpreter",
    "limits and the filter survive it",
    """
    import os, sys
    code = "try: socket.socket(); print('ESCAPED')\\nexcept OSError as error: print(error)"
    os.execv(sys.executable, [sys.executable, '-S', '-c', 'import socket\\n' + code])
    """,
    "done",
    "not supported",
)
hostile(
    "shell",
    "runs a shell",
    "there is none inside",
    """
    import os, subprocess
    print(os.system('echo ESCAPED'))
    subprocess.run(['sh', '-c', 'echo ESCAPED'])
    """,
    "raised",
    "FileNotFoundError",
)

# Crashes

hostile(
    "deep_recursion", "recurses for ever", "Python's limit", "def f(): f()\nf()", "raised", "RecursionError"
)
hostile(
    "c_stack_overflow",
    "recurses until the C stack overflows",
    "only its own process crashes",
    """
    import sys
    sys.setrecursionlimit(10**9)
    class A:
        def __getattr__(self, name): return getattr(self, name + 'x')
    A().a
    """,
    "died raised cpu wall",
)
hostile(
    "null_pointer",
    "reads address 0 with ctypes",
    "only its own process crashes",
    "import ctypes\nctypes.string_at(0)",
    "died",
)
hostile("abort", "aborts", "only its own process crashes, no core file", "import os\nos.abort()", "died")
hostile(
    "vanishes",
    "ends without a word",
    "its exit status is its result",
    "import os\nos._exit(77)",
    "raised",
)

# Files

hostile(
    "reads_secret",
    "reads a file of the host by its path, by a link and by climbing up",
    "mount namespace: it does not exist inside",
    """
    import os
    os.symlink('SECRET', '/tmp/link')
    os.makedirs('/tmp/a/b')
    for path in ('SECRET', '/tmp/link', '/tmp/a/b/../../../../..SECRET', '/proc/1/rootSECRET'):
        try: print('ESCAPED', open(path).read())
        except OSError as error: print(error)
    """,
    "done",
    "(.*No such file.*\n){4}",
)
hostile(
    "hard_link",
    "links the interpreter's files into its folder and changes them there",
    "other, read-only mounts",
    """
    import os
    for source in (os.__file__, '/dev/null'):
        try: os.link(source, '/tmp/mine'); print('ESCAPED')
        except OSError as error: print(error)
    """,
    "done",
)
hostile(
    "lists_host",
    "looks for people's files and the system's settings",
    "mount namespace",
    """
    import os
    for path in ('/etc', '/home', '/var', '/opt', '/mnt', '/srv', '/run', '/usr/bin', '/usr/share', '/boot'):
        if os.path.exists(path): print('ESCAPED', path, os.listdir(path))
    """,
    "done",
)
hostile("proc", "reads /proc", "there is none", "import os\nos.listdir('/proc')", "raised", "No such file")
hostile("sys", "reads /sys", "there is none", "import os\nos.listdir('/sys')", "raised", "No such file")
hostile(
    "devices",
    "opens and makes devices",
    "harmless ones only, no right to make others",
    """
    import os, stat
    print(sorted(os.listdir('/dev')))
    for name in ('mem', 'kmsg', 'vda', 'sda', 'kvm', 'tty', 'ptmx', 'fuse', 'net/tun', 'shm'):
        if os.path.exists('/dev/' + name): print('ESCAPED', name)
    try: os.mknod('/tmp/mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1)); print('ESCAPED')
    except OSError as error: print(error)
    """,
    "done",
    "Operation not permitted",
)
hostile(
    "writes_everywhere",
    "tries to write into every folder there is",
    "read-only mounts: only its own temporary folder",
    """
    import os
    for folder, folders, files in os.walk('/'):
        folders[:] = folders[:40]
        if folder.startswith(('/tmp', '/dev/fd')): continue
        try:
            open(os.path.join(folder, 'mine'), 'w').close()
            print('ESCAPED', folder)
        except OSError: pass
        for name in files[:3]:
            path = os.path.join(folder, name)
            if folder != '/dev' and os.access(path, os.W_OK): print('ESCAPED', path)
    """,
    "done cpu wall",
)
hostile(
    "poisons_library",
    "changes the standard library for whoever comes after",
    "read-only mounts; modules in memory are its own copy",
    """
    import math, os, random, sys
    try: open(os.__file__, 'a').write('\\nESCAPED = 1\\n'); print('ESCAPED')
    except OSError as error: print(error)
    math.sqrt = lambda x: 'ESCAPED'
    import builtins
    builtins.print = None
    """,
    "done",
    "Read-only|Permission denied",
    then="import math, os\nprint(math.sqrt(4), getattr(os, 'ESCAPED', 'clean'))",
)

# Network

hostile(
    "tcp",
    "connects to a port of the host",
    "no sockets but local ones; network namespace",
    "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)\nprint('ESCAPED')",
    "raised",
    "not supported",
)
hostile(
    "udp",
    "sends a datagram",
    "no sockets but local ones; network namespace",
    """
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))
    print('ESCAPED')
    """,
    "raised",
    "not supported",
)
hostile(
    "dns",
    "asks for an address",
    "no sockets, no resolver",
    "import socket\nprint('ESCAPED', socket.getaddrinfo('example.org', 80))",
    "raised",
    "gaierror",
)
hostile(
    "other_families",
    "sockets that no network namespace holds: to the virtual machine's host, to the kernel",
    "system call refused",
    """
    import socket
    for family in range(2, 64):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            try: socket.socket(family, kind); print('ESCAPED', family, kind)
            except OSError: pass
    print('tried')
    """,
    "done",
    "tried",
)
hostile(
    "abstract_socket",
    "connects to an abstract socket of the host",
    "network namespace",
    "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0ABSTRACT')\nprint('ESCAPED')",
    "raised",
    "ConnectionRefused",
)

# Rights

_SYSTEM_CALLS = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
index = ['x86_64', 'aarch64'].index(platform.machine())
def call(name, numbers, *arguments):
    result = libc.syscall(ctypes.c_long(numbers[index]), *map(ctypes.c_long, arguments))
    print(name, errno.errorcode.get(ctypes.get_errno()) if result < 0 else 'ESCAPED')
"""
hostile(
    "new_namespaces",
    "makes namespaces of its own, in which it would be root",
    "system calls refused",
    _SYSTEM_CALLS
    + dedent("""
    user = 0x10000000
    call('unshare', (272, 97), user)
    call('setns', (308, 268), 0, user)
    call('clone', (56, 220), user | 17, 0, 0, 0, 0)
    call('clone3', (435, 435), 0, 0)
    """),
    "done",
    "unshare EPERM\nsetns EPERM\nclone EPERM\nclone3 ENOSYS",
)
hostile(
    "mounts",
    "mounts /proc, changes its root",
    "system calls refused",
    _SYSTEM_CALLS
    + dedent("""
    call('mount', (165, 40), 0, 0, 0, 0, 0)
    call('umount2', (166, 39), 0, 2)
    call('chroot', (161, 51), 0)
    call('pivot_root', (155, 41), 0, 0)
    call('fsopen', (430, 430), 0, 0)
    call('open_tree', (428, 428), 0, 0, 0)
    """),
    "done",
    "(\\w+ EPERM\n){6}",
)
hostile(
    "kernel_interfaces",
    "BPF, performance counters, io_uring, user faults, tracing, other processes' memory",
    "system calls refused",
    _SYSTEM_CALLS
    + dedent("""
    call('bpf', (321, 280), 0, 0, 0)
    call('perf_event_open', (298, 241), 0, 0, 0, 0, 0)
    call('io_uring_setup', (425, 425), 1, 0)
    call('userfaultfd', (323, 282), 0)
    call('ptrace', (101, 117), 0, 0, 0, 0)
    call('process_vm_readv', (310, 270), 1, 0, 0, 0, 0, 0)
    """),
    "done",
    "(\\w+ EPERM\n){6}",
)
hostile(
    "foreign_system_calls",
    "system calls of the 32-bit numbering, which the filter does not list",
    "killed at once",
    _SYSTEM_CALLS + "call('x32', (0x40000000 + 39, 0x40000000 + 172))",
    "died",
)
hostile(
    "becomes_root",
    "becomes root, sets the clock, the host's name and real-time priority",
    "no capabilities",
    """
    import os, socket, time
    def refused(action):
        try: action(); print('ESCAPED', action)
        except OSError as error: print(error)
    refused(lambda: os.setuid(0))
    refused(lambda: os.setgid(0))
    refused(lambda: os.setgroups([0]))
    refused(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
    refused(lambda: socket.sethostname('x'))
    refused(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
    refused(lambda: os.nice(-5) if os.nice(0) > -20 else None)
    print('tried')
    """,
    "done",
    "tried",
)
hostile(
    "raises_limits",
    "raises its own limits",
    "hard limits",
    """
    import resource
    for name in ('AS', 'CPU', 'NPROC', 'FSIZE', 'NOFILE', 'CORE'):
        limit = getattr(resource, 'RLIMIT_' + name)
        soft, hard = resource.getrlimit(limit)
        try: resource.setrlimit(limit, (hard + 1, hard + 1)); print('ESCAPED', name)
        except (OSError, ValueError) as error: print(error)
    """,
    "done",
    "(.*not allowed to raise.*\n){6}",
)

# Neighbours

hostile(
    "environment",
    "reads the host's environment variables",
    "an environment of its own",
    "import os\nprint(dict(os.environ))\nprint('ESCAPED' if 'ARENA_SECRET' in os.environ else 'clean')",
    "done",
    "clean",
)
hostile(
    "descriptors",
    "uses descriptors that were left open",
    "all are closed before it starts",
    """
    import os
    for number in range(3, 1 << 16):
        try: os.fstat(number); print('ESCAPED', number)
        except OSError: pass
    """,
    "done cpu",
)
hostile(
    "forges_report",
    "tells the host that it ended well, on every descriptor that might reach it",
    "the worker's socket is closed before it starts",
    """
    import os
    for number in range(3, 64):
        try: os.write(number, b'{"status": 0, "stopped": null, "cpu_seconds": 0.0}'); print("ESCAPED")
        except OSError: pass
    raise ValueError("not well")
    """,
    "raised",
    "not well",
)
hostile(
    "types_for_the_host",
    "puts keystrokes into the terminal of whoever runs it",
    "there is no terminal",
    """
    import fcntl, termios
    for number in range(3):
        try: fcntl.ioctl(number, termios.TIOCSTI, b"x"); print("ESCAPED")
        except OSError: pass
    """,
    "done",
)
hostile(
    "leaves_data",
    "leaves data for a later snippet: files, shared memory, queues, keys, globals",
    "folder, IPC namespace and memory of its own; key rings refused",
    _SYSTEM_CALLS
    + dedent("""
    import builtins, os, sys
    open('/tmp/note', 'w').write('x')
    libc.shmget(4711, 4096, 0o1666)
    libc.msgget(4711, 0o1666)
    libc.semget(4711, 1, 0o1666)
    call('add_key', (248, 217), 0, 0, 0, 0, 0)
    call('keyctl', (250, 219), 0, 0, 0)
    builtins.note = sys.note = 'x'
    os.environ['NOTE'] = 'x'
    """),
    "done",
    "add_key EPERM\nkeyctl EPERM",
    then="""
    import builtins, ctypes, os, sys
    libc = ctypes.CDLL(None)
    found = [
        os.path.exists('/tmp/note'),
        libc.shmget(4711, 4096, 0) >= 0,
        libc.msgget(4711, 0) >= 0,
        libc.semget(4711, 1, 0) >= 0,
        hasattr(builtins, 'note'),
        hasattr(sys, 'note'),
        'NOTE' in os.environ,
    ]
    print('ESCAPED' if any(found) else 'nothing', found)
    """,
)
hostile(
    "is_spied_on",
    "searches the memory it inherited for code or output of an earlier snippet",
    "workers pass code and output on unseen",
    "token = 'sesame-' + str(6 * 7)\nprint(token)",
    "done",
    "sesame-42",
    then="""
    import gc
    wanted = ''.join(reversed('-emases'))
    gc.unfreeze()
    hits = [
        value
        for held in gc.get_objects()
        if isinstance(held, (list, dict, tuple))
        for value in (held.values() if isinstance(held, dict) else held)
        if isinstance(value, str) and wanted in value or isinstance(value, bytes) and wanted.encode() in value
    ]
    hits = [value for value in hits if value is not wanted]
    print('ESCAPED' if hits else 'nothing', hits[:3])
    """,
)

# Input

hostile("reads_input", "waits for input", "input is empty", "input()", "raised", "EOFError")
hostile(
    "reads_terminal",
    "reads and writes the terminal",
    "there is none",
    "import os\nos.open('/dev/tty', os.O_RDWR)",
    "raised",
    "No such file",
)
hostile(
    "null_byte",
    "a NUL byte in the code",
    "refused by the compiler",
    "print(1)\0print(2)",
    "raised",
    "null bytes",
)
hostile(
    "lone_surrogate",
    "half a character in the code",
    "refused by the compiler",
    "print('\ud800')",
    "raised",
    "surrogates",
)
hostile(
    "broken_output",
    "writes bytes that are no text, control characters and half characters",
    "decoded with replacements",
    "import os\nos.write(1, bytes(range(256)))\nprint(chr(0xd800), chr(0x202e), '\\x1b[2J')",
    "done",
)
hostile(
    "deep_code",
    "code that is nested too deeply for the compiler",
    "the error is the result",
    "(" * 20_000 + ")" * 20_000,
    "raised died output",
)
hostile(
    "endless_traceback",
    "an exception whose text never ends",
    "memory, CPU or output limit",
    """
    class Endless(Exception):
        def __str__(self):
            while True: pass
    raise Endless
    """,
    "cpu wall",
)


def table() -> str:
    """The programs as a Markdown table."""
    rows = [
        f"| {h.name.replace('_', ' ')} | {h.tries} | {h.holds} | {', '.join(sorted(h.endings))} |"
        for h in PROGRAMS
    ]
    return "\n".join(["| program | what it tries | what holds it | ends as |", "|---|---|---|---|", *rows])


def document(text: str) -> str:
    """The document with the table of today between its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
