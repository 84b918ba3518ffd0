from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import (
    HOST,
    KERNEL,
    QEMU,
    VAGRANT,
    WIRE,
    HostPackage,
    install_line,
    install_list,
    parse_host_packages,
    remedy_for,
    run,
)
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.package_manager import PackageManager
from raidproof.provider.kvm import QEMU_TOOLS

INSTALL = PackageManager.APT.install
WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789.+-", min_size=2)


@given(st.lists(st.builds(HostPackage, st.lists(WORD, min_size=1).map(tuple), st.none() | WORD, WORD)))
def test_what_is_written_is_read(packages: list[HostPackage]) -> None:
    lines = [f"{'|'.join(package.names)}  {package.command or '-'}  # {package.why}" for package in packages]
    assert parse_host_packages("\n".join(["# a comment", "", *lines])) == packages


@pytest.mark.parametrize("path", [HOST, WIRE, QEMU, VAGRANT, KERNEL])
def test_the_lists_themselves(path: Path) -> None:
    packages = parse_host_packages(path.read_text())
    assert packages
    assert all(package.why for package in packages)


def test_the_list_of_qemu_has_what_its_provider_looks_for() -> None:
    assert {package.command for package in parse_host_packages(QEMU.read_text())} == set(QEMU_TOOLS)


@pytest.mark.parametrize("line", ["nbdkit", "nbdkit nbdkit too many"])
def test_a_broken_line_is_named(line: str) -> None:
    with pytest.raises(RigError, match=r"host-packages\.txt:2: "):
        parse_host_packages(f"# ok\n{line}")


def test_a_remedy_is_one_line_to_paste() -> None:
    packages = [HostPackage(("one", "other"), "tool", "why"), HostPackage(("third",), None, "why")]
    assert install_line(packages) == f"{INSTALL} one other third"
    assert remedy_for("virsh") == f"{INSTALL} libvirt-clients"
    assert remedy_for("qemu-storage-daemon") == f"{INSTALL} qemu-system-common qemu-utils"
    assert remedy_for("no-such") == "run ./raidproof doctor, which prints what this host lacks"
    assert "vagrant-libvirt" in install_list(VAGRANT).split()


def test_the_error_about_a_missing_program_has_a_remedy() -> None:
    with pytest.raises(RequirementMissing, match="host tool not found: no-such-tool"):
        run(["no-such-tool"])
