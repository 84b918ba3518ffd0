"""RPC with TLS (RFC 9289): the certificates of a lab, and the daemon tlshd(8) that carries out handshakes.

The keys live as long as the stack: the harness makes them, and stores them nowhere but in the memory of machines.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from raidproof.core.certificate import builder, key_as_pem, name_of, new_key, pem_of
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine
from raidproof.core.waiting import Deadline, wait_until, wall_clock

NONE, TLS, MTLS = "none", "tls", "mtls"
POLICIES = (NONE, TLS, MTLS)
"""The values of the option xprtsec (nfs(5), exports(5)): plain text; TLS; TLS with a certificate of the client."""
FOLDER = "/run/raidproof-tls"
"""The folder of a machine with its key, its certificate, and the certificate of the authority. It is in memory."""
AUTHORITY, CERTIFICATE, KEY, CONFIG, LOG = (
    f"{FOLDER}/{name}" for name in ("authority.pem", "certificate.pem", "key.pem", "tlshd.conf", "log")
)
PROGRAM = "tlshd"
VALID = timedelta(days=7)
"""Time for which certificates are valid: longer than any run."""
_COMMAND = (PROGRAM, "-s", "-c", CONFIG)
_OURS = f"^{' '.join(_COMMAND)}$"
_STARTED = "linked into our session keyring"
"""A message of tlshd's log at its start."""
_START_DEADLINE_S = 30.0
_KEY_TYPE = "key_type_asymmetric"
"""Symbol of the kernel's keys for certificates (CONFIG_ASYMMETRIC_KEY_TYPE).

tlshd adds the certificate of a client to the kernel's keys, by which nfsd knows that the client has one.
"""
_DETACHED = 'setsid --fork "$@" > "$0" 2>&1 < /dev/null'
"""A script that starts a daemon which does not detach itself; ``$0`` is the file of its messages."""


class Authority:
    """A certificate authority that is only in the memory of this process."""

    def __init__(self, name: str = "raidproof lab") -> None:
        self._key = new_key()
        self._name = name_of(name)
        self._certificate = (
            builder(self._name, self._name, self._key.public_key(), _dates())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> str:
        """The certificate of the authority, as PEM."""
        return pem_of(self._certificate)

    def issue(self, name: str, address: str) -> tuple[str, str]:
        """Return a new certificate of a machine with this name and IP address, and its key, both as PEM."""
        key = new_key()
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address(address))])
        certificate = (
            builder(name_of(name), self._name, key.public_key(), _dates())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return pem_of(certificate), key_as_pem(key)


def _dates() -> tuple[datetime, datetime]:
    now = wall_clock()
    # Clocks of machines may differ.
    return now - timedelta(hours=1), now + VALID


def config() -> str:
    """Return the configuration of tlshd (tlshd.conf(5))."""
    own = f"x509.certificate={CERTIFICATE}\nx509.private_key={KEY}\n"
    return (
        "[debug]\nloglevel=1\n"
        f"[authenticate.client]\nx509.truststore={AUTHORITY}\n{own}"
        f"[authenticate.server]\nx509.truststore={AUTHORITY}\n{own}"
    )


class Tls:
    """The daemon tlshd of a machine, with a certificate of the lab's authority."""

    def __init__(self, machine: Machine, authority: Authority, *, asks_clients: bool = False) -> None:
        """``asks_clients``: whether nfsd on this machine accepts only clients with a certificate."""
        self.machine = machine
        self._asks_clients = asks_clients
        self._authority = authority
        self._own = authority.issue(machine.name, machine.address)

    def activate(self) -> None:
        """Write key and certificates, and start tlshd; also after a reboot of the machine.

        Raises:
            RequirementMissing: the machine has no tlshd, or its kernel cannot tell whether a client has a certificate.
            RigError: another tlshd is running, or tlshd does not start.
        """
        self._refuse_kernel()
        running = self.machine.run(["pgrep", "--full", _OURS]).ok
        if not running:
            self._refuse_programs()
            self.machine.succeed(["mkdir", "--parents", "--mode=0700", FOLDER])
            self.machine.put(config(), CONFIG)
        # tlshd reads these files again at each handshake.
        self.machine.put(self._authority.certificate, AUTHORITY)
        self.present(*self._own)
        if not running:
            self.machine.succeed(["sh", "-c", _DETACHED, LOG, *_COMMAND])
        deadline = Deadline.after(_START_DEADLINE_S)
        what = f"{self.machine.name}: {PROGRAM} to start"
        wait_until(lambda: _STARTED in self.machine.get(LOG), deadline, what, 0.1)

    def present(self, certificate: str, key: str) -> None:
        """Let the machine present this certificate in its next handshakes."""
        self.machine.put(key, KEY)
        self.machine.succeed(["chmod", "0600", KEY])
        self.machine.put(certificate, CERTIFICATE)

    def present_own(self) -> None:
        """Let the machine present its own certificate again."""
        self.present(*self._own)

    def _refuse_kernel(self) -> None:
        self.machine.run(["modprobe", "--quiet", "--all", "tls", "asymmetric_keys"])
        if self._asks_clients and not self.machine.run(["grep", "--quiet", _KEY_TYPE, "/proc/kallsyms"]).ok:
            raise RequirementMissing(
                f"{self.machine.name}: xprtsec = {MTLS}: the kernel lacks CONFIG_ASYMMETRIC_KEY_TYPE, without which "
                "nfsd refuses each client",
                remedy=f'write xprtsec = "{TLS}", or use provider qemu',
            )

    def _refuse_programs(self) -> None:
        if not self.machine.run(["which", PROGRAM]).ok:
            raise RequirementMissing(
                f"{self.machine.name}: no program {PROGRAM}, which xprtsec needs",
                remedy="install the package ktls-utils, or use an image that has it",
            )
        if self.machine.run(["pgrep", "--exact", PROGRAM]).ok:
            raise RigError(
                f"{self.machine.name}: {PROGRAM} is already running, with other certificates",
                remedy=f"stop it: systemctl stop {PROGRAM}",
            )

    def deactivate(self) -> None:
        """End the daemon, and remove key and certificates."""
        self.machine.run(["pkill", "--full", _OURS])
        self.machine.succeed(["rm", "--recursive", "--force", FOLDER])


def foreign(name: str, address: str) -> tuple[str, str]:
    """Return a certificate of an authority that no machine trusts, and its key, as PEM."""
    return Authority("another authority").issue(name, address)


def daemons(policy: str, server: Machine, clients: Iterable[Machine]) -> dict[str, Tls]:
    """Return the daemon of each machine by name; empty if the policy is plain text."""
    if policy == NONE:
        return {}
    authority = Authority()
    of_clients = {client.name: Tls(client, authority) for client in clients}
    return {server.name: Tls(server, authority, asks_clients=policy == MTLS), **of_clients}
