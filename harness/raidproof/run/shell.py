"""Shells in machines of kept labs: an interactive terminal, or a script on standard input."""

import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import paramiko

from raidproof.core.errors import RequestError, RigError, nearest
from raidproof.core.topology import MachineSpec
from raidproof.core.waiting import Deadline
from raidproof.lab.lab_directory import LabDirectory, LabEntry, all_labs
from raidproof.machine.agent import CHUNK
from raidproof.machine.login import LabLogin
from raidproof.machine.transport import Transport
from raidproof.namespace import Namespace
from raidproof.provider.vagrant import box

LOGIN_DEADLINE_S = 10.0
GONE_MS = 10_000
"""Milliseconds without a TCP acknowledgement after which the kernel closes a connection (tcp(7), TCP_USER_TIMEOUT)."""


@dataclass(frozen=True)
class KeptLab:
    """A lab that is still running after its run, because of ``--keep``."""

    directory: LabDirectory
    entry: LabEntry

    @property
    def machines(self) -> tuple[MachineSpec, ...]:
        """The machines of the lab; empty if the description in the lab's directory has no topology."""
        return self.entry.topology.machines if self.entry.topology else ()


def kept_labs() -> list[KeptLab]:
    """Return the kept labs that are still running on this host."""
    found = []
    for directory in all_labs():
        with suppress(RigError):  # another version of raidproof wrote the entry
            entry = directory.entry
            if entry is not None and entry.kept and entry.running:
                found.append(KeptLab(directory, entry))
    return found


def choose(labs: Sequence[KeptLab], name: str | None) -> KeptLab:
    """Return the kept lab of this name, or, without a name, the only kept lab.

    Raises:
        RequestError: no lab is kept; no kept lab has this name; or, without a name, several labs are kept.
    """
    by_name = {lab.directory.name: lab for lab in labs}
    if not by_name:
        raise RequestError("no lab is kept", remedy="./raidproof demo --keep leaves a lab running")
    if name is not None and name not in by_name:
        raise RequestError(f"no kept lab {name!r}", remedy=nearest(name, by_name))
    if name is None and len(by_name) > 1:
        raise RequestError(
            "more than one lab started with --keep is still running",
            remedy=f"choose one with --lab; {nearest('', by_name)}",
        )
    return by_name[name] if name is not None else labs[0]


def machine_of(lab: KeptLab, name: str) -> MachineSpec:
    """Return the specification of the machine with this name in a lab.

    Raises:
        RequestError: the lab has no machine of this name.
    """
    by_name = {machine.name: machine for machine in lab.machines}
    if name not in by_name:
        raise RequestError(f"no machine {name!r} in lab {lab.directory.name}", remedy=nearest(name, by_name))
    return by_name[name]


def enter(machine: str, lab: str | None = None) -> int:
    """Run a shell in a machine of a kept lab, on this process's terminal or standard input; return the exit status.

    Raises:
        RequestError: the lab or the machine is unknown.
        RigError: the lab's SSH keys are missing, the machine does not reply, or the connection broke.
    """
    chosen = choose(kept_labs(), lab)
    spec = machine_of(chosen, machine)
    keys = chosen.entry.lab_keys
    if keys is None:
        raise RigError(f"lab {chosen.directory.name} has no SSH keys, so that no machine can be reached")
    namespace = Namespace(chosen.directory.path)
    namespace.attach()

    def connection() -> socket.socket:
        return _watched(namespace.socket())

    box_login = box.saved(chosen.directory.path, spec.name, connection)
    login = box_login or LabLogin(str(spec.address.ip), keys, connection)
    transport = Transport(spec.name, login)
    deadline = Deadline.after(LOGIN_DEADLINE_S)
    try:
        transport.connect(deadline)
        channel = transport.session(deadline, "a shell")
        if not sys.stdin.isatty():
            channel.exec_command(login.command(["exec", "sh", "-s"]))
            return _converse(channel, spec.name)
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
        channel.get_pty(os.environ.get("TERM", "vt100"), columns, rows)
        channel.exec_command(login.command(["exec", "bash", "-l"]))
        with _raw_terminal(), _resizes() as resized:
            return _converse(channel, spec.name, resized)
    except (paramiko.SSHException, EOFError) as error:
        raise RigError(f"{spec.name}: a shell cannot be started: {error}") from error
    finally:
        transport.close()
        namespace.detach()


def _watched(connection: socket.socket) -> socket.socket:
    """Set TCP options that break a connection soon after its machine ends, so that the terminal does not hang."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_MS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    return connection


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Set the terminal to raw mode during the ``with`` statement, so that all keys, even Ctrl-C, reach the machine."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _resizes() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when the terminal's window has changed its size (SIGWINCH)."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def on_resize(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(writing, b"\0")

    before = signal.signal(signal.SIGWINCH, on_resize)
    try:
        yield reading
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(reading)
        os.close(writing)


def _converse(channel: paramiko.Channel, where: str, resized: int | None = None) -> int:
    """Copy bytes between the terminal and the shell until the shell ends, and return its exit status."""
    keyboard = sys.stdin.fileno()
    pending, more = b"", True
    channel.setblocking(0)
    while True:
        # Read the status before the output: when the status has arrived, all output is in the channel's buffers.
        over = channel.exit_status_ready() or channel.closed
        _show(channel)
        if over and channel.eof_received and channel.exit_status_ready():
            return channel.recv_exit_status()
        if channel.closed:
            raise RigError(f"{where}: the SSH connection broke before the shell ended")
        if pending and channel.send_ready():
            try:
                pending = pending[channel.send(pending) :]
            except OSError:  # the shell has closed its input
                pending, more = b"", False
        # After the end of the shell's output, the channel would always be readable.
        sources = [] if channel.eof_received else [channel.fileno()]
        sources += [resized] if resized is not None else []
        sources += [keyboard] if more and not pending else []
        # The channel's descriptor signals neither an exit status nor space to send.
        ready, _, _ = select.select(sources, [], [], 0.01 if pending or not more else 0.1)
        if keyboard in ready:
            pending = os.read(keyboard, CHUNK)
            if not pending:
                more = False
                channel.shutdown_write()
        if resized is not None and resized in ready:
            os.read(resized, CHUNK)
            channel.resize_pty(*os.get_terminal_size(keyboard))


def _show(channel: paramiko.Channel) -> None:
    while channel.recv_ready() and (output := channel.recv(CHUNK)):
        _write(sys.stdout.fileno(), output)
    while channel.recv_stderr_ready() and (output := channel.recv_stderr(CHUNK)):
        _write(sys.stderr.fileno(), output)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
