import shutil
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.image import apt, cache, package

MAKEFILE = """\
mdadm: ReadMe.c
\t$(CC) -o mdadm ReadMe.c
install: mdadm
\tinstall -D mdadm $(DESTDIR)$(BINDIR)/mdadm
\tinstall -D -m 644 Makefile $(DESTDIR)/lib/udev/rules.d/x.rules
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def mdadm(tmp_path: Path) -> Path:
    tree = tmp_path / "mdadm"
    tree.mkdir()
    (tree / "Makefile").write_text(MAKEFILE)
    (tree / "ReadMe.c").write_text('#define VERSION "4.99"\nint main(void) { return 0; }\n')
    return tree


def test_a_tree_of_mdadm_becomes_a_package_that_an_image_takes(mdadm: Path) -> None:
    [file] = package.build(mdadm)
    built = apt.read(file)
    assert (built.name, built.source) == ("mdadm", "mdadm")
    assert built.version.startswith("4.99+t")
    fields = command.succeed(["dpkg-deb", "--field", file, "Depends"])
    assert fields.startswith("libc6")
    listed = command.succeed(["dpkg-deb", "--contents", file])
    assert "./usr/sbin/mdadm" in listed
    assert "./usr/lib/udev/rules.d/x.rules" in listed
    assert " ./lib" not in listed
    apt.refuse_strangers([built], {"mdadm": apt.Installed("4.4-11", "mdadm")}, "debian/trixie")
    assert not list(mdadm.glob("mdadm"))
    assert package.build(mdadm) == (file,)
    (mdadm / "ReadMe.c").write_text('#define VERSION "4.99"\nint main(void) { return 1; }\n')
    assert apt.read(package.build(mdadm)[0]).version != built.version


def test_an_error_of_the_compiler_is_one_line_with_the_log(mdadm: Path) -> None:
    (mdadm / "ReadMe.c").write_text('#define VERSION "4.99"\nint main(void) { return nothing; }\n')
    with pytest.raises(
        package.PackageBuildFailed, match=r"^the source of mdadm does not build: ReadMe\.c:2:25: error"
    ):
        package.build(mdadm)
    [log] = cache.root().glob("package-log/*.log")
    assert "nothing" in log.read_text()
    assert not list(cache.root().glob("package/*"))


def test_a_missing_header_is_a_missing_requirement_with_the_line_to_paste(mdadm: Path) -> None:
    (mdadm / "ReadMe.c").write_text('#define VERSION "4.99"\n#include <libudev-of-the-tests.h>\n')
    with pytest.raises(
        RequirementMissing, match=r"libudev-of-the-tests\.h is missing .*apt-get install .*libudev-dev"
    ):
        package.build(mdadm)


def test_debians_tree_gets_a_version_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "nfs-utils"
    (tree / "debian").mkdir(parents=True)
    (tree / "debian" / "control").write_text("Source: nfs-utils\nMaintainer: x\n\nPackage: nfs-common\n")
    (tree / "debian" / "changelog").write_text("nfs-utils (1:2.8.3-1) unstable; urgency=medium\n\n  * x\n")
    seen: list[str] = []

    def follow(argv: list[str], *_: object, **__: object) -> Completed:
        copy = Path(argv[1].removeprefix("--chdir="))
        seen.extend([*argv[2:], (copy / "debian" / "changelog").read_text()])
        for name in ("nfs-common_2_amd64", "libnfsidmap-dev_2_amd64", "nfs-common-dbgsym_2_amd64"):
            (copy.parent / f"{name}.deb").touch()
        return Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(command, "follow", follow)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert [path.name for path in package.build(tree)] == ["nfs-common_2_amd64.deb"]
    assert seen[0] == "dpkg-buildpackage"
    assert seen[-1].startswith("nfs-utils (1:2.8.3-1+t")
    assert "nfs-utils (1:2.8.3-1) unstable" in seen[-1]
    assert "+t" not in (tree / "debian" / "changelog").read_text()


def test_unmet_build_dependencies_are_named_without_versions(tmp_path: Path) -> None:
    output = (
        "dpkg-checkbuilddeps: error: Unmet build dependencies: debhelper-compat (= 13) libevent-dev (>= 2) a | b\n"
        "dpkg-buildpackage: warning: build dependencies/conflicts unsatisfied; aborting\n"
    )
    error = package.explain(Completed(("x",), 3, output, ""), "nfs-utils", tmp_path / "log")
    assert isinstance(error, RequirementMissing)
    assert error.remedy is not None
    assert error.remedy.endswith("install --yes --no-install-recommends debhelper-compat libevent-dev a b")


@pytest.mark.parametrize(
    ("output", "missing"),
    [
        ("checking for x\nconfigure: error: libtirpc not found.\n", "libtirpc not found."),
        ("env: 'autoreconf': No such file or directory\n", "'autoreconf'"),
        ("Package libtirpc was not found in the pkg-config search path.\n", "libtirpc"),
    ],
)
def test_what_a_build_misses_is_named(output: str, missing: str, tmp_path: Path) -> None:
    error = package.explain(Completed(("x",), 1, output, ""), "nfs-utils", tmp_path / "log")
    assert isinstance(error, RequirementMissing)
    assert f"stopped: {missing} is missing" in str(error)
    assert "libtirpc-dev" in str(error)


def test_a_full_disk_is_the_rigs_failure(tmp_path: Path) -> None:
    error = package.explain(Completed(("x",), 1, "No space left on device", ""), "mdadm", tmp_path)
    assert type(error) is RigError


def test_another_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "configure.ac").write_text("AC_INIT([bash], [5.2])\n")
    with pytest.raises(RequestError, match="is not a source tree of mdadm or nfs-utils, and has no debian/control"):
        package.build(tmp_path)
    with pytest.raises(RequestError, match="no source tree"):
        package.build(tmp_path / "nothing")


def test_nfs_utils_is_recognized_by_its_configure_ac(tmp_path: Path) -> None:
    (tmp_path / "configure.ac").write_text("AC_INIT([linux nfs-utils],[2.8.4],[linux-nfs@vger.kernel.org])\n")
    assert package.upstream_of(tmp_path) == "nfs-utils"


def test_missing_programs_are_named(mdadm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name.startswith("dpkg") else name)
    with pytest.raises(RequirementMissing, match=r"needs dpkg-buildpackage, dpkg-shlibdeps, .*install .*dpkg-dev"):
        package.build(mdadm)
