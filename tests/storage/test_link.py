# Under data/tc is what iproute2 6.15 printed in a machine: tc to the three questions of state_commands, ip to the one.
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.storage.link import (
    Counters,
    Link,
    LinkSpec,
    clear_commands,
    interface_commands,
    link_commands,
    parse_link,
    parse_qdisc,
)
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[1] / "data" / "tc"


def said(name: str) -> tuple[str, str]:
    return (DATA / f"iproute2-6.15-{name}.txt").read_text(), (DATA / f"iproute2-6.15-{name}-interface.txt").read_text()


FULL, FULL_INTERFACE = said("rate-delay-jitter-loss")
FULL_SPEC = LinkSpec.model_validate({"rate": "1Gbit", "delay": "1ms", "jitter": "500us", "loss": 1})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"rate": "1Gb"}, "not a rate"),
        ({"rate": 0}, "100kbit to 100Gbit"),
        ({"rate": 1_000_001}, "whole bytes"),
        ({"delay": "11s"}, "maximum, 10s"),
        ({"rate": "1Gbit", "delay": "1ms", "jitter": "2ms"}, "jitter 2ms is more than the delay, 1ms"),
        ({"delay": "1ms", "jitter": "100us"}, "request a rate"),
        ({"loss": 100}, "less than 100"),
        ({"loss": -1}, "greater than or equal to 0"),
        ({"latency": "1ms"}, "LinkSpec has no field 'latency'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        LinkSpec.model_validate(asked)


def test_a_bare_link_takes_no_queue() -> None:
    assert LinkSpec().bare
    assert link_commands(LinkSpec()) == []
    assert interface_commands(LinkSpec()) == ["link set dev lab0 gso_max_segs 65535"]


def test_the_harness_goes_past_the_conditions() -> None:
    commands = link_commands(FULL_SPEC)
    assert "filter add dev lab0 parent 77: protocol ip pref 1 u32 match ip dst 10.77.0.1/32 flowid 77:1" in commands
    assert "filter add dev lab0 parent ffff: protocol ip pref 1 u32 match ip src 10.77.0.1/32 action ok" in commands
    assert commands[3].endswith("netem limit 10000 delay 1000000ns 500000ns loss random 1.000000% rate 1000000000bit")


def test_only_a_rate_limits_what_arrives() -> None:
    assert not any("ifb0" in line for line in link_commands(LinkSpec(delay=1000)))
    assert not any("ifb0" in line for line in interface_commands(LinkSpec(delay=1000)))
    assert any("tbf rate 100000000bit" in line for line in link_commands(LinkSpec(rate=10**8)))
    assert interface_commands(LinkSpec(loss=1))[-1].endswith("gso_max_segs 1")


def test_what_is_found() -> None:
    state = parse_link(FULL, FULL_INTERFACE)
    assert (state.rate, state.ingress_rate) == (10**9, 10**9)
    assert (state.delay, state.jitter, state.loss) == (1_000_000, 500_000, 1.0)
    assert state.single_frames
    assert state.harness_passes
    assert state.sent == Counters(packets=19605, bytes=1346454, drops=208, backlog=0)
    assert state.received is not None
    assert state.received.drops == 0


def test_a_delay_alone() -> None:
    state = parse_link(*said("delay"))
    assert (state.rate, state.ingress_rate, state.delay, state.loss) == (None, None, 1_000_000, 0)
    assert state.harness_passes
    assert not state.single_frames
    assert state.received is None


def test_a_bare_link() -> None:
    state = parse_link(*said("bare"))
    assert (state.rate, state.delay, state.sent, state.harness_passes) == (None, 0, None, False)


@given(st.integers(0, len(FULL.rstrip()) - 1))
def test_a_cut_off_answer_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_link(FULL[:length], FULL_INTERFACE)


@given(st.integers(0, len(FULL_INTERFACE.rstrip()) - 1))
def test_a_cut_off_interface_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_link(FULL, FULL_INTERFACE[:length])


@pytest.mark.parametrize("text", ["", "[7]", "[{}]", "{", "Error: Cannot find device"])
def test_qdiscs_of_something_else(text: str) -> None:
    with pytest.raises(RigError):
        parse_qdisc(text)


class Tools(FilesByCommands):
    """A fake machine with scripted output of tc and ip."""

    name = "client1"
    address = "10.77.0.21"

    def __init__(self, listed: str, interface: str, refuses: str = "") -> None:
        self.listed = listed
        self.interface = interface
        self.refuses = refuses
        self.ran: list[tuple[str, str]] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append((" ".join(argv), stdin or ""))
        answer = self.interface if "show" in argv else self.listed if "-s" in argv else ""
        return Completed(tuple(argv), int(" ".join(argv) == self.refuses), answer, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        completed = self.run(argv, stdin=stdin)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout


def test_activation_clears_first_and_reads_back() -> None:
    tools = Tools(FULL, FULL_INTERFACE)
    assert Link(FULL_SPEC, tools).activate().loss == 1
    assert [command for command, _ in tools.ran] == [
        "tc -force -batch -",
        "ip -force -batch -",
        "tc -batch -",
        "ip -d -j link show dev lab0",
        "tc -force -s -j -batch -",
    ]
    assert tools.ran[0][1].splitlines() == clear_commands()


def test_deactivation_leaves_nothing() -> None:
    tools = Tools(*said("bare"))
    Link(FULL_SPEC, tools).deactivate()
    assert tools.ran[0][1].splitlines() == clear_commands()
    assert tools.ran[1][1] == "link set dev lab0 gso_max_segs 65535\n"


def test_a_refusal_by_the_kernel_is_reported() -> None:
    with pytest.raises(CommandFailed):
        Link(FULL_SPEC, Tools(FULL, FULL_INTERFACE, refuses="tc -batch -")).activate()


@pytest.mark.parametrize(
    ("change", "said_of"),
    [
        ({"rate": "100Mbit"}, "rate: requested 100000000, effective 1000000000"),
        ({"rate": None, "jitter": 0}, "ingress rate: requested 0, effective 1000000000"),
        ({"delay": "2ms"}, "delay: requested 2ms, effective 1ms"),
        ({"jitter": "300us"}, "jitter: requested 300us, effective 500us"),
        ({"loss": 2}, r"loss: requested 2.0000%, effective 1.0000%"),
        ({"loss": 0}, "single frames: requested False, effective True"),
    ],
)
def test_a_value_that_is_not_as_requested_is_reported(change: dict[str, Any], said_of: str) -> None:
    spec = LinkSpec.model_validate({**FULL_SPEC.model_dump(), **change})
    with pytest.raises(NotEffective, match=said_of):
        Link(spec, Tools(FULL, FULL_INTERFACE)).require_effective()


@pytest.mark.parametrize("line", [1, 2])
def test_conditions_on_the_harness_traffic_are_reported(line: int) -> None:
    lines = FULL.splitlines()
    lines[line] = json.dumps([one for one in json.loads(lines[line]) if "match" not in one.get("options", {})])
    with pytest.raises(NotEffective, match="harness passes: requested True, effective False"):
        Link(FULL_SPEC, Tools("\n".join(lines), FULL_INTERFACE)).require_effective()


def test_frames_that_bypass_the_port_are_reported() -> None:
    lines = FULL.splitlines()
    lines[2] = json.dumps([one for one in json.loads(lines[2]) if "actions" not in one.get("options", {})])
    with pytest.raises(NotEffective, match="harness passes"):
        Link(FULL_SPEC, Tools("\n".join(lines), FULL_INTERFACE)).require_effective()


def test_a_bare_link_must_be_bare() -> None:
    assert Link(LinkSpec(), Tools(*said("bare"))).require_effective().sent is None
    with pytest.raises(NotEffective, match="rate: requested 0"):
        Link(LinkSpec(), Tools(FULL, FULL_INTERFACE)).require_effective()
