import pytest

from raidproof.core.command import WIRE, HostPackage, parse_host_packages
from raidproof.core.package_manager import PackageManager
from raidproof.run.doctor import Outcome, command_checks, plugin_check, wire_check

INSTALL = PackageManager.APT.install


def test_a_missing_command_names_its_packages() -> None:
    packages = [
        HostPackage(("qemu-system-common", "qemu-utils"), "qemu-storage-daemon", "serves disks"),
        HostPackage(("iproute2",), "ip", "makes bridges"),
        HostPackage(("libc6-dev",), None, "headers"),
    ]
    absent, found = command_checks(packages, {"ip": "/sbin/ip"}.get)
    assert (absent.outcome, absent.remedy) == (Outcome.MISSING, f"{INSTALL} qemu-system-common qemu-utils")
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
    assert plugin_check(dump).outcome is outcome


def test_what_only_some_scenarios_need_is_no_reason_not_to_run() -> None:
    packages = parse_host_packages(WIRE.read_text())
    assert {package.command for package in packages} == {"dumpcap", "tshark"}
    assert wire_check(packages, lambda command: command).outcome is Outcome.OK
    without = wire_check(packages, lambda command: None if command == "tshark" else command)
    assert without.outcome is Outcome.WARNING
    assert without.remedy == f"{INSTALL} tshark"
