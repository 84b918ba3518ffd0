from unittest.mock import create_autospec

import pytest

from raidproof.lab.lab import Lab
from raidproof.monitor import capture
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.record.environment import by_role
from raidproof.run.run import count_of, unseen_replies


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
