"""The accesses that an export with TLS or Kerberos must refuse."""

from enum import StrEnum
from typing import Any

from raidproof.storage import kerberos, tls
from raidproof.storage.mount import MountSpec


class Intruder(StrEnum):
    """Who attempts an access without the security that an export requires."""

    PLAIN = "a client in plain text"
    NO_CERTIFICATE = "a client without a certificate"
    FOREIGN = "a client with a certificate of another authority"
    AUTH_SYS = "a client with AUTH_SYS"
    UNSIGNED = "a client without integrity (krb5)"
    UNENCRYPTED = "a client without encryption (krb5i)"
    OTHER_KDC = "a client with a ticket of another KDC"
    NO_TICKET = "a user without a ticket"

    @property
    def changes(self) -> dict[str, Any]:
        """The settings with which this intruder mounts, if they differ from those of the stack."""
        return _CHANGES.get(self, {})


class Occasion(StrEnum):
    """When an intruder attempts an access in a crash test."""

    BEFORE = "before the work"
    AFTER = "after the fault"


_CHANGES: dict[Intruder, dict[str, Any]] = {
    Intruder.PLAIN: {"xprtsec": tls.NONE},
    Intruder.NO_CERTIFICATE: {"xprtsec": tls.TLS},
    # A mount without the option sec negotiates it with the server.
    Intruder.AUTH_SYS: {"sec": kerberos.SYS, "other_options": ("sec=sys",)},
    Intruder.UNSIGNED: {"sec": kerberos.KRB5},
    Intruder.UNENCRYPTED: {"sec": kerberos.KRB5I},
}
REFUSED: dict[str, dict[str, tuple[Intruder, ...]]] = {
    "xprtsec": {
        tls.NONE: (),
        tls.TLS: (Intruder.PLAIN,),
        tls.MTLS: (Intruder.PLAIN, Intruder.NO_CERTIFICATE, Intruder.FOREIGN),
    },
    "sec": {
        kerberos.SYS: (),
        kerberos.KRB5: (Intruder.AUTH_SYS, Intruder.OTHER_KDC, Intruder.NO_TICKET),
        kerberos.KRB5I: (Intruder.AUTH_SYS, Intruder.UNSIGNED, Intruder.OTHER_KDC, Intruder.NO_TICKET),
        kerberos.KRB5P: (
            Intruder.AUTH_SYS,
            Intruder.UNSIGNED,
            Intruder.UNENCRYPTED,
            Intruder.OTHER_KDC,
            Intruder.NO_TICKET,
        ),
    },
}
"""The intruders that an export must refuse, by the setting of the mounts and its value."""


def intruders_of(mount: MountSpec) -> tuple[Intruder, ...]:
    """Return the intruders that the export of these mounts must refuse."""
    return tuple(one for setting, refused in REFUSED.items() for one in refused[getattr(mount, setting)])
