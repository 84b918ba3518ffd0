from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.image import apt
from raidproof.image.kernel import catalogue, outside

RELEASE = "6.12.117+deb13-cloud-amd64"


def module(release: str) -> bytes:
    return b"\x7fELF\0license=CDDL\0vermagic=" + release.encode() + b" SMP preempt mod_unload modversions \0"


def test_only_the_flavour_with_built_modules_has_a_source() -> None:
    built = catalogue.built_modules("debian/trixie/zfs")
    assert built is not None
    assert (built.source, built.component) == ("zfs-dkms", "contrib")
    assert [catalogue.built_modules(name) for name in ("debian/trixie", "debian/trixie/cloud")] == [None, None]


def test_a_kernel_with_built_modules_is_that_of_their_flavour() -> None:
    assert catalogue.metapackage("debian/trixie/zfs") == catalogue.metapackage("debian/trixie/cloud")


def test_the_root_has_the_headers_and_the_suites_compiler(tmp_path: Path) -> None:
    built = catalogue.built_modules("debian/bookworm/zfs")
    assert built is not None
    source = apt.Source("http://mirror/debian", "bookworm", Path("/keys"))
    argv = outside.root_command("bookworm", built, RELEASE, source, tmp_path)
    included = next(word for word in argv if word.startswith("--include=")).removeprefix("--include=").split(",")
    assert {"linux-headers-cloud-amd64", "gcc", "make"} <= set(included)
    assert f'--customize-hook=chroot "$1" sh /build.sh {RELEASE}' in argv
    assert argv[-3:] == ["bookworm", "-", source.line]


def test_modules_of_the_kernels_release_are_accepted(tmp_path: Path) -> None:
    for name in ("spl.ko", "zfs.ko"):
        (tmp_path / name).write_bytes(module(RELEASE))
    outside.require_release(tmp_path, RELEASE)


def test_modules_of_another_release_are_refused(tmp_path: Path) -> None:
    (tmp_path / "spl.ko").write_bytes(module(RELEASE))
    (tmp_path / "zfs.ko").write_bytes(module("6.12.107+deb13-cloud-amd64"))
    with pytest.raises(RigError, match=r"not of kernel .*: zfs\.ko: 6\.12\.107\+deb13-cloud-amd64$"):
        outside.require_release(tmp_path, RELEASE)


def test_a_build_without_modules_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="made no module"):
        outside.require_release(tmp_path, RELEASE)
