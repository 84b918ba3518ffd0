import struct
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.image import cache, kernel
from raidproof.image.kernel import initramfs, pc
from raidproof.image.kernel.initramfs import ModuleFolder


def bzimage(release: str = "6.12.1-own") -> bytes:
    header = bytearray(0x1000)
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", header, 0x20E, 0x400)
    text = f"{release} (somebody@somewhere) #1 SMP\0".encode()
    header[0x600 : 0x600 + len(text)] = text
    return bytes(header)


def test_a_kernel_is_at_hand_if_the_cache_has_it_with_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "root", lambda: tmp_path)
    made: list[str] = []

    def build(kind: str, digest: str, builder: object) -> Path:
        del builder
        made.append(digest)
        cache.place(kind, digest).mkdir(parents=True)
        raise RigError("built no further")

    monkeypatch.setattr(cache, "build", build)
    assert not pc.at_hand()
    for name in ("debian/trixie", "debian/trixie/zfs"):
        assert not pc.at_hand(name)
        with pytest.raises(RigError, match="built no further"):
            pc.named(name)
        assert pc.at_hand(name)
    assert len(set(made)) == 2
    assert pc.at_hand()
    with pytest.raises(RequestError, match="debian/trixie/zfs"):
        pc.at_hand("debian/trixie/zfz")


def test_the_release_is_read_from_a_bzimage(tmp_path: Path) -> None:
    (tmp_path / "bzImage").write_bytes(bzimage())
    assert pc.release_of(tmp_path / "bzImage") == "6.12.1-own"


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(0x400), bzimage()[:0x204], bytes(0x1000)])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    with pytest.raises(RequestError, match="not a bzImage"):
        kernel.get(str(tmp_path / "vmlinux"), provider="qemu")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no kernel file"):
        kernel.get(str(tmp_path / "linux-image.deb"), provider="qemu")


@pytest.mark.parametrize("layout", ["lib/modules/6.12.1-own", "6.12.1-own"])
def test_modules_are_found_as_they_are_installed(tmp_path: Path, layout: str) -> None:
    (tmp_path / layout).mkdir(parents=True)
    assert pc.find_modules(tmp_path, "6.12.1-own") == tmp_path / layout
    assert pc.find_modules(tmp_path / layout, "6.12.1-own") == tmp_path / layout


def test_modules_of_another_release_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lib" / "modules" / "6.1.0").mkdir(parents=True)
    with pytest.raises(RequestError, match=r"no modules of kernel 6\.12\.1-own"):
        pc.find_modules(tmp_path, "6.12.1-own")


def test_a_changed_module_is_another_kernel(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(b"1")
    before = pc.fingerprint(tmp_path)
    (tmp_path / "a.ko").write_bytes(b"22")
    assert pc.fingerprint(tmp_path) != before
    assert pc.fingerprint(None) == ""


def test_a_kernel_that_cannot_find_its_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no virtio_pci, virtio_blk, ext4, .*folder of its modules"):
        initramfs.make("own", ModuleFolder(tmp_path), tmp_path, tmp_path / "initramfs")
