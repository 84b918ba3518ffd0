import base64

from raidproof.machine.login import KeyPair, LabKeys


def test_no_two_labs_share_a_key() -> None:
    first, second = LabKeys.generate(), LabKeys.generate()
    assert len({key.public for lab in (first, second) for key in (lab.user, lab.host)}) == 4


def test_both_forms_are_of_the_same_key() -> None:
    pair = KeyPair.generate()
    kind, encoded = pair.public.split()
    assert kind == "ssh-ed25519"
    assert pair.for_paramiko().asbytes() == base64.b64decode(encoded)
    assert pair.private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")


def test_the_private_key_does_not_get_into_logs() -> None:
    keys = LabKeys.generate()
    secret = keys.user.private.splitlines()[2]
    assert secret not in repr(keys)
    assert keys.user.public.strip() in repr(keys)
