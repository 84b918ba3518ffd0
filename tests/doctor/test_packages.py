import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.doctor import Outcome
from harness.doctor.packages import (
    LIST,
    WIRE,
    HostPackage,
    command_findings,
    parse_host_packages,
    plugin_finding,
    wire_finding,
)
from harness.errors import RigError

WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789.+-", min_size=2)


@given(st.lists(st.builds(HostPackage, st.lists(WORD, min_size=1).map(tuple), st.none() | WORD, WORD)))
def test_what_is_written_is_read(packages: list[HostPackage]) -> None:
    lines = [f"{'|'.join(package.names)}  {package.command or '-'}  # {package.why}" for package in packages]
    assert parse_host_packages("\n".join(["# a comment", "", *lines])) == packages


def test_the_list_itself() -> None:
    packages = parse_host_packages(LIST.read_text())
    assert {"nbdkit", "qemu-storage-daemon", "ip"} <= {package.command for package in packages}
    assert all(package.why for package in packages)


@pytest.mark.parametrize("line", ["nbdkit", "nbdkit nbdkit too many"])
def test_a_broken_line_is_named(line: str) -> None:
    with pytest.raises(RigError, match=r"host-packages\.txt:2: "):
        parse_host_packages(f"# ok\n{line}")


def test_a_missing_command_names_its_packages() -> None:
    packages = [
        HostPackage(("qemu-system-common", "qemu-utils"), "qemu-storage-daemon", "serves disks"),
        HostPackage(("iproute2",), "ip", "makes bridges"),
        HostPackage(("libc6-dev",), None, "headers"),
    ]
    absent, found = command_findings(packages, {"ip": "/sbin/ip"}.get)
    assert (absent.outcome, absent.remedy) == (Outcome.MISSING, "apt-get install qemu-system-common or qemu-utils")
    assert absent.reason == "not found; it serves disks"
    assert (found.outcome, found.reason) == (Outcome.OK, "/sbin/ip")


@pytest.mark.parametrize(
    ("dump", "outcome"),
    [
        ("path=/x\npython_version=3.11.1\n", Outcome.OK),
        ("python_version=3.13.0\n", Outcome.OK),
        ("python_version=3.10.4\n", Outcome.MISSING),
        ("path=/x\n", Outcome.OK),
        (None, Outcome.MISSING),
    ],
)
def test_plugin(dump: str | None, outcome: Outcome) -> None:
    assert plugin_finding(dump).outcome is outcome


def test_what_only_some_scenarios_need_is_no_reason_not_to_run() -> None:
    packages = parse_host_packages(WIRE.read_text())
    assert {package.command for package in packages} == {"dumpcap", "tshark"}
    assert wire_finding(packages, lambda command: command).outcome is Outcome.OK
    without = wire_finding(packages, lambda command: None if command == "tshark" else command)
    assert without.outcome is Outcome.WARNING
    assert without.remedy == "apt-get install tshark"
