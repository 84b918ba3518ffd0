"""Process 1 of a lab's namespaces: starts and ends the lab's processes, and opens sockets on the lab's network.

The kernel kills every process of a PID namespace when its process 1 ends. So no process of a lab can outlive the
keeper. The keeper ends when the other end of a socket pair is closed, and the kernel closes that end when the harness
ends. Run as ``python -m raidproof.namespace.keeper SOCKET LIFELINE [PLACE FOLDER]...``. LIFELINE is an open descriptor
of the socket pair. Each FOLDER is bind-mounted on its PLACE in the lab's mount namespace. Requests arrive at SOCKET
(a path) as JSON, one per packet, with file descriptors attached.
"""

import array
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from pyroute2 import IPRoute

from raidproof.core.waiting import Deadline, wait_until

MAX_PACKET = 1 << 16
"""Greatest length of a request or reply in bytes."""
END_DEADLINE_S = 10.0
"""Seconds to wait for the end of a process after SIGKILL."""
READY = b"ready"
"""Message that the keeper sends on the lifeline socket as soon as it accepts requests."""
BLACKHOLE, BLACKHOLE_HANDLE, TC_H_ROOT = "blackhole", 0x10000, 0xFFFFFFFF
"""A qdisc that drops and counts all packets; part of every kernel with queues (net/sched/sch_blackhole.c)."""


class Keeper:
    """The state of process 1 of a lab's namespaces. Each public method except `reap` executes one kind of request."""

    def __init__(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        """The programs that `spawn` started, by PID."""
        self.kept = False
        """Whether the lab continues after the harness ends."""

    def spawn(
        self, fds: Sequence[int], argv: list[str], environment: dict[str, str], directory: str
    ) -> dict[str, Any]:
        """Start a program after setsid(2); the single descriptor in ``fds`` becomes its standard output and error."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=fds[0],
            stderr=fds[0],
            cwd=directory,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self.processes[process.pid] = process
        return {"pid": process.pid}

    def kill(self, _: Sequence[int], pid: int, number: int) -> dict[str, Any]:
        """Send a signal to the process group of a program that `spawn` started; after SIGKILL, wait for its end.

        The helper processes of a UML kernel are in its process group, outlive the kernel for milliseconds, and keep
        its files locked until they have ended. A kernel that boots before that panics.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        if number == signal.SIGKILL:
            deadline = Deadline.after(END_DEADLINE_S)
            wait_until(lambda: self._gone(pid), deadline, f"the end of process group {pid}", interval_s=0.001)
        return {"status": self.processes[pid].poll()}

    def _gone(self, group: int) -> bool:
        self.reap()
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return True
        return False

    def poll(self, _: Sequence[int], pid: int) -> dict[str, Any]:
        """Return the exit status of a program, or None while it runs."""
        return {"status": self.processes[pid].poll()}

    def end(self, _: Sequence[int], pid: int) -> dict[str, Any]:
        """Kill a process that `spawn` did not start, such as a daemon's child, and wait for its end."""
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            if not select.select([process], [], [], END_DEADLINE_S)[0]:
                raise TimeoutError(f"process {pid} did not end within {END_DEADLINE_S:g} s of SIGKILL")
        finally:
            os.close(process)
        self.reap()  # the kernel may have reparented the process to this one
        return {}

    def keep(self, _: Sequence[int]) -> dict[str, Any]:
        """Let the lab continue after the harness ends."""
        self.kept = True
        return {}

    def bridge(self, _: Sequence[int], name: str, address: str, prefix: int) -> dict[str, Any]:
        """Create the lab's bridge with the harness's own address."""
        with IPRoute() as ip:
            ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
            ip.link("add", ifname=name, kind="bridge")
            index = ip.link_lookup(ifname=name)[0]
            ip.addr("add", index=index, address=address, prefixlen=prefix)
            ip.link("set", index=index, state="up")
        return {}

    def tap(self, _: Sequence[int], name: str, bridge: str) -> dict[str, Any]:
        """Create a machine's network interface and attach it to the bridge."""
        with IPRoute() as ip:
            ip.link("add", ifname=name, kind="tuntap", mode="tap")
            ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up", master=ip.link_lookup(ifname=bridge)[0])
        return {}

    def gate(self, _: Sequence[int], name: str, *, deaf: bool, mute: bool) -> dict[str, Any]:
        """Make a bridge port drop or pass frames: ``deaf`` drops frames to its machine, ``mute`` frames from it."""
        with IPRoute() as ip:
            index = ip.link_lookup(ifname=name)[0]
            shut = any(one.get_attr("TCA_KIND") == BLACKHOLE for one in ip.get_qdiscs(index))
            if deaf and not shut:
                ip.tc("replace", BLACKHOLE, index, handle=BLACKHOLE_HANDLE, parent=TC_H_ROOT)
            elif shut and not deaf:
                ip.tc("del", index=index, parent=TC_H_ROOT)
            # A locked port (Linux 5.18) drops frames whose sender is not in the bridge's table, and adds no sender.
            ip.brport("set", index=index, locked=int(mute), flush=mute)
            port = ip.get_links(index)[0].get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA")
            return {"mute": bool(port.get_attr("IFLA_BRPORT_LOCKED"))}

    def traffic(self, _: Sequence[int], name: str) -> dict[str, Any]:
        """Return the numbers of frames of an interface: sent to its machine, received from it, dropped."""
        with IPRoute() as ip:
            index = ip.link_lookup(ifname=name)[0]
            counted = ip.get_links(index)[0].get_attr("IFLA_STATS64")
            gates = [one for one in ip.get_qdiscs(index) if one.get_attr("TCA_KIND") == BLACKHOLE]
        dropped = sum(one.get_attr("TCA_STATS")["drop"] for one in gates)
        return {"to": counted["tx_packets"], "from": counted["rx_packets"], "dropped": dropped}

    def reap(self) -> None:
        """Reap all ended processes, including orphans, which the kernel reparents to process 1."""
        known = self.processes
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in known:
                    known[ended.si_pid].poll()
                else:
                    os.waitpid(ended.si_pid, 0)


def refusal(error: Exception) -> dict[str, Any]:
    """Return the reply to a failed request. Errors of pyroute2 have the arguments of OSError, but another class."""
    if len(error.args) >= 2 and isinstance(error.args[0], int):
        return {"error": str(error.args[1]), "errno": error.args[0]}
    return {"error": f"{type(error).__name__}: {error}", "errno": 0}


def answer(keeper: Keeper, connection: socket.socket) -> bool:
    """Serve one request of the harness; return False if the harness has closed the connection."""
    try:
        data, fds, _, _ = socket.recv_fds(connection, MAX_PACKET, 4)
    except ConnectionError:
        return False
    if not data:
        return False
    request = json.loads(data)
    verb = request.pop("verb")
    opened: list[socket.socket] = []
    try:
        if verb == "socket":
            # A socket stays in the network namespace in which it was created.
            opened.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            reply: dict[str, Any] = {}
        else:
            reply = getattr(keeper, verb)(fds, **request)
    except Exception as error:  # noqa: BLE001  the reply reports every error
        reply = refusal(error)
    finally:
        for fd in fds:
            os.close(fd)
    rights = array.array("i", [one.fileno() for one in opened])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if opened else []
    try:
        connection.sendmsg([json.dumps(reply).encode()], ancillary)
    except OSError:  # the requester has gone, but the lab continues
        return False
    finally:
        for one in opened:
            one.close()
    return True


def hide(folders: Sequence[str]) -> None:
    """Bind-mount each folder on its place; ``folders`` is place, folder, place, folder, ..."""
    for place, folder in zip(folders[::2], folders[1::2], strict=True):
        subprocess.run(["mount", "--bind", folder, place], check=True)  # noqa: S607


def serve(path: str, lifeline: socket.socket) -> None:
    """Serve requests at the socket ``path`` until the lifeline is closed; after request `keep`, until SIGTERM."""
    keeper = Keeper()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C on the terminal interrupts the harness, which then ends the lab.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    selector = selectors.DefaultSelector()
    for source in (listener, wakeup_read, lifeline):
        selector.register(source, selectors.EVENT_READ)
    with contextlib.suppress(OSError):  # the harness has gone; detected below
        lifeline.send(READY)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif key.fileobj is lifeline:
                if not keeper.kept:
                    return
                selector.unregister(lifeline)
            elif key.fileobj == wakeup_read:
                os.read(wakeup_read, 4096)
                keeper.reap()
            elif isinstance(key.fileobj, socket.socket) and not answer(keeper, key.fileobj):
                selector.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    hide(sys.argv[3:])
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
