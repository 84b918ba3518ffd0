# A minimal Python, where each import costs: no pathlib, no subprocess.
"""Agent of the checker in a machine: assembles the array, mounts, reads the ledger, and takes all down again.

On request the agent reads the ledger a second time, through the nfsd of the machine, which serves what is mounted.

The harness copies this file into machines, beside the ledger's agent. It runs there on a minimal Python: standard
library only. Run as ``check_agent.py ORDERS``. The agent connects to the harness, reads one line of JSON per request
(a verb and its arguments), and answers with lines of JSON: one with ``stage`` as each stage begins, which the harness
stamps, and a last one with ``answer``. If the machine hangs, the last ``stage`` line names the stage that hangs.

In the guest a process start costs 7 to 20 ms and a system call 20 us: use as few as possible.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

READ, NOT_ASSEMBLED, NOT_MOUNTED = "read", "not-assembled", "not-mounted"
SAME, DIFFERENT = "same", "different"
NFSD = "nfsd"
"""Argument of ``check`` that requests a read through nfsd, too."""
FSCK = "fsck"
"""Argument of ``check`` that requests the file system's own checker, too."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
BLOCK_DEVICES = "/sys/block"
FLUSHES = ("/proc/net/rpc/nfsd.export/flush", "/proc/net/rpc/nfsd.fh/flush")
"""Flush files of nfsd's cache of exports, and its cache of file handles; the latter also closes its open files."""
SECOND_NS = 1_000_000_000
LONGEST = 4000
"""Most characters of a command's output that are passed on: half from its beginning, half from its end."""

Run = Callable[[list[str]], tuple[int, str]]
Begun = Callable[[str], None]
Scan = Callable[[dict[str, Any]], dict[str, Any]]
Forget = Callable[[], None]


class Runner:
    """Runs commands by vfork(2); their output goes to a memory file that stays open, and is read only if not empty."""

    def __init__(self, path: str = PATH) -> None:
        self._folders = path.split(":")
        self._programs: dict[str, str] = {}
        self._environment = {"PATH": path, "LC_ALL": "C"}
        self._output = os.memfd_create("output")
        null = os.open("/dev/null", os.O_RDONLY)
        # In append mode, because two programs may share the file.
        writer = os.open(f"/proc/self/fd/{self._output}", os.O_WRONLY | os.O_APPEND)
        self._files = [(os.POSIX_SPAWN_DUP2, null, 0), *((os.POSIX_SPAWN_DUP2, writer, fd) for fd in (1, 2))]

    def run(self, argv: list[str]) -> tuple[int, str]:
        """Return a command's status (negative: the signal that ended it), and its output, shortened to `LONGEST`."""
        try:
            pid = os.posix_spawn(self._program(argv[0]), argv, self._environment, file_actions=self._files)
        except OSError as error:
            return 127, error.strerror or ""
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status, self._said()

    def _said(self) -> str:
        size = os.fstat(self._output).st_size
        if not size:
            return ""
        said = os.pread(self._output, size, 0).decode(errors="replace").strip()
        os.ftruncate(self._output, 0)
        return said if len(said) <= LONGEST else f"{said[: LONGEST // 2]}\n...\n{said[-LONGEST // 2 :]}"

    def _program(self, name: str) -> str:
        if name not in self._programs:
            paths = [os.path.join(folder, name) for folder in self._folders]
            self._programs[name] = next((path for path in paths if os.access(path, os.X_OK)), name)
        return self._programs[name]


class CheckAgent:
    """The stages of one crash state check."""

    def __init__(self, orders: dict[str, Any], run: Run, begun: Begun, scan: Scan, forget: Forget) -> None:
        self.orders = orders
        self.run = run
        self.begun = begun
        self.scan = scan
        self.forget = forget
        self.mounted = False
        self.left = ""
        """Reason why something is still mounted or assembled; empty if nothing is."""

    def check(self, *also: str) -> dict[str, Any]:
        """Go through all stages, then unmount everything and stop the arrays."""
        answer = self.up()
        if NFSD in also and answer["end"] == READ:
            answer.update(self.through_nfsd(answer["found"]))
        return {**answer, **self.down(*also)}

    def up(self) -> dict[str, Any]:
        """Assemble, mount and read the ledger, up to the first stage that fails."""
        self.begun("assemble")
        for device, argv in self.orders["assemble"]:
            if problem := self._try(argv):
                return {"end": NOT_ASSEMBLED, "said": problem, "found": None}
            freeze(f"{BLOCK_DEVICES}/{os.path.basename(device)}/md/sync_action")
        missing = {device: count for device, _ in self.orders["assemble"] if (count := degraded(device))}
        seen = {"degraded": missing} if missing else {}
        self.begun("mount")
        if problem := self._try(self.orders["mount"]):
            return {"end": NOT_MOUNTED, "said": problem, "found": None, **seen}
        self.mounted = True
        self.begun("verify")
        return {"end": READ, "said": "", "found": self.scan(self.orders["ledger"]), **seen}

    def look(self, root: str) -> dict[str, Any]:
        """Read the ledger below another directory."""
        self.begun("look")
        return {"found": self.scan({**self.orders["ledger"], "root": root})}

    def through_nfsd(self, direct: dict[str, Any]) -> dict[str, Any]:
        """Mount the file system once more, by NFS, read the ledger there too, and compare."""
        orders = self.orders["nfsd"]
        self.begun("nfsd")
        problem = next(filter(None, map(self._try, orders["mount"])), "")
        if not problem:
            differ = differing(direct, self.look(orders["root"])["found"])
            problem = ", ".join(differ)
            self.begun("leave")
            self.left = self._try(orders["unmount"])
        self.begun("forget")
        self.forget()
        if problem:
            return {"through_nfsd": DIFFERENT, "said": f"through nfsd: {problem}"}
        return {"through_nfsd": SAME}

    def down(self, *also: str) -> dict[str, Any]:
        """Unmount and stop the arrays; return what is left if this fails.

        In between, check the file system on request.
        """
        left, self.left = self.left, ""
        answer: dict[str, Any] = {}
        if self.mounted:
            self.begun("unmount")
            left = left or self._unmount()
            self.mounted = False
            if FSCK in also and not left:
                self.begun("fsck")
                answer["fsck"] = self.run(self.orders["fsck"])
        self.begun("stop")
        # An array that was not assembled may exist in part; an array that does not exist needs no stop.
        if problem := self._try(self.orders["stop"]):
            left = left or (problem if remains(self.orders) else "")
        return {**answer, "left": left}

    def _unmount(self) -> str:
        problem = self._try(self.orders["unmount"])
        if problem and "nfsd" in self.orders:
            # Requests that still ran when nfsd was flushed have ended by now.
            self.forget()
            problem = self._try(self.orders["unmount"])
        return problem

    def _try(self, argv: list[str]) -> str:
        status, said = self.run(argv)
        return f"{' '.join(argv)}: status {status}: {said}" if status else ""


def differing(direct: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """Return the workers whose files read differently directly and through nfsd."""
    return sorted(key for key in direct if direct[key] != seen.get(key))


def forget(flushes: Sequence[str] = FLUSHES) -> None:
    """Flush the caches of nfsd: while nfsd caches an export, the file system cannot be unmounted.

    nfsd's caches count in whole seconds: of two flushes within one second the second has no effect, neither now nor
    later (write_flush and cache_clean in net/sunrpc/cache.c). So this waits until the second of the last flush has
    passed.
    """
    clock = os.memfd_create("clock")
    try:
        for path in flushes:
            with open(path) as file:
                last = int(file.read())
            while (now := kernel_ns(clock)) // SECOND_NS <= last:
                select.select([], [], [], 1 - now % SECOND_NS / SECOND_NS)
            with open(path, "w") as file:
                file.write("1\n")
    finally:
        os.close(clock)


def kernel_ns(clock: int) -> int:
    """Return the time in ns by which the kernel counts seconds, by touching a file: time() is up to one tick ahead."""
    os.utime(clock)
    return os.fstat(clock).st_mtime_ns


def freeze(path: str) -> None:
    """Prevent a resync: it would change the array during the check, and occupy the disks."""
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return  # RAID0 has no resync
    try:
        os.write(fd, b"frozen")
    except OSError:
        pass
    finally:
        os.close(fd)


def degraded(device: str) -> int:
    """Return the number of missing members of an array; 0 for a level without redundancy, which has no such file."""
    try:
        with open(f"{BLOCK_DEVICES}/{os.path.basename(device)}/md/degraded") as file:
            return int(file.read())
    except OSError:
        return 0


def remains(orders: dict[str, Any]) -> bool:
    """Return whether an array is still assembled, even in part."""
    return any(state_of(os.path.basename(device)) not in ("", "clear") for device, _ in orders["assemble"])


def state_of(name: str) -> str:
    """Return md/array_state of an md device; empty if the device does not exist."""
    try:
        with open(f"{BLOCK_DEVICES}/{name}/md/array_state") as file:
            return file.read().strip()
    except OSError:
        return ""


def serve(orders: dict[str, Any], scan: Scan) -> None:
    """Answer requests of the harness until it closes the connection."""
    for path, target in orders["links"]:
        os.symlink(target, path)
    for path, value in orders["parameters"]:
        with open(path, "w") as file:
            file.write(value)
    connection = socket.create_connection((orders["host"], orders["port"]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(what: dict[str, Any]) -> None:
        connection.sendall(json.dumps(what, separators=(",", ":")).encode() + b"\n")

    hand = CheckAgent(orders, Runner().run, lambda stage: say({"stage": stage}), scan, forget)
    verbs: dict[str, Callable[..., dict[str, Any]]] = {
        "check": hand.check,
        "up": hand.up,
        "look": hand.look,
        "down": hand.down,
    }
    rest = b""
    while True:
        while b"\n" not in rest:
            received = connection.recv(1 << 16)
            if not received:
                return
            rest += received
        line, _, rest = rest.partition(b"\n")
        verb, *words = json.loads(line)
        say({"answer": verbs[verb](*words)})


if __name__ == "__main__":
    with open(sys.argv[1]) as orders_file:
        serve(json.load(orders_file), import_module("ledger_reader").read_back)
