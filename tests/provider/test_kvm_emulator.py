import re
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.image import apt
from raidproof.provider import kvm


def host_has(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def run(argv: list[str | Path], **_: object) -> command.Completed:
        words = tuple(map(str, argv))
        return command.Completed(words, 0, said, "") if words[0] == kvm.PROGRAM else REAL_RUN(words)

    monkeypatch.setattr(command, "run", run)


REAL_RUN = command.run


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright\n", (7, 2)),
        ("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\n", (10, 0)),
    ],
)
def test_the_version_is_read(monkeypatch: pytest.MonkeyPatch, said: str, version: tuple[int, int]) -> None:
    host_has(monkeypatch, said)
    assert kvm.version() == version


def test_something_else_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    host_has(monkeypatch, "Xen\n")
    with pytest.raises(RigError, match="prints no version number: Xen"):
        kvm.version()


def test_a_new_qemu_of_this_host_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    host_has(monkeypatch, "QEMU emulator version 10.0.13\n")
    assert kvm.for_emulation() == (kvm.PROGRAM,)


def test_an_old_one_is_replaced_with_all_its_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host_has(monkeypatch, "QEMU emulator version 7.2.22\n")
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path))

    def download_behind(suite: str, package: str, wanted: re.Pattern[str], work: Path) -> dict[str, Path]:
        names = ("qemu-system-x86", "qemu-system-data", "libc6", "libfdt1", "python3", "linux-base")
        return {name: work / f"{name}.deb" for name in names if wanted.fullmatch(name)}

    unpacked: list[str] = []
    monkeypatch.setattr(apt, "download_behind", download_behind)
    monkeypatch.setattr(apt, "unpack", lambda package, _: unpacked.append(package.stem))
    words = kvm.for_emulation()
    assert unpacked == ["qemu-system-x86", "qemu-system-data", "libc6", "libfdt1"]
    assert words[0].endswith("ld-linux-x86-64.so.2")
    assert words[3].endswith(f"usr/bin/{kvm.PROGRAM}")
    assert kvm.for_emulation() == words
    assert len(unpacked) == 4
