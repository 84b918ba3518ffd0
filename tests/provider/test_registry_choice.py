import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.provider.kvm import QEMU_TOOLS, KvmAnswer, qemu_lacks
from raidproof.provider.registry import choose

WORKS = KvmAnswer(works=True, reason="a kernel booted under KVM")
SPINS = KvmAnswer(works=False, reason="it spins and prints nothing")
NO_QEMU, NO_UML = "not found: qemu-system-x86_64", "no kernels for aarch64"


@pytest.mark.parametrize(
    ("qemu", "uml", "answer", "name", "says"),
    [
        (None, None, WORKS, "qemu", "KVM works: a kernel booted"),
        (None, NO_UML, WORKS, "qemu", "KVM works"),
        (None, None, SPINS, "uml", "KVM does not work (it spins and prints nothing)"),
        (NO_QEMU, None, None, "uml", "no QEMU (not found: qemu-system-x86_64)"),
        (None, NO_UML, SPINS, "qemu", "provider uml cannot run (no kernels for aarch64): CPUs are emulated"),
        (None, None, None, "uml", "KVM was not tried"),
    ],
)
def test_auto_takes_the_fastest_that_runs(
    qemu: str | None, uml: str | None, answer: KvmAnswer | None, name: str, says: str
) -> None:
    choice = choose(qemu_lacks=qemu, uml_lacks=uml, answer=answer)
    assert choice.name == name
    assert says in choice.reason


def test_if_no_provider_runs_both_reasons_are_reported() -> None:
    with pytest.raises(RequirementMissing, match=f"{NO_UML}.*{NO_QEMU}.*qemu-system-x86 qemu-utils"):
        choose(qemu_lacks=NO_QEMU, uml_lacks=NO_UML, answer=None)


def test_what_qemu_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None if program == "qemu-img" else program)
    assert qemu_lacks() == "not found: qemu-img"
    monkeypatch.setattr("shutil.which", lambda program: program)
    assert qemu_lacks() is None
    assert "qemu-img" in QEMU_TOOLS
