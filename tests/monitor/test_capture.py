"""The capture's commands, the output of its program, and hosts where capturing is impossible."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.lab.lab import Lab
from raidproof.monitor import capture
from raidproof.monitor.capture import Capture, capture_command, capturing, connections_command, decode_command, dropped

SAID = (Path(__file__).parents[1] / "data" / "tshark" / "dumpcap.log").read_text()


def test_only_nfs_is_captured_and_only_on_the_bridge() -> None:
    command = capture_command(Path("/run/x.pcapng"))
    assert command[0] == "dumpcap"
    assert command[command.index("-i") + 1] == "lab"
    assert command[command.index("-f") + 1] == "tcp port 2049"
    assert "-s" not in command
    assert "-p" not in command


@pytest.mark.parametrize("said_by", [decode_command, connections_command])
def test_decoding_names_the_port(said_by: Callable[..., list[str]]) -> None:
    command = said_by(Path("x.pcapng"), port=20490)
    assert command[command.index("-d") + 1] == "tcp.port==20490,rpc"


def test_lost_packets_are_counted() -> None:
    assert dropped(SAID) == 0
    assert dropped(SAID.replace("/0 (", "/17 (", 1)) == 17


def test_a_capture_program_without_output_is_refused() -> None:
    with pytest.raises(RigError, match="without a count"):
        dropped("Capturing on 'lab'\n")


def test_network_that_is_not_ours_is_not_captured(tmp_path: Path) -> None:
    with (
        pytest.raises(RequirementMissing, match="does not control"),
        capturing(create_autospec(Lab, instance=True), tmp_path / "x"),
    ):
        pytest.fail("it was")


def test_missing_decoder_is_a_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "which", lambda _: None)
    with pytest.raises(RequirementMissing, match=r"tshark .*apt-get install .* wireshark-common tshark"):
        Capture(Path("x.pcapng")).exchanges()
