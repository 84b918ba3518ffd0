from pathlib import Path
from unittest.mock import create_autospec

import pytest

from raidproof.core.topology import DiskSpec
from raidproof.lab.lab import Lab
from raidproof.monitor import capture
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.record.environment import by_role
from raidproof.run.run import count_of, prediction_notes, unseen_replies


@pytest.mark.parametrize(("ranges", "count"), [("0", 1), ("0-3", 4), ("0-3,8", 5), ("0,2,4", 3)])
def test_the_kernels_lists_are_counted(ranges: str, count: int) -> None:
    assert count_of(ranges) == count


def test_common_software_is_listed_once() -> None:
    assert by_role({("server", "6.12"), ("client", "6.12")}) == "6.12"
    assert by_role({("server", "7.2"), ("client", "6.1")}) == "server 7.2, client 6.1"


def test_without_a_capture_the_consequence_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    of_others, ours = create_autospec(Lab, instance=True), create_autospec(NamespaceLab, instance=True)
    monkeypatch.setattr(capture, "which", lambda program: f"/usr/bin/{program}")
    assert unseen_replies(ours) == []
    assert "does not control the machines' network" in unseen_replies(of_others)[0]
    monkeypatch.setattr(capture, "which", {"dumpcap": "/usr/bin/dumpcap"}.get)
    assert "tshark" in unseen_replies(ours)[0]


MEASURED = """
[measured]
drive = "ST4000 S1"
median_deviation_percent = 2.3
worst_deviation_percent = -21.4
worst_workload = "random reads of 64 KiB"
assumed = "cache.size (as in hdd-7200-sata)"
"""


def test_a_measured_profile_says_in_the_report_how_well_it_predicts(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "harness/raidproof/disk/profiles/hdd-7200-sata.toml"
    path = tmp_path / "mine.toml"
    path.write_text(f"{shipped.read_text()}{MEASURED}")
    disks = [DiskSpec(serial=f"disk{number}", size=1 << 30, profile=str(path)) for number in range(2)]
    others = [DiskSpec(serial="disk2", size=1 << 30, profile="ssd-sata"), DiskSpec(serial="disk3", size=1 << 30)]
    assert prediction_notes([*disks, *others]) == [
        "disk profile mine: predicts reads of ST4000 S1 within 2 % (median; worst -21 %: random reads of 64 KiB); not "
        "measured: cache.size (as in hdd-7200-sata)"
    ]
