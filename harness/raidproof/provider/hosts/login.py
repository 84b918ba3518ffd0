"""SSH logins to existing machines, according to the user's ~/.ssh/config and known_hosts."""

import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import paramiko

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RequestError
from raidproof.core.waiting import Deadline
from raidproof.machine.login import Way, as_root
from raidproof.machine.machine import Remote
from raidproof.machine.transport import Transport
from raidproof.provider.hosts.inventory import HostSpec

CONFIG = Path("~/.ssh/config")
"""The user's SSH configuration (ssh_config(5))."""
KNOWN_HOSTS = (
    Path("~/.ssh/known_hosts"),
    Path("~/.ssh/known_hosts2"),
    Path("/etc/ssh/ssh_known_hosts"),
    Path("/etc/ssh/ssh_known_hosts2"),
)
"""The files with the host keys that OpenSSH accepts by default: the user's two, then the system's (ssh_config(5))."""
CONNECT_S = 3.0
"""Seconds for one attempt to connect; a machine may be far away, or behind a proxy that must log in first."""

REACH_DEADLINE_S = 30.0
"""Seconds within which a machine must accept a login."""


class Runs(Protocol):
    """The interface of a machine that `require_root` uses."""

    @property
    def name(self) -> str:
        """The name of the machine in messages."""

    def run(self, argv: Sequence[str], *, deadline_s: float = DEFAULT_DEADLINE_S) -> Completed:
        """Run a command, and return its output and its status, which may be a failure."""


class _Unknown(paramiko.RejectPolicy):
    """Refuses a machine whose host key is not in known_hosts, by an error with a remedy."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def missing_host_key(self, _client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        raise RequestError(
            f"the host key of {hostname} is not in known_hosts: {key.get_name()} {key.fingerprint}",
            remedy="compare this key with the machine's, and accept it by a login with ssh; or add the output of: "
            f"ssh-keyscan -p {self._port} {self._host}",
        )


class HostLogin:
    """The SSH login to one machine, with the settings of the user's SSH configuration."""

    def __init__(self, host: str, user: str | None = None, *, sudo: bool = False, config: Path = CONFIG) -> None:
        """Read the settings for ``host``, an alias, a host name or an address.

        ``user`` overrides the user of the configuration. With ``sudo``, commands run as root by sudo.

        Raises:
            RequestError: ``config`` cannot be read, or contains an invalid port.
        """
        self._sudo = sudo
        self._options = _options(config.expanduser(), host)
        self.hostname = str(self._options["hostname"])
        """The host name or address that the configuration gives for ``host``."""
        self.user = user or self._options.get("user")
        """The user to log in as; None: the user who runs the harness."""
        try:
            self.port = int(self._options.get("port", 22))
        except ValueError as error:
            raise RequestError(f"{config}: port {self._options['port']!r} of {host} is not a number") from error

    @property
    def proxy(self) -> str | None:
        """The proxy command, whose input and output are the connection; None for a direct connection."""
        command, jump = self._options.get("proxycommand"), self._options.get("proxyjump")
        if command and command.lower() != "none":
            return str(command)
        if not jump or jump.lower() == "none":
            return None
        *first, last = (hop.strip() for hop in jump.split(","))
        hops = ["-J", ",".join(first)] if first else []
        strict = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
        destination = last if last.startswith("ssh://") else f"ssh://{last}"
        return shlex.join(["ssh", *strict, *hops, "-W", f"[{self.hostname}]:{self.port}", destination])

    def connect(self) -> Way:
        """Return a connection to the machine's SSH port, direct or by the proxy command.

        Raises:
            OSError: the machine does not accept a connection.
        """
        if proxy := self.proxy:
            return paramiko.ProxyCommand(proxy)
        connection = socket.create_connection((self.hostname, self.port), timeout=CONNECT_S)
        # Without TCP_NODELAY each command waits for a delayed acknowledgement of the machine.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in with the keys of the SSH configuration, with those of the SSH agent, or with OpenSSH's default keys.

        Raises:
            RequestError: the machine's host key is not in known_hosts.
            paramiko.SSHException: known_hosts has another host key of the machine, or the machine refuses the login.
        """
        for path in self.known_hosts:
            with suppress(FileNotFoundError):
                client.load_system_host_keys(str(path))
        client.set_missing_host_key_policy(_Unknown(self.hostname, self.port))
        alias = self._options.get("hostkeyalias")
        identities = [str(path) for path in map(_expanded, self._options.get("identityfile", ())) if path.exists()]
        try:
            client.connect(
                alias or self.hostname,
                # known_hosts has a HostKeyAlias without a port.
                port=22 if alias else self.port,
                username=self.user,
                key_filename=identities or None,  # type: ignore[arg-type]  # the stubs lack the list of files
                sock=way,
                look_for_keys=self._options.get("identitiesonly") != "yes",
                allow_agent=str(self._options.get("identityagent", "")).lower() != "none",
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
            )
        except RequestError:
            client.close()
            way.close()
            raise

    @property
    def known_hosts(self) -> tuple[Path, ...]:
        """The files with accepted host keys: UserKnownHostsFile or else the user's default files, and the system's."""
        named = shlex.split(self._options.get("userknownhostsfile", ""))
        return tuple(map(_expanded, named)) + KNOWN_HOSTS[2:] if named else tuple(map(_expanded, KNOWN_HOSTS))

    def command(self, argv: Sequence[str]) -> str:
        """Return the line that the user's login shell must execute to run a command as root."""
        return as_root(argv) if self._sudo else shlex.join(argv)

    def answers(self) -> bool:
        """Return whether the machine's SSH server sends its greeting; an open connection may end at a proxy."""
        try:
            way = self.connect()
        except OSError:
            return False
        try:
            way.settimeout(CONNECT_S)
            return way.recv(4) == b"SSH-"
        except (OSError, paramiko.SSHException):
            return False
        finally:
            way.close()


def require_root(machine: Runs) -> None:
    """Check that commands on a machine run as root.

    Raises:
        RequestError: commands run as another user, or sudo needs a password.
    """
    who = machine.run(["id", "-u"])
    if who.ok and who.stdout.strip() == "0":
        return
    if "password is required" in who.stderr or "a terminal is required" in who.stderr:
        raise RequestError(
            f"{machine.name}: sudo asks for a password, which raidproof does not have",
            remedy="add a line for the user to a file in /etc/sudoers.d: USER ALL=(ALL) NOPASSWD: ALL",
        )
    answer = who.stderr.strip() or f"the command id runs with user id {who.stdout.strip()}"
    raise RequestError(
        f"{machine.name}: commands do not run as root: {answer}",
        remedy="log in as root, or add sudo = true to this machine in the inventory",
    )


def _options(path: Path, host: str) -> paramiko.SSHConfigDict:
    try:
        config = paramiko.SSHConfig.from_path(str(path)) if path.exists() else paramiko.SSHConfig()
        return config.lookup(host)
    except (OSError, UnicodeDecodeError, paramiko.SSHException, ImportError) as error:
        # ImportError: `Match exec` in the configuration needs a library that is not installed.
        raise RequestError(f"the SSH configuration {path} cannot be read: {error}") from error


def _expanded(path: str | Path) -> Path:
    return Path(path).expanduser()


@dataclass(frozen=True)
class Reached(Remote):
    """An existing machine with an open SSH connection, outside of a lab."""

    name: str
    """The name of the machine in the inventory."""
    address: str
    """The host name or address of the machine."""
    transport: Transport


def login_of(host: HostSpec) -> HostLogin:
    """Return the login to a machine of an inventory.

    Raises:
        RequestError: ~/.ssh/config cannot be read.
    """
    return HostLogin(host.host, host.user, sudo=host.sudo)


@contextmanager
def reached(hosts: Sequence[HostSpec], deadline_s: float = REACH_DEADLINE_S) -> Iterator[tuple[Reached, ...]]:
    """Log in to machines of an inventory, in order, and check that commands run as root; log out at the end.

    Raises:
        DeadlineExceeded: a machine accepts no connection within ``deadline_s`` seconds.
        RequestError: a machine's host key is not in known_hosts, or commands do not run as root.
        RigError: a machine refuses the login.
    """
    with ExitStack() as undo:
        machines = []
        for host in hosts:
            login = login_of(host)
            transport = Transport(host.name, login)
            undo.callback(transport.close)
            transport.connect(Deadline.after(deadline_s))
            machine = Reached(host.name, host.address or login.hostname, transport)
            require_root(machine)
            machines.append(machine)
        yield tuple(machines)
