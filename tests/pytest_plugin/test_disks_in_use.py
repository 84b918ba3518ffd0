"""The uses of member disks, from the output of the program that inspects disks."""

from pathlib import Path

from raidproof.provider.hosts.survey import parse_probe
from raidproof.pytest_plugin.disks_in_use import in_use

PROBE = parse_probe((Path(__file__).parents[1] / "data" / "hosts" / "probe-in-use.txt").read_text())
BUSY = "cannot be claimed: Device or resource busy"


def uses_of(*numbers: str) -> tuple[str, ...]:
    links = {f"/dev/disk/by-id/raidproof-{number}": number for number in numbers}
    return in_use(PROBE.model_copy(update={"links": links}))


def test_an_array_a_mount_and_a_swap_area_are_uses() -> None:
    assert uses_of("254:16", "254:32", "254:48") == (
        f"254:16 is mounted on /mnt/their files, {BUSY}",
        f"254:32 is part of md127, mounted on /mnt/md, {BUSY}",
        f"254:48 is used as swap: /dev/vdd, {BUSY}",
    )


def test_a_disk_without_users_is_free() -> None:
    assert uses_of("254:64", "254:80") == ()
