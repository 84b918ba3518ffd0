"""A command that runs in a machine, and how it is waited for."""

import select
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import paramiko

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline, LongWait

CHUNK = 1 << 16
SHOWN = 100
"""Characters of a command that are shown where it takes long."""


class RemoteCommand(Protocol):
    """A command that runs in a machine."""

    where: str
    argv: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or its machine has gone."""

    def feed(self, data: bytes) -> None:
        """Give it input, and leave its input open; a machine that is gone takes none."""

    def close_input(self) -> None:
        """Tell it that there is no more input."""

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Feed it the rest of its input, collect both its streams, and return how it ended.

        Raises:
            DeadlineExceeded: it still runs.
            RigError: the connection broke before it ended.
        """


class ChannelCommand:
    """A command on an SSH channel of its own."""

    def __init__(self, where: str, argv: Sequence[str], channel: paramiko.Channel) -> None:
        self.where = where
        self.argv = tuple(argv)
        self.channel = channel

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or its machine has gone."""
        return self.channel.exit_status_ready() or self.channel.closed

    def feed(self, data: bytes) -> None:
        """Give it input, and leave its input open; a machine that is gone takes none."""
        with suppress(OSError):
            self.channel.sendall(data)

    def close_input(self) -> None:
        """Tell it that there is no more input."""
        if not self.channel.eof_sent:
            self.channel.shutdown_write()

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Feed it its input, collect both its streams, and return how it ended.

        Raises:
            DeadlineExceeded: it still runs; its channel is closed.
            RigError: the connection broke before it ended.
        """
        channel = self.channel
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
        channel = self.channel
        while stdin and channel.send_ready():
            try:
                stdin = stdin[channel.send(stdin) :]
            except OSError:  # it closed its input without reading the rest
                return b""
        if not stdin:
            self.close_input()
        return stdin
