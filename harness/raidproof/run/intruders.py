"""Intruders: accesses that an export with TLS or Kerberos must refuse, which a client attempts twice."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from raidproof.core.layer import Machine
from raidproof.record.observation import IntruderSeen
from raidproof.storage import kerberos, tls
from raidproof.storage.mount import MOUNT_DEADLINE_S, MountSpec, mount_command
from raidproof.storage.stack import Stack

MOUNT_POINT = "/mnt/raidproof-intruder"
ANSWER_S = 10
"""Seconds within which the server must let an intruder in, else it counts as refused: a client may try for ever."""
PLAIN, NO_CERTIFICATE, FOREIGN = (
    "a client in plain text",
    "a client without a certificate",
    "a client with a certificate of another authority",
)
AUTH_SYS, UNSIGNED, UNENCRYPTED, OTHER_KDC, NO_TICKET = (
    "a client with AUTH_SYS",
    "a client without integrity (krb5)",
    "a client without encryption (krb5i)",
    "a client with a ticket of another KDC",
    "a user without a ticket",
)
KINDS = {
    "xprtsec": {tls.NONE: (), tls.TLS: (PLAIN,), tls.MTLS: (PLAIN, NO_CERTIFICATE, FOREIGN)},
    "sec": {
        kerberos.SYS: (),
        kerberos.KRB5: (AUTH_SYS, OTHER_KDC, NO_TICKET),
        kerberos.KRB5I: (AUTH_SYS, UNSIGNED, OTHER_KDC, NO_TICKET),
        kerberos.KRB5P: (AUTH_SYS, UNSIGNED, UNENCRYPTED, OTHER_KDC, NO_TICKET),
    },
}
"""The kinds of intruder of each security that an export accepts, by the setting of the mounts."""
_CHANGES: dict[str, dict[str, Any]] = {
    PLAIN: {"xprtsec": tls.NONE},
    NO_CERTIFICATE: {"xprtsec": tls.TLS},
    # A mount without the option sec negotiates it with the server.
    AUTH_SYS: {"sec": kerberos.SYS, "other_options": ("sec=sys",)},
    UNSIGNED: {"sec": kerberos.KRB5},
    UNENCRYPTED: {"sec": kerberos.KRB5I},
}
"""The settings with which an intruder mounts, if they differ from those of the stack."""


def attempts(stack: Stack, client: Machine, when: str) -> list[IntruderSeen]:
    """Let a client attempt the accesses that the export must refuse; the client has no other work meanwhile.

    The client unmounts the export first: a client of NFSv4 uses the connection of another mount of the same server
    (trunking, RFC 8881, 2.10.5), also for a mount with another transport security.
    """
    if not (kinds := kinds_of(stack.spec.mount)):
        return []
    mount = stack.mounts[client.name]
    mount.deactivate()
    seen = [_attempt(stack, client, kind, when) for kind in kinds]
    mount.activate()
    return seen


def kinds_of(mount: MountSpec) -> tuple[str, ...]:
    """Return the kinds of intruder that the export of these mounts must refuse."""
    return tuple(kind for setting, kinds in KINDS.items() for kind in kinds[getattr(mount, setting)])


def _attempt(stack: Stack, client: Machine, kind: str, when: str) -> IntruderSeen:
    mount = stack.mounts[client.name]
    spec = mount.spec.model_copy(update=_CHANGES.get(kind, {}))
    command = mount_command(spec, mount.source, MOUNT_POINT)
    within = ["timeout", str(ANSWER_S)]
    with _disguise(stack, client, kind):
        if kind == NO_TICKET:
            # The machine has a ticket, with which it mounts.
            client.succeed(command, deadline_s=MOUNT_DEADLINE_S)
            user = f"--reuid={kerberos.WITHOUT_TICKET}"
            ended = client.run(["setpriv", user, "--clear-groups", *within, "ls", MOUNT_POINT])
        else:
            ended = client.run([*within, *command])
        if ended.ok or kind == NO_TICKET:
            client.succeed(["umount", MOUNT_POINT])
    said = ended.stderr.strip().splitlines()
    return IntruderSeen(kind=kind, when=when, let_in=ended.ok, said=said[-1] if said else "no answer")


def _disguise(stack: Stack, client: Machine, kind: str) -> AbstractContextManager[None]:
    if kind == FOREIGN:
        return _foreign(stack, client)
    return stack.kerberos[client.name].other_kdc() if kind == OTHER_KDC else nullcontext()


@contextmanager
def _foreign(stack: Stack, client: Machine) -> Iterator[None]:
    daemon = stack.tls[client.name]
    daemon.present(*tls.foreign(client.name, client.address))
    try:
        yield
    finally:
        daemon.present_own()
