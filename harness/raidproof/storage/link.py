"""A machine's link to the lab's switch: its request, its commands, its effective state, and the link of a machine.

Outgoing frames pass a netem queue, which serialises them at the link's rate, and then drops and delays. Incoming
frames pass a tbf queue at the same rate, like at the switch's port: so two clients together cannot exceed the server's
link rate. The harness's own traffic, and ARP, bypass both queues.
"""

import json
from typing import Any, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import Machine, Spec, State, Value, require_effective
from raidproof.core.topology import GATEWAY
from raidproof.core.units import KIB, MIB, Duration, Rate, format_duration, format_rate

INTERFACE = "lab0"
"""Name of the interface on the lab's network, set by raidproof's init, whatever the driver calls it."""
INGRESS = "ifb0"
"""Emulates the switch's port: Linux queues outgoing traffic only, so incoming frames are redirected here."""
GUIDE, CONDITIONS, PORT = "77:", "78:", "79:"
"""Handles of the queues: the classifier of the harness's own traffic, the conditions, the limit of arrivals."""

# Frames or, of TCP, packets of up to 64 KiB: more than all TCP windows of a lab hold, so that only `loss` drops.
_LIMIT = 10_000
# A packet of 64 KiB must fit into the burst: otherwise tbf segments it, which costs more CPU time than TCP itself.
_BURST = 128 * KIB
_PORT_LIMIT = 16 * MIB
_LEAST_RATE, _MOST_RATE = 10**5, 10**11
_MOST_DELAY = 10 * 10**9
_TICK = 1000
"""Resolution of delays in tc's output, in nanoseconds."""


class LinkSpec(Spec):
    """A requested link; without any field it is the bare link, at memory speed.

    ``rate`` is in bits per second of Ethernet frames, in each direction. ``delay`` and ``jitter`` are in nanoseconds
    (or written ``"100us"``), added to each frame that the machine *sends*: the round trip between two machines takes
    twice the delay.
    The delay of a frame is uniformly distributed between ``delay - jitter`` and ``delay + jitter``.
    ``loss`` is in percent of the frames sent.
    """

    rate: Rate | None = None
    delay: Duration = 0
    jitter: Duration = 0
    loss: float = Field(default=0.0, ge=0, lt=100)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.rate is not None and not _LEAST_RATE <= self.rate <= _MOST_RATE:
            raise RequestError(f"rate {format_rate(self.rate)}: a link has 100kbit to 100Gbit")
        if self.rate is not None and self.rate % 8:
            raise RequestError(f"rate {format_rate(self.rate)}: the kernel counts in whole bytes per second")
        if self.delay > _MOST_DELAY:
            raise RequestError(f"delay {format_duration(self.delay)}: more than 10s is no network")
        if self.jitter > self.delay:
            raise RequestError(
                f"jitter {format_duration(self.jitter)} is more than the delay, {format_duration(self.delay)}: "
                "no frame arrives before it was sent"
            )
        if self.jitter and self.rate is None:
            raise RequestError("jitter without a rate would reorder frames, which a wire does not: give a rate")
        return self

    @property
    def bare(self) -> bool:
        """Whether nothing is requested."""
        return self == LinkSpec()


class Counters(State):
    """Counters of a queue since it was created."""

    packets: int
    bytes: int
    drops: int
    backlog: int
    """Bytes in the queue."""


class LinkState(State):
    """The effective state of a link; the counters are None without a queue."""

    rate: int | None = None
    delay: int = 0
    """Nanoseconds, at the tool's resolution of a microsecond."""
    jitter: int = 0
    loss: float = 0.0
    ingress_rate: int | None = None
    single_frames: bool = False
    """TCP passes single frames, not packets of up to 64 KiB, so that a loss is of one frame."""
    harness_passes: bool = False
    """The harness's own traffic bypasses the conditions."""
    sent: Counters | None = None
    received: Counters | None = None


def clear_commands() -> list[str]:
    """Return the lines of a ``tc -force -batch`` that removes all queues; a line fails if there is nothing."""
    return [f"qdisc del dev {INTERFACE} root", f"qdisc del dev {INTERFACE} ingress", f"qdisc del dev {INGRESS} root"]


def interface_commands(spec: LinkSpec) -> list[str]:
    """Return the lines of an ``ip -force -batch``; the first line fails if the interface exists already."""
    # netem drops whole packets of TCP: a loss of 64 KiB at once would not be the requested loss.
    segments = f"link set dev {INTERFACE} gso_max_segs {1 if spec.loss else 65535}"
    return [*([f"link add {INGRESS} type ifb", f"link set dev {INGRESS} up"] if spec.rate else []), segments]


def link_commands(spec: LinkSpec) -> list[str]:
    """Return the lines of a ``tc -batch`` that sets the conditions on a link without queues of raidproof."""
    if spec.bare:
        return []
    netem = [
        *(["delay", f"{spec.delay}ns", *([f"{spec.jitter}ns"] if spec.jitter else [])] if spec.delay else []),
        *(["loss", "random", f"{spec.loss:.6f}%"] if spec.loss else []),
        *(["rate", f"{spec.rate}bit"] if spec.rate else []),
    ]
    harness = f"{GATEWAY.ip}/32"
    egress = [
        f"qdisc add dev {INTERFACE} root handle {GUIDE} prio bands 2 priomap {' '.join('1' * 16)}",
        f"filter add dev {INTERFACE} parent {GUIDE} protocol ip pref 1 u32 match ip dst {harness} flowid {GUIDE}1",
        f"filter add dev {INTERFACE} parent {GUIDE} protocol arp pref 2 u32 match u32 0 0 flowid {GUIDE}1",
        f"qdisc add dev {INTERFACE} parent {GUIDE}2 handle {CONDITIONS} netem limit {_LIMIT} {' '.join(netem)}",
    ]
    if not spec.rate:
        return egress
    return [
        *egress,
        f"qdisc add dev {INGRESS} root handle {PORT} tbf rate {spec.rate}bit burst {_BURST} limit {_PORT_LIMIT}",
        f"qdisc add dev {INTERFACE} ingress",
        f"filter add dev {INTERFACE} parent ffff: protocol ip pref 1 u32 match ip src {harness} action ok",
        f"filter add dev {INTERFACE} parent ffff: protocol ip pref 2 matchall "
        f"action mirred egress redirect dev {INGRESS}",
    ]


def state_commands() -> list[str]:
    """Return the lines of a ``tc -s -j -batch`` that reads the state; each prints one line."""
    return ["qdisc show", f"filter show dev {INTERFACE}", f"filter show dev {INTERFACE} parent ffff:"]


Qdiscs = dict[tuple[str, str, str], dict[str, Any]]


def parse_qdisc(text: str) -> Qdiscs:
    """Parse ``tc -s -j qdisc show`` into a table of queues, by interface, handle and kind.

    Raises:
        RigError: the output is not whole.
    """
    try:
        return {(one["dev"], one["handle"], one["kind"]): one for one in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"tc did not list the queues: {text.strip()[-300:] or 'nothing'}") from error


def parse_link(text: str, segments: str) -> LinkState:
    """Parse the output of ``state_commands``, and of ``ip -d -j link show`` of the interface.

    Raises:
        RigError: one of them is not whole.
    """
    lines = text.splitlines()
    if len(lines) != len(state_commands()):
        raise RigError(f"tc answered {len(lines)} of {len(state_commands())} questions: {text.strip()[-300:]}")
    qdiscs = parse_qdisc(lines[0])
    netem = qdiscs.get((INTERFACE, CONDITIONS, "netem"))
    tbf = qdiscs.get((INGRESS, PORT, "tbf"))
    try:
        single = json.loads(segments)[0]["gso_max_segs"] == 1
        passes = _passes(json.loads(lines[1]), json.loads(lines[2]) if tbf else None)
        return LinkState(
            **(_conditions(netem["options"]) if netem else {}),
            ingress_rate=tbf["options"]["rate"] * 8 if tbf else None,
            single_frames=single,
            harness_passes=passes and (INTERFACE, GUIDE, "prio") in qdiscs,
            sent=_counters(netem),
            received=_counters(tbf),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RigError(f"the link's state cannot be read ({error!r}): {text.strip()[-300:]}") from error


def _conditions(options: dict[str, Any]) -> dict[str, Any]:
    delay = options.get("delay", {"delay": 0, "jitter": 0})
    return {
        "rate": options["rate"]["rate"] * 8 if "rate" in options else None,
        "delay": round(delay["delay"] * 1e9),
        "jitter": round(delay["jitter"] * 1e9),
        "loss": options.get("loss-random", {"loss": 0})["loss"] * 100,
    }


def _counters(qdisc: dict[str, Any] | None) -> Counters | None:
    return Counters.model_validate({name: qdisc[name] for name in Counters.model_fields}) if qdisc else None


def _passes(egress: list[dict[str, Any]], ingress: list[dict[str, Any]] | None) -> bool:
    address = f"{int(GATEWAY.ip):x}"

    def matches(filters: list[dict[str, Any]], offset: int) -> bool:
        keys = [one["options"]["match"] for one in filters if "match" in one.get("options", {})]
        return any((key["value"].lstrip("0"), key["mask"], key["off"]) == (address, "f" * 8, offset) for key in keys)

    # Offsets of destination and source in the IPv4 header (RFC 791).
    return matches(egress, 16) and (ingress is None or (matches(ingress, 12) and _redirects(ingress)))


def _redirects(filters: list[dict[str, Any]]) -> bool:
    actions = [action for one in filters for action in one.get("options", {}).get("actions", [])]
    return any(action.get("to_dev") == INGRESS for action in actions)


class Link:
    """The link of one machine."""

    def __init__(self, spec: LinkSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine

    def activate(self) -> LinkState:
        """Set the conditions, replacing earlier ones, and verify that they are as requested.

        Raises:
            NotEffective: they are not as requested.
            RequirementMissing: the machine has no interface on a network of the lab.
        """
        self._clear()
        # The interface may exist already, which is no failure; the result is read back.
        made = self.machine.run(["ip", "-force", "-batch", "-"], stdin=_lines(interface_commands(self.spec)))
        if f'Cannot find device "{INTERFACE}"' in made.stderr:
            raise RequirementMissing(
                f"{self.machine.name} has no {INTERFACE}: only networks that raidproof made are conditioned",
                remedy="ask for no link conditions, or for another provider",
            )
        if commands := link_commands(self.spec):
            self.machine.succeed(["tc", "-batch", "-"], stdin=_lines(commands))
        return self.require_effective()

    def deactivate(self) -> None:
        """Make the link bare again."""
        self._clear()
        self.machine.run(["ip", "-force", "-batch", "-"], stdin=_lines(interface_commands(LinkSpec())))

    def _clear(self) -> None:
        self.machine.run(["tc", "-force", "-batch", "-"], stdin=_lines(clear_commands()))

    def state(self) -> LinkState:
        """Read the conditions and the counters.

        Raises:
            RigError: the output of the tools cannot be parsed.
        """
        segments = self.machine.succeed(["ip", "-d", "-j", "link", "show", "dev", INTERFACE])
        # Without conditions there are no filters to list, and tc ends with a status other than 0.
        listed = self.machine.run(["tc", "-force", "-s", "-j", "-batch", "-"], stdin=_lines(state_commands()))
        return parse_link(listed.stdout, segments)

    def require_effective(self) -> LinkState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        require_effective(f"the link of {self.machine.name}", _asked(self.spec), _found(self.spec, state))
        return state


def _lines(commands: list[str]) -> str:
    return "".join(f"{command}\n" for command in commands)


def _asked(spec: LinkSpec) -> dict[str, Value]:
    return {
        # None would mean "not requested", but a bare link must be bare.
        "rate": spec.rate or 0,
        "ingress rate": spec.rate or 0,
        "delay": format_duration(spec.delay),
        "jitter": format_duration(spec.jitter),
        "loss": f"{spec.loss:.4f}%",
        "single frames": bool(spec.loss),
        "harness passes": not spec.bare,
    }


def _found(spec: LinkSpec, state: LinkState) -> dict[str, Value]:
    def about(asked: int, found: int) -> str:
        return format_duration(asked if abs(asked - found) <= _TICK else found)

    return {
        "rate": state.rate or 0,
        "ingress rate": state.ingress_rate or 0,
        "delay": about(spec.delay, state.delay),
        "jitter": about(spec.jitter, state.jitter),
        "loss": f"{state.loss:.4f}%",
        "single frames": state.single_frames,
        "harness passes": state.harness_passes,
    }
