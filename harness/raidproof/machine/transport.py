"""Commands in a machine over SSH: pinned host keys, a deadline on everything, both streams drained in one loop."""

import logging
import select
import shlex
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline, LongWait, at_deadline, wait_until
from raidproof.machine.login import Login, Way

CHUNK = 1 << 16
SHOWN = 100
"""Characters of a command that are shown where it takes long."""
ATTEMPT_S = 5.0
"""What one attempt to log in may take, once the machine has accepted the connection."""

# It prints tracebacks of connections that are refused while a machine boots.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class RemoteCommand:
    """A command that runs in a machine."""

    def __init__(self, where: str, argv: Sequence[str], channel: paramiko.Channel) -> None:
        self.where = where
        self.argv = tuple(argv)
        self._channel = channel

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or its machine has gone."""
        return self._channel.exit_status_ready() or self._channel.closed

    def feed(self, data: bytes) -> None:
        """Give it input, and leave its input open; a machine that is gone takes none."""
        with suppress(OSError):
            self._channel.sendall(data)

    def close_input(self) -> None:
        """Tell it that there is no more input."""
        if not self._channel.eof_sent:
            self._channel.shutdown_write()

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Feed it its input, collect both its streams, and return how it ended.

        Raises:
            DeadlineExceeded: it still runs; its channel is closed.
            RigError: the connection broke before it ended.
        """
        channel = self._channel
        channel.setblocking(0)
        streams = (bytearray(), bytearray())
        try:
            wait = LongWait(f"{self.where}: {shlex.join(self.argv)[:SHOWN]}")
            while True:
                wait.goes_on()
                stdin = self._feed(stdin)
                # Ask before draining: what is said before the end is in the buffers once the end is known.
                over = channel.exit_status_ready() or channel.closed
                while channel.recv_ready() and (chunk := channel.recv(CHUNK)):
                    streams[0].extend(chunk)
                while channel.recv_stderr_ready() and (chunk := channel.recv_stderr(CHUNK)):
                    streams[1].extend(chunk)
                if over and channel.eof_received:
                    break
                if over and channel.closed:
                    raise RigError(f"{self.where}: the connection broke during: {shlex.join(self.argv)}")
                if deadline.passed:
                    raise DeadlineExceeded(f"{self.where}: still running at its deadline: {shlex.join(self.argv)}")
                # The channel's descriptor does not tell of an exit status; at the end of file it stays ready.
                if channel.eof_received:
                    channel.status_event.wait(min(0.01, deadline.remaining_s))
                else:
                    select.select([channel], [], [], min(0.01, deadline.remaining_s))
            stdout, stderr = (bytes(stream).decode(errors="replace") for stream in streams)
            return Completed(self.argv, channel.recv_exit_status(), stdout, stderr, self.where)
        finally:
            channel.close()

    def _feed(self, stdin: bytes) -> bytes:
        channel = self._channel
        while stdin and channel.send_ready():
            try:
                stdin = stdin[channel.send(stdin) :]
            except OSError:  # it closed its input without reading the rest
                return b""
        if not stdin:
            self.close_input()
        return stdin


class Transport:
    """The SSH connection to one machine."""

    def __init__(self, where: str, login: Login) -> None:
        self.where = where
        self.login = login
        self._client: paramiko.SSHClient | None = None
        self._attempted: Way | None = None
        self._closed = False

    def connect(self, deadline: Deadline, still_possible: Callable[[], None] = lambda: None) -> None:
        """Log in, retrying while the machine boots.

        ``still_possible`` is asked before each try and raises when the machine can no longer answer.
        """

        self._closed = False

        def attempt() -> paramiko.SSHClient | None:
            still_possible()
            return self._attempt(min(ATTEMPT_S, max(0.1, deadline.remaining_s)))

        self._client = wait_until(attempt, deadline, f"SSH on {self.where}", interval_s=0.02)

    def _attempt(self, timeout_s: float) -> paramiko.SSHClient | None:
        try:
            self._attempted = way = self.login.connect()
        except OSError:
            return None
        client = paramiko.SSHClient()
        try:
            if self._closed:  # while it was connecting: nobody has shut this one down
                raise ConnectionAbortedError
            way.settimeout(timeout_s)
            self.login.authenticate(client, way, timeout_s)
        except (paramiko.BadHostKeyException, paramiko.AuthenticationException, IncompatiblePeer) as error:
            client.close()
            way.close()
            raise RigError(f"{self.where} answers, but not as the machine that it should be: {error}") from error
        except (OSError, EOFError, paramiko.SSHException):
            client.close()
            way.close()
            return None
        return client

    def start(self, argv: Sequence[str], deadline: Deadline) -> RemoteCommand:
        """Start a command without waiting for its end.

        Raises:
            RigError: there is no connection, it broke, or nobody has answered by the deadline.
        """
        channel = self.session(deadline, shlex.join(argv))
        try:
            # paramiko waits for the answer without a limit; a machine that went meanwhile never gives it.
            with at_deadline(deadline, channel.close):
                channel.exec_command(self.login.command(argv))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise RigError(f"{self.where}: cannot start: {shlex.join(argv)}: {error}") from error
        return RemoteCommand(self.where, argv, channel)

    def session(self, deadline: Deadline, purpose: str) -> paramiko.Channel:
        """Return a channel on which nothing runs yet; what is sent on it waits until the deadline.

        Raises:
            RigError: there is no connection, or it broke; names the purpose.
        """
        try:
            channel = self.connected.open_session(timeout=max(0.1, deadline.remaining_s))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise RigError(f"{self.where}: cannot start: {purpose}: {error}") from error
        channel.settimeout(max(0.1, deadline.remaining_s))
        return channel

    @property
    def alive(self) -> bool:
        """Whether there is a connection, as far as this side knows."""
        transport = self._client.get_transport() if self._client else None
        return transport is not None and transport.is_active()

    @property
    def connected(self) -> paramiko.Transport:
        """The connection itself.

        Raises:
            RigError: there is none.
        """
        transport = self._client.get_transport() if self._client else None
        if transport is None or not transport.is_active():
            raise RigError(f"{self.where}: no connection")
        return transport

    def close(self) -> None:
        """Drop the connection, and one that another thread tries to make; commands that run see it broken."""
        self._closed = True
        if isinstance(way := self._attempted, socket.socket):
            with suppress(OSError):  # not connected, or closed already
                way.shutdown(socket.SHUT_RDWR)
        elif way is not None:
            way.close()
        if self._client is not None:
            self._client.close()
            self._client = None
