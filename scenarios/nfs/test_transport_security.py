"""NFS with TLS (RFC 9289): every promise is kept after a power cut, and intruders are refused before and after it."""

import pytest

from raidproof.core.topology import Platform, Topology, server_and_clients
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import knfsd
from raidproof.storage.stack import StackSpec
from raidproof.verdict.checks.intruders import INTRUDERS


def encrypted(policy: str = "tls") -> StackSpec:
    """Return a stack whose clients use this transport security, and whose export accepts no other."""
    return stack_of(mount=MountSpec.model_validate({"xprtsec": policy}))


def test_every_promise_is_kept_and_plain_text_is_refused(cycle: CrashTestRunner) -> None:
    ended = cycle(encrypted()).must_keep_every_promise()
    assert ended.record.effective["mounts"]["client1"]["options"].count("xprtsec=tls") == 1
    assert [(one.kind, one.let_in) for one in ended.record.observed.intruders] == [
        ("a client in plain text", False)
    ] * 2


@pytest.mark.exhaustive
def test_a_server_that_accepts_plain_text_is_found(current_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lax(spec: knfsd.ExportSpec, path: str) -> list[str]:
        return [
            "exportfs",
            "-o",
            ",".join(one for one in spec.options() if "xprtsec" not in one),
            f"{spec.network}:{path}",
        ]

    monkeypatch.setattr(knfsd, "export_command", lax)
    # Else the harness itself refuses the export, whose effective options are not as requested.
    monkeypatch.setattr(knfsd.Export, "require_effective", knfsd.Export.state)
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("lax-server", current_run.store.path, current_run.topology) as own:
        record = own.cycle(CrashTestSpec(name="lax", title="lax", stack=encrypted(), ledger_seconds=1.5))
    assert record.outcome is Outcome.FAIL
    (verdict,) = (one for one in record.verdicts if one.checker == INTRUDERS)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.of_the_stack


@pytest.mark.exhaustive
def test_clients_without_a_certificate_are_refused(current_run: Run) -> None:
    # The kernel of Debian for User-mode Linux cannot tell whether a client has a certificate.
    topology: Topology = server_and_clients(clients=1, platform=Platform(provider="qemu"))
    current_run.discard_lab()
    with Run("mutual-tls", current_run.store.path, topology) as own:
        spec = CrashTestSpec(name="mutual-tls", title="mutual TLS", stack=encrypted("mtls"), ledger_seconds=1.5)
        record = own.cycle(spec)
    assert record.outcome is Outcome.PASS, record.reason
    assert {one.kind for one in record.observed.intruders if not one.let_in} == {
        "a client in plain text",
        "a client without a certificate",
        "a client with a certificate of another authority",
    }
