"""The SSH connection to a machine: known host keys only, a deadline for every operation, an agent in the machine."""

import logging
import shlex
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from raidproof.core.command import Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.log import logger
from raidproof.core.waiting import Deadline, at_deadline, wait_until
from raidproof.machine import agent
from raidproof.machine.agent import BROKEN, Agent, ChannelCommand, NoAgent, RemoteCommand
from raidproof.machine.login import Login, Way

CHUNK = 1 << 16
"""Greatest number of bytes that one call receives."""
LOOPBACK = "127.0.0.1"
ATTEMPT_S = 5.0
"""Seconds of one attempt to log in after the machine has accepted the connection."""

# While a machine boots, paramiko would log a traceback for each refused connection.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class Transport:
    """The SSH connection to one machine."""

    def __init__(self, where: str, login: Login) -> None:
        self.where = where
        self.login = login
        self._client: paramiko.SSHClient | None = None
        self._attempted: Way | None = None
        self._closed = False
        self._starting = threading.Lock()
        self._agent: Agent | None = None
        self._no_agent: str | None = None
        """The reason why the machine cannot run the agent; None as long as no attempt has failed."""

    def connect(self, deadline: Deadline, still_possible: Callable[[], None] = lambda: None) -> None:
        """Log in, and repeat failed attempts while the machine boots.

        ``still_possible`` is called before each attempt, and raises an error if the machine is not running.

        Raises:
            DeadlineExceeded: no attempt succeeded.
            RigError: the machine has another host key, or refuses the user's key.
        """
        self._closed = False
        self._agent = self._no_agent = None

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
            if self._closed:  # another thread called close() during the attempt
                raise ConnectionAbortedError
            way.settimeout(timeout_s)
            self.login.authenticate(client, way, timeout_s)
        except (paramiko.BadHostKeyException, paramiko.AuthenticationException, IncompatiblePeer) as error:
            client.close()
            way.close()
            raise RigError(f"{self.where}: SSH login refused, or unexpected host key: {error}") from error
        except BROKEN:
            client.close()
            way.close()
            return None
        return client

    def run(self, argv: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command in the machine, and return its result, whatever its exit status.

        Raises:
            DeadlineExceeded: the command was still running, and was killed.
            RigError: no SSH connection is open, or it broke before the command ended.
        """
        running = self._agent_for(shlex.join(argv), deadline)
        if running is None:
            return self.on_own_channel(argv, deadline).wait(deadline, stdin)
        return agent.run(running, argv, deadline, stdin)

    def start(self, argv: Sequence[str], deadline: Deadline) -> RemoteCommand:
        """Start a command in the machine, and return when the command is running.

        Raises:
            RigError: no SSH connection is open, it broke, or the command did not start before the deadline.
        """
        running = self._agent_for(shlex.join(argv), deadline)
        if running is None:
            return self.on_own_channel(argv, deadline)
        return agent.start(running, argv, deadline)

    def read(self, paths: Sequence[str], deadline: Deadline) -> list[bytes | str]:
        """Return the content of each file; for an unreadable file, the reason as text.

        Raises:
            DeadlineExceeded: the files were not read before the deadline, for example because a file system hangs.
            RigError: no SSH connection is open, or it broke.
            RequirementMissing: the machine cannot run the agent.
        """
        return agent.read(self._agent_to(f"read {shlex.join(paths)}", deadline), paths, deadline)

    def write(self, files: Mapping[str, bytes], deadline: Deadline) -> dict[str, str]:
        """Write each file in one write(2), and return the reason of each failure by path. Raises errors as `read`."""
        return agent.write(self._agent_to(f"write {shlex.join(files)}", deadline), files, deadline)

    def resolve(self, paths: Sequence[str], deadline: Deadline) -> list[str | None]:
        """Return each path with symbolic links resolved, or None if it does not exist. Raises the errors of `read`."""
        return agent.resolve(self._agent_to(f"resolve {shlex.join(paths)}", deadline), paths, deadline)

    def _agent_to(self, purpose: str, deadline: Deadline) -> Agent:
        running = self._agent_for(purpose, deadline)
        if running is None:
            raise RequirementMissing(
                f"{self.where}: cannot {purpose}: the machine cannot run raidproof's agent: {self._no_agent}",
                remedy="install python3, version 3.9 or newer, in the machine",
            )
        return running

    def _agent_for(self, purpose: str, deadline: Deadline) -> Agent | None:
        """Return the machine's agent, and start it if it is not running; None if the machine cannot run the agent."""
        with self._starting:
            if self._no_agent is not None:
                return None
            if self._agent is not None and self._agent.alive:
                return self._agent
            if self._agent is not None and self.alive:
                logger.warning("%s: starting the agent again: %s", self.where, self._agent.end)
            try:
                self._agent = agent.begin(
                    self.where, self.on_own_channel(agent.ARGV, deadline, purpose).channel, deadline
                )
            except NoAgent as error:
                self._no_agent = str(error)
                logger.warning(
                    "%s: cannot run raidproof's agent; each command uses its own SSH channel: %s", self.where, error
                )
            return self._agent

    def on_own_channel(self, argv: Sequence[str], deadline: Deadline, purpose: str | None = None) -> ChannelCommand:
        """Start a command on a channel of its own, without the agent; ``purpose``: for messages, default: the command.

        Raises:
            RigError: no SSH connection is open, it broke, or the command did not start before the deadline.
        """
        purpose = purpose or shlex.join(argv)
        channel = self.session(deadline, purpose)
        try:
            # paramiko waits without limit for the answer, which a machine without power never sends.
            with at_deadline(deadline, partial(_close, channel)):
                channel.exec_command(self.login.command(argv))
        except BROKEN as error:
            raise RigError(f"{self.where}: cannot start: {purpose}: {error}") from error
        return ChannelCommand(self.where, argv, channel)

    def session(self, deadline: Deadline, purpose: str) -> paramiko.Channel:
        """Return a new SSH channel; a call that sends data on the channel waits at most until the deadline.

        Raises:
            RigError: no SSH connection is open, or it broke; the message contains ``purpose``.
        """
        try:
            channel = self.connected.open_session(timeout=max(0.1, deadline.remaining_s))
        except BROKEN as error:
            raise RigError(f"{self.where}: cannot start: {purpose}: {error}") from error
        channel.settimeout(max(0.1, deadline.remaining_s))
        return channel

    def forward(self, connect: Callable[[], socket.socket]) -> int:
        """Let the machine listen on a free port of its loopback address, and return the port.

        Each connection to the port is forwarded: its data is sent to a new socket that ``connect`` returns. A new
        forwarding replaces an earlier one. The end of the SSH connection ends the forwarding.

        Raises:
            RigError: no SSH connection is open.
            paramiko.SSHException: the machine's SSH server does not allow forwarding.
        """

        def accept(channel: paramiko.Channel, _origin: tuple[str, int], _to: tuple[str, int]) -> None:
            threading.Thread(target=_carry, args=(channel, connect), daemon=True, name="forward").start()

        return self.connected.request_port_forward(LOOPBACK, 0, accept)

    @property
    def alive(self) -> bool:
        """Whether the SSH connection is open; a loss of the machine's power may not have been noticed yet."""
        transport = self._client.get_transport() if self._client else None
        return transport is not None and transport.is_active()

    @property
    def connected(self) -> paramiko.Transport:
        """The open SSH connection.

        Raises:
            RigError: no SSH connection is open.
        """
        transport = self._client.get_transport() if self._client else None
        if transport is None or not transport.is_active():
            raise RigError(f"{self.where}: no SSH connection is open")
        return transport

    def close(self) -> None:
        """Close the SSH connection, also if another thread is just opening it. Running commands end with an error."""
        self._closed = True
        if isinstance(way := self._attempted, socket.socket):
            with suppress(OSError):  # not connected, or closed already
                way.shutdown(socket.SHUT_RDWR)
        elif way is not None:
            way.close()
        self._agent = None
        if self._client is not None:
            self._client.close()
            self._client = None


def _close(channel: paramiko.Channel) -> None:
    """Close a channel; the connection may have broken already."""
    with suppress(OSError, EOFError):
        channel.close()


def _carry(channel: paramiko.Channel, connect: Callable[[], socket.socket]) -> None:
    """Send the data that arrives on a channel to a new socket that ``connect`` returns, until either side ends."""
    with suppress(OSError, EOFError), connect() as target:
        while data := channel.recv(CHUNK):
            target.sendall(data)
    channel.close()
