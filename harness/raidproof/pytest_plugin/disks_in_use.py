"""The member disks that a scenario left in use."""

from raidproof.core.errors import RigError
from raidproof.lab.lab import Lab
from raidproof.provider.hosts.survey import Probed, inspect
from raidproof.storage.member import disk_path, serial_of

USES = {"holder": "part of", "mount": "mounted on", "swap": "used as swap:", "claimed": "cannot be claimed:"}
"""The facts of `raidproof.guest.disk_probe` about the use of a disk, and the words before their values in errors."""


def must_be_free(lab: Lab) -> None:
    """Verify that no array, mapping or mount in the server uses a member disk, so that the next scenario can.

    Raises:
        RigError: a member disk is in use, or the server does not answer.
    """
    if found := in_use(inspect(lab.server, map(disk_path, lab.serials))):
        raise RigError(
            f"the scenario ended, but {lab.server.name} still uses member disks: {'; '.join(found)}",
            remedy="the scenario must deactivate what it activates, for example with `stack.deactivate()`",
        )


def in_use(probed: Probed) -> tuple[str, ...]:
    """Return a description of the use of each disk that is in use."""
    found = []
    for path, number in probed.links.items():
        facts = probed.facts[number]
        if uses := [f"{text} {', '.join(facts[word])}" for word, text in USES.items() if word in facts]:
            found.append(f"{serial_of(path)} is {', '.join(uses)}")
    return tuple(found)
