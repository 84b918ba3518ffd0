"""Intruders: mounts that an export with TLS must refuse, which a client attempts twice."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from raidproof.core.layer import Machine
from raidproof.record.observation import IntruderSeen
from raidproof.storage import tls
from raidproof.storage.mount import mount_command
from raidproof.storage.stack import Stack

MOUNT_POINT = "/mnt/raidproof-intruder"
ANSWER_S = 10
"""Seconds within which the server must let an intruder in, else it counts as refused: a client may try for ever."""
PLAIN, NO_CERTIFICATE, FOREIGN = (
    "a client in plain text",
    "a client without a certificate",
    "a client with a certificate of another authority",
)
KINDS = {tls.NONE: (), tls.TLS: (PLAIN,), tls.MTLS: (PLAIN, NO_CERTIFICATE, FOREIGN)}
"""The kinds of intruder of each transport security that an export accepts."""
_POLICIES = {PLAIN: tls.NONE, NO_CERTIFICATE: tls.TLS, FOREIGN: tls.MTLS}


def attempts(stack: Stack, client: Machine, when: str) -> list[IntruderSeen]:
    """Let a client attempt the mounts that the export must refuse; the client has no other work meanwhile.

    The client unmounts the export first: a client of NFSv4 uses the connection of another mount of the same server
    (trunking, RFC 8881, 2.10.5), also for a mount with another transport security.
    """
    if not (kinds := KINDS[stack.spec.mount.xprtsec]):
        return []
    mount = stack.mounts[client.name]
    mount.deactivate()
    seen = [_attempt(stack, client, kind, when) for kind in kinds]
    mount.activate()
    return seen


def _attempt(stack: Stack, client: Machine, kind: str, when: str) -> IntruderSeen:
    mount = stack.mounts[client.name]
    spec = mount.spec.model_copy(update={"xprtsec": _POLICIES[kind]})
    disguise = _foreign(stack, client) if kind == FOREIGN else nullcontext()
    with disguise:
        ended = client.run(["timeout", str(ANSWER_S), *mount_command(spec, mount.source, MOUNT_POINT)])
        if ended.ok:
            client.succeed(["umount", MOUNT_POINT])
    said = ended.stderr.strip().splitlines()
    return IntruderSeen(kind=kind, when=when, let_in=ended.ok, said=said[-1] if said else "no answer")


@contextmanager
def _foreign(stack: Stack, client: Machine) -> Iterator[None]:
    daemon = stack.tls[client.name]
    daemon.present(*tls.foreign(client.name, client.address))
    try:
        yield
    finally:
        daemon.present_own()
