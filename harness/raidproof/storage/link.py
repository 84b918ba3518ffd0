"""The link of a machine to the lab's switch: requested conditions, tc and ip commands, effective state.

Outgoing frames pass a netem queue, which sends them at the link's rate, and drops and delays frames. Incoming frames
pass a tbf queue at the same rate, which emulates the switch's port: two clients together cannot exceed the rate of the
server's link. ARP and the traffic between the harness and the machine bypass both queues.
"""

import json
from typing import Any, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import Machine, Spec, State, Value, require_effective
from raidproof.core.topology import GATEWAY
from raidproof.core.units import KIB, MIB, Duration, Rate, format_duration, format_rate

INTERFACE = "lab0"
"""Name of a machine's interface on the lab's network. raidproof's init gives this name to it."""
INGRESS = "ifb0"
"""The ifb interface that emulates the switch's port.

Linux queues outgoing traffic only, so tc redirects incoming frames to this interface.
"""
GUIDE, CONDITIONS, PORT = "77:", "78:", "79:"
"""Handles of three queues: prio, which separates the harness's traffic; netem on outgoing, tbf on incoming frames."""

# Length of the netem queue, in frames or TCP packets of up to 64 KiB: it exceeds all TCP windows of a lab together, so
# that netem drops frames because of `loss` only.
_LIMIT = 10_000
# Bytes. A packet of 64 KiB must fit into the burst: otherwise tbf segments it, which costs more CPU time than TCP.
_BURST = 128 * KIB
_PORT_LIMIT = 16 * MIB
_LEAST_RATE, _MOST_RATE = 10**5, 10**11
_MOST_DELAY = 10 * 10**9
_TICK = 1000
"""Resolution in nanoseconds of the delays that tc prints."""


class LinkSpec(Spec):
    """The requested conditions of a link. The defaults request a link without a limit, delay or loss."""

    rate: Rate | None = None
    """Bits per second of Ethernet frames in each direction; None is unlimited."""
    delay: Duration = 0
    """Nanoseconds, or text like ``100us``, by which each frame that the machine sends is delayed.

    A round trip between two machines with the same link takes twice the delay.
    """
    jitter: Duration = 0
    """Nanoseconds: the delay of a frame is uniformly distributed from ``delay - jitter`` to ``delay + jitter``."""
    loss: float = Field(default=0.0, ge=0, lt=100)
    """Percentage of the sent frames that are dropped."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.rate is not None and not _LEAST_RATE <= self.rate <= _MOST_RATE:
            raise RequestError(
                f"link: rate {format_rate(self.rate)} is not supported: it must be from 100kbit to 100Gbit"
            )
        if self.rate is not None and self.rate % 8:
            raise RequestError(
                f"link: rate {format_rate(self.rate)} is not a multiple of 8bit: the kernel counts in whole bytes per "
                "second"
            )
        if self.delay > _MOST_DELAY:
            raise RequestError(f"link: delay {format_duration(self.delay)} is more than the maximum, 10s")
        if self.jitter > self.delay:
            raise RequestError(
                f"link: jitter {format_duration(self.jitter)} is more than the delay, {format_duration(self.delay)}: "
                "the delay of a frame cannot be negative"
            )
        if self.jitter and self.rate is None:
            raise RequestError(
                f"link: jitter {format_duration(self.jitter)} without a rate would reorder frames: request a rate"
            )
        return self

    @property
    def bare(self) -> bool:
        """Whether no condition is requested."""
        return self == LinkSpec()


class Counters(State):
    """The counters of a queue since its creation."""

    packets: int
    bytes: int
    drops: int
    backlog: int
    """Bytes that are now in the queue."""


class LinkState(State):
    """The effective conditions of a link, and the counters of its queues."""

    rate: int | None = None
    """Rate of outgoing frames in bits per second; None if unlimited."""
    delay: int = 0
    """Nanoseconds; tc prints whole microseconds."""
    jitter: int = 0
    """Nanoseconds; tc prints whole microseconds."""
    loss: float = 0.0
    """Percent."""
    ingress_rate: int | None = None
    """Rate of incoming frames in bits per second; None if unlimited."""
    single_frames: bool = False
    """Whether TCP passes single frames to the queue, not packets of up to 64 KiB: netem then drops single frames."""
    harness_passes: bool = False
    """Whether the traffic between the harness and the machine bypasses the conditions."""
    sent: Counters | None = None
    """Counters of the outgoing queue; None if the link has none."""
    received: Counters | None = None
    """Counters of the incoming queue; None if the link has none."""


def clear_commands() -> list[str]:
    """Return the input of ``tc -force -batch`` that removes all queues; a line fails if its queue does not exist."""
    return [f"qdisc del dev {INTERFACE} root", f"qdisc del dev {INTERFACE} ingress", f"qdisc del dev {INGRESS} root"]


def interface_commands(spec: LinkSpec) -> list[str]:
    """Return the input of ``ip -force -batch`` that limits segments of `INTERFACE`, and for a rate creates `INGRESS`.

    The line that creates `INGRESS` fails if `INGRESS` exists already.
    """
    # netem drops what TCP passes to it: without this limit, one drop would lose up to 64 KiB, not one frame.
    segments = f"link set dev {INTERFACE} gso_max_segs {1 if spec.loss else 65535}"
    return [*([f"link add {INGRESS} type ifb", f"link set dev {INGRESS} up"] if spec.rate else []), segments]


def link_commands(spec: LinkSpec) -> list[str]:
    """Return the input of ``tc -batch`` that sets the conditions on a link whose queues have been removed."""
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
    """Return the input of ``tc -s -j -batch`` that reads queues and filters; tc prints one line for each."""
    return ["qdisc show", f"filter show dev {INTERFACE}", f"filter show dev {INTERFACE} parent ffff:"]


Qdiscs = dict[tuple[str, str, str], dict[str, Any]]


def parse_qdisc(text: str) -> Qdiscs:
    """Parse the output of ``tc -s -j qdisc show`` into a mapping of queues by (interface, handle, kind).

    Raises:
        RigError: the output is truncated or malformed.
    """
    try:
        return {(one["dev"], one["handle"], one["kind"]): one for one in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"the output of tc qdisc show cannot be parsed: {text.strip()[-300:] or 'nothing'}") from error


def parse_link(text: str, segments: str) -> LinkState:
    """Parse ``text``, tc's output for `state_commands`, and ``segments``, that of ``ip -d -j link show``.

    Raises:
        RigError: an output is truncated or malformed.
    """
    lines = text.splitlines()
    if len(lines) != len(state_commands()):
        raise RigError(
            f"tc printed {len(lines)} lines for {len(state_commands())} commands: {text.strip()[-300:] or 'nothing'}"
        )
    qdiscs = parse_qdisc(lines[0])
    netem = qdiscs.get((INTERFACE, CONDITIONS, "netem"))
    tbf = qdiscs.get((INGRESS, PORT, "tbf"))
    try:
        single = json.loads(segments)[0]["gso_max_segs"] == 1
        passes = _harness_passes(json.loads(lines[1]), json.loads(lines[2]) if tbf else None)
        return LinkState(
            **(_conditions(netem["options"]) if netem else {}),
            ingress_rate=tbf["options"]["rate"] * 8 if tbf else None,
            single_frames=single,
            harness_passes=passes and (INTERFACE, GUIDE, "prio") in qdiscs,
            sent=_counters(netem),
            received=_counters(tbf),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RigError(f"the output of tc and ip cannot be parsed ({error!r}): {text.strip()[-300:]}") from error


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


def _harness_passes(egress: list[dict[str, Any]], ingress: list[dict[str, Any]] | None) -> bool:
    address = f"{int(GATEWAY.ip):x}"

    def matches(filters: list[dict[str, Any]], offset: int) -> bool:
        keys = [one["options"]["match"] for one in filters if "match" in one.get("options", {})]
        return any((key["value"].lstrip("0"), key["mask"], key["off"]) == (address, "f" * 8, offset) for key in keys)

    # Offsets of the destination address (16) and the source address (12) in the IPv4 header (RFC 791).
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
        """Replace the conditions of the link, and verify that the effective conditions are as requested.

        Raises:
            NotEffective: the effective conditions differ from the requested ones.
            RequirementMissing: the machine has no interface on a network that raidproof created.
        """
        self._clear()
        # The ifb interface may exist already, so the status is ignored; the result is read back below.
        made = self.machine.run(["ip", "-force", "-batch", "-"], stdin=_lines(interface_commands(self.spec)))
        if f'Cannot find device "{INTERFACE}"' in made.stderr:
            raise RequirementMissing(
                f"{self.machine.name} has no interface {INTERFACE}: raidproof sets link conditions only on networks "
                "that it created",
                remedy="request no link conditions, or use another provider",
            )
        if commands := link_commands(self.spec):
            self.machine.succeed(["tc", "-batch", "-"], stdin=_lines(commands))
        return self.require_effective()

    def deactivate(self) -> None:
        """Remove the conditions from the link."""
        self._clear()
        self.machine.run(["ip", "-force", "-batch", "-"], stdin=_lines(interface_commands(LinkSpec())))

    def _clear(self) -> None:
        self.machine.run(["tc", "-force", "-batch", "-"], stdin=_lines(clear_commands()))

    def state(self) -> LinkState:
        """Read the effective conditions of the link, and the counters of its queues.

        Raises:
            RigError: the output of tc or ip cannot be parsed.
        """
        segments = self.machine.succeed(["ip", "-d", "-j", "link", "show", "dev", INTERFACE])
        # On a bare link tc has no filters to list, and ends with a status other than 0.
        listed = self.machine.run(["tc", "-force", "-s", "-j", "-batch", "-"], stdin=_lines(state_commands()))
        return parse_link(listed.stdout, segments)

    def require_effective(self) -> LinkState:
        """Verify that the effective conditions are as requested, and return them.

        Raises:
            NotEffective: the effective conditions differ from the requested ones.
        """
        state = self.state()
        require_effective(f"the link of {self.machine.name}", _requested(self.spec), _found(self.spec, state))
        return state


def _lines(commands: list[str]) -> str:
    return "".join(f"{command}\n" for command in commands)


def _requested(spec: LinkSpec) -> dict[str, Value]:
    return {
        # 0, not None: None means "not requested", but a link without a requested rate must have no limit.
        "rate": spec.rate or 0,
        "ingress rate": spec.rate or 0,
        "delay": format_duration(spec.delay),
        "jitter": format_duration(spec.jitter),
        "loss": f"{spec.loss:.4f}%",
        "single frames": bool(spec.loss),
        "harness passes": not spec.bare,
    }


def _found(spec: LinkSpec, state: LinkState) -> dict[str, Value]:
    def rounded(requested: int, found: int) -> str:
        return format_duration(requested if abs(requested - found) <= _TICK else found)

    return {
        "rate": state.rate or 0,
        "ingress rate": state.ingress_rate or 0,
        "delay": rounded(spec.delay, state.delay),
        "jitter": rounded(spec.jitter, state.jitter),
        "loss": f"{state.loss:.4f}%",
        "single frames": state.single_frames,
        "harness passes": state.harness_passes,
    }
