"""Which ways of making machines can show a crash state."""

from raidproof.core.errors import RequestError
from raidproof.provider.qemu import machine as qemu
from raidproof.provider.uml import machine as uml

SHOW = (uml.NAME, qemu.NAME)
"""Providers whose machines have the disk engine's disks and boot in seconds, as each look at a cold machine takes."""


def require_shown(provider: str) -> None:
    """Do nothing if the machines of a provider can show crash states.

    Raises:
        RequestError: they cannot.
    """
    if provider not in SHOW:
        raise not_shown(provider)


def not_shown(provider: str) -> RequestError:
    """Return the refusal."""
    return RequestError(
        f"provider {provider}: crash states need the disk engine's disks, and machines that boot in seconds",
        remedy=f"use provider {' or '.join(SHOW)}",
    )
