"""Machines of a cluster on this host: network namespaces on one bridge, each with its own cache."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from raidproof.cluster.certificates import create
from raidproof.core.command import run
from raidproof.core.log import logger
from raidproof.core.waiting import Deadline, wait_until
from raidproof.image import cache
from raidproof.image.cache import PARTIAL
from raidproof.namespace import Namespace, Process

BRIDGE = "cluster"
SCHEDULER = "10.99.0.1"
PORT = 8786
ENTRY = Path(__file__).with_name("worker_entry.py")
OF_A_RUN = ("campaign", "locks")
"""Folders of the cache that a worker's own cache begins without; the files of the others are links to those of this
host, so that no worker fetches a kernel."""
KERNEL = "umid="
"""Beginning of an argument of each kernel of User-mode Linux."""
BOOT_S = 60.0
LOOK_S = 0.2
"""Interval in seconds at which the processes of this host are read, which takes processor time from the machines."""
END_S = 10.0
"""Greatest time in seconds for which machines of a worker continue that was killed, or that has lost the scheduler."""


@dataclass(frozen=True)
class Worker:
    """A worker in a network namespace of its own."""

    name: str
    process: Process
    temporary: Path
    """Folder of its temporary files, with those of its labs."""

    def processes(self) -> dict[int, list[str]]:
        """Return the command lines of the worker, of its labs and of its checkers, by their PIDs on this host."""
        lines: dict[int, list[str]] = {one.pid: one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])}
        return {pid: words for pid, words in lines.items() if any(str(self.temporary) in word for word in words)}

    def labs(self) -> list[int]:
        """Return the PIDs, on this host, of the processes of its labs and checkers."""
        return [pid for pid, words in self.processes().items() if str(ENTRY) not in words]

    def fill(self) -> None:
        """Shrink the tmpfs of the worker's temporary files (``room``) to its present content: no write succeeds."""
        pid = next(pid for pid, words in self.processes().items() if str(ENTRY) in words)

        def shrunk() -> bool:
            used = shutil.disk_usage(f"/proc/{pid}/root{self.temporary}").used
            mount = ["mount", "-o", f"remount,size={used}", str(self.temporary)]
            # mount(8) fails if the content has grown meanwhile.
            return run(["nsenter", "--target", str(pid), "--mount", *mount]).ok

        wait_until(shrunk, Deadline.after(END_S), f"a full disk of worker {self.name}")

    def wait_for_lab(self) -> None:
        """Wait until the kernel of a machine of the worker runs."""
        wait_until(
            lambda: any(word.startswith(KERNEL) for words in self.processes().values() for word in words),
            Deadline.after(BOOT_S),
            f"a machine of worker {self.name}",
            interval_s=LOOK_S,
        )

    def wait_for_no_lab(self) -> None:
        """Wait until no process of a lab of the worker is left."""
        try:
            what = f"the end of the machines of worker {self.name}"
            wait_until(lambda: not self.labs(), Deadline.after(END_S), what, interval_s=LOOK_S)
        finally:
            logger.info("processes of labs that are left: %s", self.processes())


class Machines:
    """The namespace with the bridge, the scheduler and the client, and the workers beside it."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder
        self.certificates = folder / "certificates"
        create(self.certificates)
        namespace.bridge(BRIDGE, SCHEDULER, 24)
        self.address = f"tls://{SCHEDULER}:{PORT}"
        self.scheduler = self.raidproof(
            "scheduler", ["cluster", "scheduler", "--host", SCHEDULER, "--certificates", str(self.certificates)]
        )
        self._workers = 0

    def raidproof(self, name: str, words: Sequence[str], environment: dict[str, str] | None = None) -> Process:
        """Start raidproof beside the scheduler; its output goes to the file ``name.log``."""
        argv = [sys.executable, "-P", "-m", "raidproof", *words]
        return self.namespace.spawn(argv, output=self.folder / f"{name}.log", environment=inherited(environment))

    def worker(self, name: str, *, plant: str = "", room: str = "") -> Worker:
        """Start a worker. ``plant``: its defect, see `worker_entry`. ``room``: size of a tmpfs for temporary files."""
        self._workers += 1
        number = self._workers
        own = self.folder / name
        built = own / "cache"
        shutil.copytree(
            cache.root(), built, copy_function=os.link, ignore=shutil.ignore_patterns(*OF_A_RUN, f"*{PARTIAL}")
        )
        temporary = own / "tmp"
        temporary.mkdir()
        config = {
            "interface": f"w{number}",
            "address": f"10.99.0.{10 + number}/24",
            "scheduler": self.address,
            "name": name,
            "certificates": str(self.certificates),
            "plant": plant,
            "room": room,
            "temporary": str(temporary),
            "cache": str(built),
        }
        environment = inherited({"TMPDIR": str(temporary)})
        argv = ["unshare", "--net", "--mount", sys.executable, "-P", str(ENTRY), json.dumps(config)]
        process = self.namespace.spawn(argv, output=self.folder / f"{name}.log", environment=environment)
        self.run("ip", "link", "add", f"b{number}", "type", "veth", "peer", "name", f"w{number}")
        self.run("ip", "link", "set", f"w{number}", "netns", str(process.pid))
        self.run("ip", "link", "set", f"b{number}", "master", BRIDGE, "up")
        return Worker(name, process, temporary)

    def run(self, *argv: str) -> None:
        """Run a program beside the scheduler, and wait for its end."""
        process = self.namespace.spawn(list(argv), output=self.folder / "commands.log")
        wait_until(lambda: process.status is not None, Deadline.after(10), f"the end of {argv[0]}")
        if process.status != 0:
            raise RuntimeError(f"{argv}: {(self.folder / 'commands.log').read_text()}")

    def link(self, worker: Worker, *, up: bool) -> None:
        """Connect the worker's machine to the bridge, or disconnect it; its own interface stays up."""
        number = list_number(worker.name)
        self.run("ip", "link", "set", f"b{number}", *(["master", BRIDGE] if up else ["nomaster"]))

    def explore(self, run: Path, cycle: str, *options: str) -> Process:
        """Start an exploration of a crash test on the cluster."""
        return self.client("explore", str(run), "--cycle", cycle, *options)

    def client(self, *words: str) -> Process:
        """Start a command of raidproof that uses the cluster; its output goes to the file ``client.log``."""
        return self.raidproof("client", [*words, "--cluster", str(self._spec())])

    def _spec(self) -> Path:
        path = self.folder / "cluster.toml"
        path.write_text(f'kind = "address"\naddress = "{self.address}"\ncertificates = "{self.certificates}"\n')
        return path

    def output(self, name: str) -> str:
        """Return what a program has printed until now."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


def list_number(name: str) -> int:
    """Return the number at the end of a worker's name."""
    return int(name.removeprefix("worker"))


def inherited(more: dict[str, str] | None) -> dict[str, str]:
    """Return the environment of this process, changed by ``more``."""
    return {**os.environ, **(more or {})}


def ended(process: Process, within_s: float) -> int:
    """Wait for the end of a program; return its exit status."""
    statuses: list[Any] = []

    def over() -> bool:
        statuses.append(process.status)
        return statuses[-1] is not None

    wait_until(over, Deadline.after(within_s), f"the end of {process.name}")
    return int(statuses[-1])


@contextmanager
def machines() -> Iterator[Machines]:
    """Yield a network without workers; leaving the context ends all its processes."""
    with TemporaryDirectory(prefix="cl-") as name:
        folder = Path(name)
        (folder / "mnt").mkdir()
        # A namespace with a folder of its own also has its own /proc, in which Dask looks up its processes.
        with Namespace(folder, folders={Path("/mnt"): folder / "mnt"}) as namespace:
            yield Machines(namespace, folder)
