"""Replies in tshark's output: their senders, and when they crossed the bridge on the monotonic clock."""

from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.monitor.reply_times import Clocks, Reply, parse_replies, parse_writes, replies_command

CLOCKS = Clocks(1_700_000_000_000_000_000, 1_700_000_000_000_000_000)
CLIENT, SERVER = "10.77.0.21", "10.77.0.10"


def call(
    ns: int, xids: str, groups: str, stream: int = 0, *, stable: tuple[str, str] = ("", ""), sizes: str = ""
) -> str:
    kinds = ",".join("0" for _ in xids.split(","))
    fields = (xids, kinds, groups, *stable, *((sizes, "") if stable[0] else ("", sizes)))
    return "\t".join((f"1700000000.{ns:09}", CLIENT, SERVER, str(stream), *fields))


def reply(ns: int, xids: str, stream: int = 0, *, stable4: str = "") -> str:
    kinds = ",".join("1" for _ in xids.split(","))
    return f"1700000000.{ns:09}\t{SERVER}\t{CLIENT}\t{stream}\t{xids}\t{kinds}\t\t\t{stable4}\t\t"


def parsed(*lines: str) -> list[Reply]:
    return parse_replies("\n".join(lines), CLOCKS)


def test_the_port_is_named() -> None:
    command = replies_command(Path("x.pcapng"), port=20490)
    assert command[command.index("-d") + 1] == "tcp.port==20490,rpc"


def test_writes_are_counted_by_the_stability_that_the_clients_asked_for() -> None:
    lines = [
        call(5, "0x1,0x2", "0,0", stable=("", "2,0"), sizes="100,4096"),
        call(6, "0x3", "0", stable=("", "1"), sizes="65536"),
        reply(7, "0x1", stable4="2"),
        call(8, "0x4", "0", stable=("2", ""), sizes="100"),
        call(9, "0x5", "0"),
        # A READ and a WRITE of NFSv3.
        call(9, "0x6,0x7", "0,0", stable=("2", ""), sizes="4096,8192"),
    ]
    expected = {("FILE_SYNC", 100): 2, ("UNSTABLE", 4096): 1, ("DATA_SYNC", 65536): 1, ("FILE_SYNC", None): 1}
    assert parse_writes("\n".join(lines)) == expected
    with pytest.raises(RigError, match="stability"):
        parse_writes(call(5, "0x1", "0", stable=("", "3")))


def test_a_reply_has_the_group_and_the_instant_of_its_call() -> None:
    assert parsed(call(5, "0x1", "20003,0"), reply(9, "0x1")) == [Reply(CLIENT, 9, 5, 20003)]


def test_several_messages_in_a_packet_are_distinguished() -> None:
    seen = parsed(call(5, "0x1,0x2", "20003,0,20004,0"), reply(8, "0x2"), reply(9, "0x1"))
    assert [(one.replied_ns, one.group) for one in seen] == [(8, 20004), (9, 20003)]
    seen = parsed(call(5, "0x1", "20003"), call(6, "0x2", "20004"), reply(9, "0x1,0x2"))
    assert [(one.called_ns, one.group) for one in seen] == [(5, 20003), (6, 20004)]


@pytest.mark.parametrize("groups", ["", "20003,0,20004", "20003,0,20004,7"])
def test_replies_that_cannot_be_assigned_to_calls_have_no_owner(groups: str) -> None:
    seen = parsed(call(5, "0x1,0x2", groups), reply(9, "0x1,0x2"))
    assert [one.group for one in seen] == [None, None]


def test_an_xid_counts_within_its_connection() -> None:
    seen = parsed(call(5, "0x1", "20003", stream=0), call(6, "0x1", "20004", stream=1), reply(9, "0x1", stream=1))
    assert seen == [Reply(CLIENT, 9, 6, 20004)]


def test_a_reply_without_a_captured_call_has_no_owner() -> None:
    assert parsed(reply(9, "0x1")) == [Reply(CLIENT, 9, None, None)]


def test_a_call_of_the_server_is_no_reply_and_its_answer_is_the_servers() -> None:
    back = f"1700000000.000000005\t{SERVER}\t{CLIENT}\t0\t0x7\t0\t0\t\t\t\t"
    answer = f"1700000000.000000006\t{CLIENT}\t{SERVER}\t0\t0x7\t1\t\t\t\t\t"
    assert parsed(call(4, "0x7", "20003"), back, answer, reply(9, "0x7")) == [
        Reply(SERVER, 6, 5, 0),
        Reply(CLIENT, 9, 4, 20003),
    ]


def test_a_piece_of_a_message_is_passed_over() -> None:
    assert parsed(f"1700000000.000000005\t{CLIENT}\t{SERVER}\t0\t\t\t\t\t\t\t") == []


@pytest.mark.parametrize(
    "line", ["Running as user", "1700000000.5\ta\tb\t0\t0x1\t0\t\t\t\t\t", "1\ta\tb\t0\t0x1,0x2\t0\t\t\t\t\t"]
)
def test_what_is_no_such_line_is_refused(line: str) -> None:
    with pytest.raises(RigError, match="tshark"):
        parsed(line)


def test_of_two_possible_instants_the_later_counts() -> None:
    assert Clocks(1000, 990).monotonic_ns(5000) == 4010


def test_a_clock_that_was_set_meanwhile_dates_nothing() -> None:
    Clocks(1_000_000_000, 1_000_150_000).require_unset()
    with pytest.raises(RigError, match=r"set by 0\.3 ms"):
        Clocks(1_000_000_000, 1_000_300_000).require_unset()
