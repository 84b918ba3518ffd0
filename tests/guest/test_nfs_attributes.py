"""The reader of an NFSv4 server's attributes; replies in the format of RFC 7530, with values as Ganesha sent them."""

import json
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.guest import nfs_attributes as module
from raidproof.guest.nfs_attributes import Refused, attributes_of, compound, main, parse_attributes, results

BITMAP = 1 << 10 | 1 << 30 | 1 << 31
ACCEPTED = struct.pack(">IIIIII", 1, 1, 0, 0, 0, 0)


def compound_result(status: int = 0, lease_s: int = 10, bitmap: int = BITMAP) -> bytes:
    found = struct.pack(">IIIIIQQ", status, 1, bitmap, 20, lease_s, 1048576, 524288)
    return struct.pack(">III", status, 0, 4) + struct.pack(">II", 24, 0) + struct.pack(">I", 9) + found


def test_a_call_is_a_record_of_whole_words() -> None:
    call = attributes_of("/srv/raidproof")
    mark = int.from_bytes(call[:4], "big")
    assert mark >> 31 == 1
    assert mark & ~(1 << 31) == len(call) - 4
    assert len(call) % 4 == 0
    assert struct.unpack_from(">IIIII", call, 8) == (0, 2, 100003, 4, 1)
    assert call.count(b"srv\0") == 1
    assert call.endswith(struct.pack(">III", 9, 1, BITMAP))


def test_attributes() -> None:
    found = parse_attributes(results(ACCEPTED + compound_result()))
    assert found == {"lease_s": 10, "max_read": 1048576, "max_write": 524288}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (compound_result(status=2), "NFS status 2"),
        (compound_result(bitmap=1 << 10), "other attributes"),
        (b"", "truncated"),
        (compound_result()[:20], "truncated"),
    ],
)
def test_another_result_is_refused(reply: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parse_attributes(reply)


@given(st.integers(0, 23))
def test_a_truncated_rpc_reply_is_refused(size: int) -> None:
    with pytest.raises(Refused):
        results(ACCEPTED[:size])


@pytest.mark.parametrize("place", [1, 2, 5])
def test_a_call_that_was_not_accepted_is_refused(place: int) -> None:
    words = [1, 1, 0, 0, 0, 0]
    words[place] ^= 1
    with pytest.raises(Refused, match="not accepted"):
        results(struct.pack(">6I", *words))


def test_a_server_is_asked_for_each_minor_version(capsys: pytest.CaptureFixture[str]) -> None:
    # NFS4ERR_OP_NOT_IN_SESSION for 4.1, and NFS4ERR_MINOR_VERS_MISMATCH for 4.2.
    statuses = [struct.pack(">III", status, 0, 0) for status in (0, 10071, 10021)]

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as line:
            for result in (compound_result(), *statuses):
                size = int.from_bytes(line.recv(4, socket.MSG_WAITALL), "big") & ~(1 << 31)
                line.recv(size, socket.MSG_WAITALL)
                reply = ACCEPTED + result
                # Two fragments: only the second is the last.
                line.sendall(struct.pack(">I", 8) + reply[:8])
                line.sendall(struct.pack(">I", 1 << 31 | len(reply) - 8) + reply[8:])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        main("127.0.0.1", str(listener.getsockname()[1]), "/srv")
        thread.join()
    assert json.loads(capsys.readouterr().out)["versions"] == [0, 1]


def test_a_closed_connection_is_refused() -> None:
    one, other = socket.socketpair()
    other.close()
    with one, pytest.raises((Refused, OSError)):
        module.call(one, compound(0, []))
