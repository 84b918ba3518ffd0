import gzip
import lzma
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from raidproof.image.kernel.initramfs import ModuleFolder, dependencies, plain_name, release_of


def module(depends: str = "", softdep: str = "") -> bytes:
    parts = [b"\x7fELF\x02", b"license=GPL", b"depends=" + depends.encode()]
    if softdep:
        parts.append(b"softdep=" + softdep.encode())
    return b"\0".join([*parts, b"name=x", b""])


def folder(path: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (path / f"{name}.ko").write_bytes(content)
    return path


def names(modules: ModuleFolder, *wanted: str) -> list[str]:
    return [plain_name(file) for file in modules.needed(wanted)]


def test_each_module_follows_its_dependencies(tmp_path: Path) -> None:
    own = ModuleFolder(
        folder(tmp_path, ext4=module("jbd2,mbcache", "pre: crc32c"), jbd2=module(), mbcache=module(), crc32c=module())
    )
    assert names(own, "ext4") == ["jbd2", "mbcache", "crc32c", "ext4"]
    assert names(own, "jbd2", "ext4")[0] == "jbd2"


def test_a_circle_ends(tmp_path: Path) -> None:
    assert names(ModuleFolder(folder(tmp_path, a=module("b"), b=module("a"))), "a") == ["b", "a"]


def test_what_is_built_in_or_absent_is_left_out(tmp_path: Path) -> None:
    folder(tmp_path, a=module("virtio-ring,gone"))
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_ring.ko\n")
    own = ModuleFolder(tmp_path)
    assert names(own, "a", "virtio_ring") == ["a"]
    assert own.has("virtio-ring")
    assert not own.has("gone")


def test_what_is_needed_is_unpacked_and_the_rest_is_left(tmp_path: Path) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "a.ko.xz").write_bytes(lzma.compress(module("b")))
    (tmp_path / "kernel" / "b.ko.gz").write_bytes(gzip.compress(module()))
    (tmp_path / "kernel" / "c.ko.xz").write_bytes(lzma.compress(module()))
    assert names(ModuleFolder(tmp_path), "a") == ["b", "a"]
    assert sorted(path.name for path in (tmp_path / "kernel").iterdir()) == ["a.ko", "b.ko", "c.ko.xz"]


def test_modules_of_a_folder(tmp_path: Path) -> None:
    for name in (
        "kernel/fs/xfs/xfs.ko.xz",
        "kernel/fs/new-fs.ko.zst",
        "kernel/drivers/md/raid1.ko",
        "kernel/net/a.ko",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert ModuleFolder(tmp_path).inside(["kernel/fs", "kernel/drivers/md"]) == ["new_fs", "raid1", "xfs"]


NAME = st.text("abcdefghijklmnop_0123456789", min_size=1)


@given(st.lists(NAME), st.lists(NAME, min_size=1))
def test_dependencies_are_read_back(hard: list[str], soft: list[str]) -> None:
    data = module(",".join(hard), f"pre: {' '.join(soft)} post: later")
    assert list(dependencies(data)) == hard + soft


def test_a_file_that_is_no_module_depends_on_nothing() -> None:
    assert list(dependencies(b"")) == []
    assert list(dependencies(b"depends=x")) == []


def test_the_kernel_of_a_module_is_read_from_the_module() -> None:
    assert release_of(b"\x7fELF\0license=GPL\0vermagic=6.12.101 mod_unload \0name=x\0") == "6.12.101"
    assert release_of(b"\x7fELF\0name=x\0") is None
