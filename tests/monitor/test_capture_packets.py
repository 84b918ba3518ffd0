"""Parsing of real output of tshark."""

import json
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.monitor.capture import (
    Exchange,
    Operation,
    flat,
    operations_of,
    parse_connections,
    parse_packets,
    read_exchanges,
    write_exchanges,
)
from raidproof.verdict.wire import judge_locks_kept, judge_restart

DATA = Path(__file__).parents[1] / "data" / "tshark"


def read(name: str) -> str:
    return (DATA / name).read_text()


def test_calls_have_their_replies() -> None:
    exchanges = parse_packets(read("locks.json"))
    assert all(one.answered for one in exchanges)
    locks = [(one.client, operation.status) for one, operation in operations_of(exchanges, "LOCK")]
    assert locks == [
        ("10.77.0.22", "OK"),
        ("10.77.0.21", "NFS4ERR_DENIED"),
        ("10.77.0.21", "NFS4ERR_GRACE"),
        ("10.77.0.22", "OK"),
    ]


def test_fields_of_a_call_and_of_its_reply_are_distinguished() -> None:
    exchanges = parse_packets(read("writes.json"))
    (_, write), *_ = operations_of(exchanges, "WRITE")
    assert write.number("nfs.offset4") == 0
    assert write.asked["nfs.stable_how4"] == "0"
    assert write.told["nfs.count4"] == str(64 * 1024)
    assert write.told["nfs.verifier4"] == "0x1f5fc225347c6e18"
    assert write.handle
    assert "nfs.data" not in write.asked


def read3() -> list[Exchange]:
    return parse_packets(read("writes-v3.json"), parse_connections(read("writes-v3.connections.txt")))


def test_nfsv3_has_one_operation_a_call() -> None:
    exchanges = read3()
    assert [one.operations[0].name for one in exchanges] == ["ACCESS", "CREATE", *["WRITE"] * 4, "COMMIT"]
    assert all(one.answered and len(one.operations) == 1 and one.version == "3" for one in exchanges)
    assert [one.connection for one in exchanges] == [*["0"] * 4, *["86"] * 3]
    write = exchanges[2].operations[0]
    assert (write.number("nfs.offset3"), write.number("nfs.count3"), write.status) == (0, 64 * 1024, "OK")
    assert (write.told["nfs.write.committed"], write.told["nfs.verifier"]) == ("0", "d2:68:ac:ae:53:b6:f7:e4")
    assert write.handle == exchanges[6].operations[0].handle
    assert "nfs.data" not in write.asked


def test_error_of_nfsv3_is_named() -> None:
    refused = parse_packets(read("writes-v3.json").replace('"nfs.status3": "0"', '"nfs.status3": "5"'))
    assert {one.operations[0].status for one in refused} == {"NFS3ERR_IO"}


@pytest.mark.parametrize("text", ["1", "1\t", "one\ttwo", "1\t2\t3"])
def test_something_else_than_connections_is_refused(text: str) -> None:
    with pytest.raises(RigError, match="connection"):
        parse_connections(text)


def test_what_follows_an_error_was_not_carried_out() -> None:
    exchanges = parse_packets(read("writes.json"))
    refused = next(one for one in exchanges if one.operations[0].status == "NFS4ERR_BADSESSION")
    assert [operation.status for operation in refused.operations[1:]] == [None] * (len(refused.operations) - 1)


def test_packet_with_two_calls() -> None:
    exchanges = parse_packets(read("two-in-a-packet.json"))
    assert len(exchanges) == 2
    assert exchanges[0].called_s == exchanges[1].called_s
    assert {one.operations[0].status for one in exchanges} == {"NFS4ERR_BADSESSION"}
    assert exchanges[0].answered_s != exchanges[1].answered_s


def test_call_without_a_reply() -> None:
    packets = json.loads(read("locks.json"), object_pairs_hook=list)
    (only,) = parse_packets(written(packets[:1]))
    assert not only.answered
    assert only.operations[-1].status is None


def test_call_that_is_sent_again_has_the_reply_at_its_last_time() -> None:
    call, reply, *_ = json.loads(read("locks.json"), object_pairs_hook=list)
    first, again = parse_packets(written([call, call, reply]))
    assert not first.answered
    assert again.answered


def written(pairs: object) -> str:
    """Write the parsed document again, including repeated keys."""
    if isinstance(pairs, list) and pairs and all(isinstance(one, tuple) for one in pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{written(value)}" for name, value in pairs) + "}"
    if isinstance(pairs, list):
        return "[" + ",".join(map(written, pairs)) + "]"
    return json.dumps(pairs)


def test_first_of_several_fields_counts() -> None:
    assert flat([("a", "1"), ("b", [("a", "2"), ("c", "3")])]) == {"a": "1", "c": "3"}


def test_nothing_captured() -> None:
    assert parse_packets("") == []
    assert parse_packets("[]") == []


@pytest.mark.parametrize("text", ["{", "[1]", '[{"_source": {}}]', '[{"_source": {"layers": {"frame": {}}}}]'])
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(RigError, match="unexpected tshark output"):
        parse_packets(text)


def test_operation_without_the_number_is_refused() -> None:
    with pytest.raises(RigError, match=r"no nfs\.offset4 of WRITE"):
        Operation("WRITE").number("nfs.offset4")


@pytest.mark.parametrize(
    "exchanges",
    [parse_packets(read("locks.json")), parse_packets(read("writes.json")), read3()],
    ids=["4", "4w", "3w"],
)
def test_what_is_kept_is_what_is_judged(exchanges: list[Exchange]) -> None:
    kept = read_exchanges(write_exchanges(exchanges))
    assert [(one.client, one.answered_s, len(one.operations)) for one in kept] == [
        (one.client, one.answered_s, len(one.operations)) for one in exchanges
    ]
    assert judge_restart(kept, restarted=True) == judge_restart(exchanges, restarted=True)
    assert judge_locks_kept(kept) == judge_locks_kept(exchanges)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"operations": [{"verb": 1}]}]'])
def test_something_else_was_not_kept(text: str) -> None:
    with pytest.raises(RigError, match="stored NFS exchanges"):
        read_exchanges(text)
