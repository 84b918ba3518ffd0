"""The accesses that an export with TLS or Kerberos must refuse."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.command import Completed
from raidproof.run.intruders import MOUNT_POINT, attempts
from raidproof.storage.intruder import Intruder, Occasion
from raidproof.storage.kerberos import WITHOUT_TICKET
from raidproof.storage.mount import MountSpec
from raidproof.storage.stack import Stack


class Client:
    """A fake client: the server lets it in with the policies and flavours of ``accepted``."""

    name = "client1"
    address = "10.77.0.21"

    def __init__(self, *accepted: str) -> None:
        self.accepted = accepted
        self.certificate = self.kdc = "own"
        self.attempts: list[tuple[str, str]] = []
        self.flavours: list[tuple[str, str]] = []
        self.users: list[str] = []
        self.unmounted = 0
        self.mounted = True

    def run(self, argv: Sequence[str], **_: Any) -> Completed:
        assert not self.mounted, "a client of NFSv4 would use the connection of the other mount"
        if argv[0] == "setpriv":
            self.users.append(argv[1])
            return self._ended(argv, lets_in=argv[1] in self.accepted)
        options = argv[argv.index("--options") + 1].split(",")
        policy, flavour = (
            next((one.removeprefix(f"{name}=") for one in options if one.startswith(f"{name}=")), usual)
            for name, usual in (("xprtsec", "none"), ("sec", "any"))
        )
        self.attempts.append((policy, self.certificate))
        self.flavours.append((flavour, self.kdc))
        return self._ended(argv, lets_in={policy, flavour} & {*self.accepted} != set())

    def _ended(self, argv: Sequence[str], *, lets_in: bool) -> Completed:
        return Completed(tuple(argv), int(not lets_in), "", "x\nmount.nfs: Operation not permitted\n", self.name)

    def succeed(self, argv: Sequence[str], **_: Any) -> str:
        # The mount of a machine with a ticket, as which a user without a ticket then works.
        assert argv == ["umount", MOUNT_POINT] or "sec=krb5" in argv[argv.index("--options") + 1]
        self.unmounted += argv[0] == "umount"
        return ""

    def activate(self) -> None:
        self.mounted = True

    def deactivate(self) -> None:
        self.mounted = False

    def present(self, *_: str) -> None:
        self.certificate = "foreign"

    def present_own(self) -> None:
        self.certificate = "own"

    @contextmanager
    def other_kdc(self) -> Iterator[None]:
        self.kdc = "other"
        yield
        self.kdc = "own"


def stack_on(client: Client, **settings: str) -> Stack:
    spec = MountSpec.model_validate(settings)
    mount = SimpleNamespace(
        spec=spec, source="10.77.0.10:/srv/raidproof", activate=client.activate, deactivate=client.deactivate
    )
    fake = SimpleNamespace(
        spec=SimpleNamespace(mount=spec),
        mounts={client.name: mount},
        tls={client.name: client},
        kerberos={client.name: client},
    )
    return cast("Stack", fake)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", []),
        ("tls", [(Intruder.PLAIN, "none", "own")]),
        (
            "mtls",
            [
                (Intruder.PLAIN, "none", "own"),
                (Intruder.NO_CERTIFICATE, "tls", "own"),
                (Intruder.FOREIGN, "mtls", "foreign"),
            ],
        ),
    ],
)
def test_each_kind_of_intruder_attempts_a_mount(policy: str, expected: list[tuple[Intruder, str, str]]) -> None:
    client = Client()
    seen = attempts(stack_on(client, xprtsec=policy), client, Occasion.BEFORE)  # type: ignore[arg-type]
    assert [(one.kind, *tried) for one, tried in zip(seen, client.attempts, strict=True)] == expected
    assert not any(one.let_in for one in seen)
    assert {one.said for one in seen} <= {"mount.nfs: Operation not permitted"}
    assert client.certificate == "own"
    assert not client.unmounted
    assert client.mounted


@pytest.mark.parametrize(
    ("flavour", "weaker"),
    [
        ("krb5", []),
        ("krb5i", [(Intruder.UNSIGNED, "krb5", "own")]),
        ("krb5p", [(Intruder.UNSIGNED, "krb5", "own"), (Intruder.UNENCRYPTED, "krb5i", "own")]),
    ],
)
def test_each_kind_of_intruder_of_kerberos_attempts_an_access(
    flavour: str, weaker: list[tuple[Intruder, str, str]]
) -> None:
    client = Client()
    seen = attempts(stack_on(client, sec=flavour), client, Occasion.BEFORE)  # type: ignore[arg-type]
    # A mount without the option sec would negotiate the flavour of the export.
    expected = [(Intruder.AUTH_SYS, "sys", "own"), *weaker, (Intruder.OTHER_KDC, flavour, "other")]
    assert [(one.kind, *tried) for one, tried in zip(seen[:-1], client.flavours, strict=True)] == expected
    assert (seen[-1].kind, client.users) == (Intruder.NO_TICKET, [f"--reuid={WITHOUT_TICKET}"])
    assert not any(one.let_in for one in seen)
    assert client.kdc == "own"
    assert client.unmounted == 1
    assert client.mounted


@pytest.mark.parametrize(
    ("settings", "accepted", "kind"),
    [
        ({"xprtsec": "tls"}, "none", Intruder.PLAIN),
        ({"sec": "krb5p", "xprtsec": "tls"}, "sys", Intruder.AUTH_SYS),
        ({"sec": "krb5i"}, f"--reuid={WITHOUT_TICKET}", Intruder.NO_TICKET),
    ],
)
def test_an_intruder_that_is_let_in_is_unmounted(settings: dict[str, str], accepted: str, kind: Intruder) -> None:
    client = Client(accepted)
    seen = attempts(stack_on(client, **settings), client, Occasion.AFTER)  # type: ignore[arg-type]
    assert [one.kind for one in seen if one.let_in] == [kind]
    assert client.unmounted == (1 if kind in {Intruder.PLAIN, Intruder.NO_TICKET} else 2)
