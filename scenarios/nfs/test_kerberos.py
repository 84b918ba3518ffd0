"""NFS with Kerberos: every promise is kept after a power cut, and intruders are refused before and after it."""

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.intruder import Intruder, intruders_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import knfsd
from raidproof.storage.stack import StackSpec
from raidproof.verdict.checks.intruders import INTRUDERS


def secured(flavour: str = "krb5p", vers: str = "4.2") -> StackSpec:
    """Return a stack whose clients use this security of requests, and whose export accepts no other."""
    return stack_of(mount=MountSpec.model_validate({"sec": flavour, "vers": vers}))


@pytest.mark.parametrize(
    ("flavour", "vers"),
    [
        ("krb5p", "4.2"),
        pytest.param("krb5", "4.1", marks=pytest.mark.exhaustive),
        pytest.param("krb5i", "4.0", marks=pytest.mark.exhaustive),
        pytest.param("krb5p", "3", marks=pytest.mark.exhaustive),
    ],
)
def test_every_promise_is_kept_and_intruders_are_refused(cycle: CrashTestRunner, flavour: str, vers: str) -> None:
    stack = secured(flavour, vers)
    ended = cycle(stack).must_keep_every_promise()
    assert f"sec={flavour}" in ended.record.effective["mounts"]["client1"]["options"]
    seen = ended.record.observed.intruders
    assert [(one.kind, one.let_in) for one in seen] == [(kind, False) for kind in intruders_of(stack.mount)] * 2


@pytest.mark.exhaustive
def test_a_server_that_also_accepts_auth_sys_is_found(current_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lax(spec: knfsd.ExportSpec, path: str) -> list[str]:
        options = ("sec=sys:krb5p" if one.startswith("sec=") else one for one in spec.options())
        return ["exportfs", "-o", ",".join(options), f"{spec.network}:{path}"]

    monkeypatch.setattr(knfsd, "export_command", lax)
    # Else the harness itself refuses the export, whose effective options are not as requested.
    monkeypatch.setattr(knfsd.Export, "require_effective", knfsd.Export.state)
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("lax-server", current_run.store.path, current_run.topology) as own:
        record = own.cycle(CrashTestSpec(name="lax", title="lax", stack=secured(), ledger_seconds=1.5))
    assert record.outcome is Outcome.FAIL
    assert {one.kind for one in record.observed.intruders if one.let_in} == {Intruder.AUTH_SYS}
    (verdict,) = (one for one in record.verdicts if one.checker == INTRUDERS)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.of_the_stack
