import pytest

from raidproof.core.errors import RigError
from raidproof.workload.workload import free_bytes, own_directory, parse_free, require_room
from tests.workload.guest import Guest, said


def test_room_is_free_blocks_times_their_size() -> None:
    guest = Guest(answer=lambda argv: said(argv, "100 4096\n"))
    assert free_bytes(guest, "/mnt") == 409_600
    require_room(guest, "/mnt", 409_600, "postmark")
    with pytest.raises(RigError, match=r"client1 needs 409601 bytes below /mnt, where 409600 bytes are free"):
        require_room(guest, "/mnt", 409_601, "postmark")


@pytest.mark.parametrize("text", ["", "12", "12 x\n", "1 4096"])
def test_room_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RigError):
        parse_free(text)


def test_clients_of_one_export_share_no_names() -> None:
    assert own_directory(Guest("a"), "/mnt", "x") != own_directory(Guest("b"), "/mnt", "x")
