"""The mounts that an export with TLS must refuse."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.command import Completed
from raidproof.run.intruders import FOREIGN, MOUNT_POINT, NO_CERTIFICATE, PLAIN, attempts
from raidproof.storage.mount import MountSpec
from raidproof.storage.stack import Stack


class Client:
    """A fake client: the server lets it in with the policies of ``accepted``."""

    name = "client1"
    address = "10.77.0.21"

    def __init__(self, *accepted: str) -> None:
        self.accepted = accepted
        self.certificate = "own"
        self.attempts: list[tuple[str, str]] = []
        self.unmounted = 0
        self.mounted = True

    def run(self, argv: Sequence[str], **_: Any) -> Completed:
        assert not self.mounted, "a client of NFSv4 would use the connection of the other mount"
        options = argv[argv.index("--options") + 1].split(",")
        policy = next((one.removeprefix("xprtsec=") for one in options if one.startswith("xprtsec=")), "none")
        self.attempts.append((policy, self.certificate))
        fails = policy not in self.accepted
        return Completed(tuple(argv), int(fails), "", "mount.nfs: x\nmount.nfs: Operation not permitted\n", self.name)

    def succeed(self, argv: Sequence[str], **_: Any) -> str:
        assert argv == ["umount", MOUNT_POINT]
        self.unmounted += 1
        return ""

    def activate(self) -> None:
        self.mounted = True

    def deactivate(self) -> None:
        self.mounted = False

    def present(self, *_: str) -> None:
        self.certificate = "foreign"

    def present_own(self) -> None:
        self.certificate = "own"


def stack_on(client: Client, policy: str) -> Stack:
    spec = MountSpec.model_validate({"xprtsec": policy})
    mount = SimpleNamespace(
        spec=spec, source="10.77.0.10:/srv/raidproof", activate=client.activate, deactivate=client.deactivate
    )
    fake = SimpleNamespace(spec=SimpleNamespace(mount=spec), mounts={client.name: mount}, tls={client.name: client})
    return cast("Stack", fake)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", []),
        ("tls", [(PLAIN, "none", "own")]),
        ("mtls", [(PLAIN, "none", "own"), (NO_CERTIFICATE, "tls", "own"), (FOREIGN, "mtls", "foreign")]),
    ],
)
def test_each_kind_of_intruder_attempts_a_mount(policy: str, expected: list[tuple[str, str, str]]) -> None:
    client = Client()
    seen = attempts(stack_on(client, policy), client, "before the work")  # type: ignore[arg-type]
    assert [(one.kind, *tried) for one, tried in zip(seen, client.attempts, strict=True)] == expected
    assert not any(one.let_in for one in seen)
    assert {one.said for one in seen} <= {"mount.nfs: Operation not permitted"}
    assert client.certificate == "own"
    assert not client.unmounted
    assert client.mounted


def test_an_intruder_that_is_let_in_is_unmounted() -> None:
    client = Client("none")
    seen = attempts(stack_on(client, "tls"), client, "after the fault")  # type: ignore[arg-type]
    assert [one.let_in for one in seen] == [True]
    assert client.unmounted == 1
