"""Intruders: accesses that an export with TLS or Kerberos must refuse, which a client attempts twice."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from raidproof.core.layer import Machine
from raidproof.record.observation import IntruderSeen
from raidproof.storage import kerberos, tls
from raidproof.storage.intruder import Intruder, Occasion, intruders_of
from raidproof.storage.mount import MOUNT_DEADLINE_S, mount_command
from raidproof.storage.stack import Stack

MOUNT_POINT = "/mnt/raidproof-intruder"
ANSWER_S = 10
"""Seconds within which the server must let an intruder in, else it counts as refused: a client may try for ever."""


def attempts(stack: Stack, client: Machine, when: Occasion) -> list[IntruderSeen]:
    """Let a client attempt the accesses that the export must refuse; the client has no other work meanwhile.

    The client unmounts the export first: a client of NFSv4 uses the connection of another mount of the same server
    (trunking, RFC 8881, 2.10.5), also for a mount with another transport security.
    """
    if not (kinds := intruders_of(stack.spec.mount)):
        return []
    mount = stack.mounts[client.name]
    mount.deactivate()
    seen = [_attempt(stack, client, kind, when) for kind in kinds]
    mount.activate()
    return seen


def _attempt(stack: Stack, client: Machine, kind: Intruder, when: Occasion) -> IntruderSeen:
    mount = stack.mounts[client.name]
    spec = mount.spec.model_copy(update=kind.changes)
    command = mount_command(spec, mount.source, MOUNT_POINT)
    within = ["timeout", str(ANSWER_S)]
    with _disguise(stack, client, kind):
        if kind == Intruder.NO_TICKET:
            # The machine has a ticket, with which it mounts.
            client.succeed(command, deadline_s=MOUNT_DEADLINE_S)
            user = f"--reuid={kerberos.WITHOUT_TICKET}"
            ended = client.run(["setpriv", user, "--clear-groups", *within, "ls", MOUNT_POINT])
        else:
            ended = client.run([*within, *command])
        if ended.ok or kind == Intruder.NO_TICKET:
            client.succeed(["umount", MOUNT_POINT])
    said = ended.stderr.strip().splitlines()
    return IntruderSeen(kind=kind, when=when, let_in=ended.ok, said=said[-1] if said else "no answer")


def _disguise(stack: Stack, client: Machine, kind: Intruder) -> AbstractContextManager[None]:
    if kind == Intruder.FOREIGN:
        return _foreign(stack, client)
    return stack.kerberos[client.name].other_kdc() if kind == Intruder.OTHER_KDC else nullcontext()


@contextmanager
def _foreign(stack: Stack, client: Machine) -> Iterator[None]:
    daemon = stack.tls[client.name]
    daemon.present(*tls.foreign(client.name, client.address))
    try:
        yield
    finally:
        daemon.present_own()
