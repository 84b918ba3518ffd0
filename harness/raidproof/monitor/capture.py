"""What goes over the wire between clients and server: a capture on the bridge of a lab's own network."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import cast

from raidproof.core.command import CommandFailed, run
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.host_packages import WIRE, install_list
from raidproof.core.waiting import Deadline, pause, realtime_ahead_ns, wait_until
from raidproof.monitor.packets import Exchange, parse_connections, parse_packets
from raidproof.namespace import Process
from raidproof.namespace.network import BRIDGE
from raidproof.provider.registry import EnclosedLab, Lab
from raidproof.storage.server import NFS_PORT

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 15.0
DECODE_DEADLINE_S = 300.0
BUFFER_MIB = 32
"""Of the kernel's ring: a burst of a client's writes must not fall out of it while the host is busy."""
HANDED_OVER_S = 0.75
"""The kernel hands packets over in blocks, after dumpcap's timeout of 250 ms at the latest: the end must not miss."""


def capture_command(path: Path, port: int = NFS_PORT, interface: str = BRIDGE) -> list[str]:
    """Write all packets of a server's port to a file, whole: a call that was cut cannot be decoded."""
    # -q: no running count.  A bridge shows what passes between its ports only while promiscuous, the default.
    return ["dumpcap", "-q", "-B", str(BUFFER_MIB), "-i", interface, "-f", f"tcp port {port}", "-w", str(path)]


def decode_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Print the RPCs of a capture with all their fields, without the packets around them."""
    return [*_rpcs(path, port), "-T", "json", "-J", "frame ip rpc nfs"]


def connections_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Print the number of each packet with an RPC, and that of its TCP connection.

    Apart from `decode_command`: as JSON, TCP's own fields come with all that it carries once more.
    """
    return [*_rpcs(path, port), "-T", "fields", "-e", "frame.number", "-e", "tcp.stream"]


def _rpcs(path: Path, port: int) -> list[str]:
    # Without -d, tshark guesses at a connection whose beginning it has not seen, and guesses wrong.
    return ["tshark", "-n", "-d", f"tcp.port=={port},rpc", "-r", str(path), "-Y", "rpc"]


def dropped(said: str) -> int:
    """Read from what dumpcap says at its end how many packets it lost.

    Raises:
        RigError: it does not say.
    """
    found = re.search(r"received/dropped on interface '[^']*': \d+/(\d+) ", said)
    if found is None:
        raise RigError(f"dumpcap ended without a count of its packets: {said[-200:]!r}")
    return int(found[1])


def printed(command: list[str]) -> str:
    """Return what a decoder prints.

    Raises:
        CommandFailed: it cannot read the capture.
    """
    ended = run(command, environment={"LC_ALL": "C"}, deadline_s=DECODE_DEADLINE_S)
    if not ended.ok:
        raise CommandFailed(ended)
    return ended.stdout


def why_no_capture(lab: Lab) -> RequirementMissing | None:
    """Return why nothing of a lab's NFS can be captured and decoded; None if it can."""
    if not isinstance(lab, EnclosedLab):
        return RequirementMissing(
            "the machines' network is not ours, so nothing on it is captured", remedy="use provider uml or qemu"
        )
    missing = [program for program in ("dumpcap", "tshark") if which(program) is None]
    return RequirementMissing(f"host tool not found: {missing[0]}", remedy=install_list(WIRE)) if missing else None


@dataclass(frozen=True)
class Capture:
    """A capture on disk."""

    path: Path

    def exchanges(self) -> list[Exchange]:
        """Decode it: each call with its reply, in the order of the calls.

        Raises:
            RequirementMissing: this host has no tshark.
            RigError: tshark cannot read it.
        """
        if which("tshark") is None:
            raise RequirementMissing("host tool not found: tshark", remedy=install_list(WIRE))
        connections = parse_connections(printed(connections_command(self.path)))
        return parse_packets(printed(decode_command(self.path)), connections)


class Tap:
    """A capture that runs on a lab's bridge."""

    def __init__(self, path: Path, process: Process, said: Path) -> None:
        self.path = path
        self.ahead_ns = realtime_ahead_ns()
        """By how much the real-time clock, which stamps the packets, was ahead of the monotonic one at the begin."""
        self._process = process
        self._said = said

    def wait_begun(self) -> None:
        """Wait until nothing is missed any more.

        Raises:
            RigError: it has ended.
            DeadlineExceeded: it does not begin.
        """
        wait_until(self._begun, Deadline.after(START_DEADLINE_S), "the capture to begin")

    def _begun(self) -> bool:
        self._process.require_running()
        # It says so once the kernel's ring is open, and only then writes the file's header.
        return self.path.exists() and b"File:" in self._said.read_bytes()

    def end(self) -> None:
        """End it when the kernel has handed over what it has.

        Raises:
            RigError: it ended early, or packets are missing.
        """
        try:
            self._process.require_running()
            pause(HANDED_OVER_S)
        finally:
            self.stop()
        if lost := dropped(self._said.read_text(errors="replace")):
            raise RigError(f"the capture lost {lost} packets: this host was too busy", remedy=f"see {self.path}")

    def stop(self) -> None:
        """End it as it is."""
        if self._process.status is None:
            self._process.terminate(Deadline.after(STOP_DEADLINE_S))

    def discard(self) -> None:
        """End it, and remove its files."""
        self.stop()
        self.path.unlink(missing_ok=True)
        self._said.unlink(missing_ok=True)


def tapping(lab: Lab, path: Path) -> Tap:
    """Begin to capture NFS on a lab's bridge, into a file.

    Raises:
        RequirementMissing: the lab has no network of its own, or the host no program for it.
    """
    if (why := why_no_capture(lab)) is not None:
        raise why
    enclosure = cast("EnclosedLab", lab).enclosure
    said = path.with_suffix(".log")
    return Tap(path, enclosure.spawn(capture_command(path.absolute()), output=said), said)


@contextmanager
def capturing(lab: Lab, path: Path) -> Iterator[Capture]:
    """Capture NFS on a lab's bridge while the body runs, into a file; it is whole when the context is left.

    Raises:
        RequirementMissing: the lab has no network of its own, or the host no program for it.
        RigError: the capture does not run, or ended early.
    """
    tap = tapping(lab, path)
    try:
        tap.wait_begun()
        yield Capture(path)
        tap.end()
    finally:
        tap.stop()
