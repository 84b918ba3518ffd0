"""What is confirmed: a digest of an inventory, and of what was found where it points."""

import hashlib
import json

from raidproof.core.errors import RigError
from raidproof.provider.hosts.facts import Survey
from raidproof.provider.hosts.gate import identity_of
from raidproof.provider.hosts.inventory import Inventory

SHORT = 8
"""Characters of a fingerprint that a person has to type."""


def digest(inventory: Inventory, machine_id: str) -> str:
    """Return the digest of an inventory on its server: what each mark carries.

    Raises:
        RigError: the server has no /etc/machine-id, so it cannot be told from others.
    """
    if not machine_id:
        raise RigError(f"{inventory.server.name} has no /etc/machine-id", remedy="systemd-machine-id-setup makes one")
    return _sha256({"inventory": inventory.model_dump(mode="json"), "machine": machine_id})


def fingerprint(inventory: Inventory, survey: Survey) -> str:
    """Return the digest of an inventory and of the disks that it was found to name: what a person confirms.

    Raises:
        RigError: as `digest`.
    """
    identities = {}
    for serial, disk in inventory.disks.items():
        facts = survey.disks.get(survey.links.get(disk.id, ""))
        identities[serial] = identity_of(disk.id, facts).model_dump(mode="json") if facts else None
    return _sha256({"inventory": digest(inventory, survey.machine_id), "disks": identities})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
