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
from raidproof.core.waiting import Deadline, wait_until
from raidproof.image import cache
from raidproof.namespace import Namespace, Process

BRIDGE = "cluster"
SCHEDULER = "10.99.0.1"
PORT = 8786
ENTRY = Path(__file__).with_name("worker_entry.py")
OF_A_RUN = ("campaign", "locks")
"""Folders of the cache that a worker's own cache begins without; the files of the others are links to those of this
host, so that no worker fetches a kernel."""
BOOT_S = 60.0
END_S = 10.0
"""Greatest time in seconds for which machines of a worker continue that was killed, or that has lost the scheduler."""


@dataclass(frozen=True)
class Worker:
    """A worker in a network namespace of its own."""

    name: str
    process: Process
    temporary: Path
    """Folder of its temporary files, with those of its labs."""

    def labs(self) -> list[int]:
        """Return the PIDs, on this host, of the processes of its labs and checkers."""
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if (words := process.info["cmdline"] or ())
            and str(ENTRY) not in words
            and any(str(self.temporary) in word for word in words)
        ]

    def wait_for_lab(self) -> None:
        """Wait until a machine of the worker runs."""
        wait_until(lambda: bool(self.labs()), Deadline.after(BOOT_S), f"a machine of worker {self.name}")

    def wait_for_no_lab(self) -> None:
        """Wait until no process of a lab of the worker is left."""
        wait_until(lambda: not self.labs(), Deadline.after(END_S), f"the end of the machines of worker {self.name}")


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
        """Start a worker. ``plant``: its defect, see `worker_entry`. ``room``: limit of its temporary files."""
        self._workers += 1
        number = self._workers
        own = self.folder / name
        built = own / "cache"
        shutil.copytree(cache.root(), built, copy_function=os.link, ignore=shutil.ignore_patterns(*OF_A_RUN))
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
        words = ["explore", str(run), "--cycle", cycle, "--cluster", str(self._spec()), *options]
        return self.raidproof("client", words)

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
