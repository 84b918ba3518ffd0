"""The accesses that an export with TLS or Kerberos must refuse."""

from raidproof.storage.intruder import REFUSED, Intruder, intruders_of
from raidproof.storage.kerberos import FLAVOURS
from raidproof.storage.mount import MountSpec
from raidproof.storage.tls import POLICIES


def test_each_security_has_its_intruders() -> None:
    assert {name: tuple(refused) for name, refused in REFUSED.items()} == {"xprtsec": POLICIES, "sec": FLAVOURS}
    assert intruders_of(MountSpec()) == ()
    assert {*intruders_of(MountSpec(xprtsec="mtls", sec="krb5p"))} == {*Intruder}
