"""The plan that re-creates an existing server, as TOML with the source of each value in comments."""

import json
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, MIB, format_size
from raidproof.existing.drives import Drive
from raidproof.existing.given import plain
from raidproof.existing.server import ExistingServer
from raidproof.plan.axes import axes, write_value
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import default_name, read_plan
from raidproof.plan.rules import firing
from raidproof.plan.warnings import Warned, warned
from raidproof.storage.array import LEVELS

WIDTH = 110
"""Greatest number of characters of a line of a comment."""
CAPACITY = 5 * GIB // 2
"""Least bytes of the lab's array, so that the workload fits beside the log."""
STEP, LEAST = 256 * MIB, 512 * MIB
WORK = 1536 * MIB
"""Bytes that the sequential workload writes: more than the memory of the lab's client, which would hide the server."""


SMALL_WRITES = "durable"
"""Name of the workload of small durable writes, for which `raidproof advise` is usually asked."""


def plan_text(server: ExistingServer) -> str:
    """Return the plan as the text of a TOML file.

    Raises:
        RequestError: no plan can re-create the server; the message has the reason.
    """
    text = "\n".join(_lines(server)) + "\n"
    checked(text, server)
    return text


def checked(text: str, server: ExistingServer) -> Matrix:
    """Return the cells of a plan's text.

    Raises:
        RequestError: the plan is impossible.
    """
    try:
        return matrix_of(read_plan(tomllib.loads(text), source="the plan", name=name_of(server)))
    except RequestError as error:
        raise RequestError(f"{server.export}: no plan can re-create this server: {plain(str(error))}") from error


def name_of(server: ExistingServer) -> str:
    """Return a name for the plan and for its file: the path of the export with ``-`` for each ``/``."""
    # A dot would end the stem of a path.
    return default_name(Path(server.export.strip("/").replace("/", "-").replace(".", "-") or "root"))


def warnings_about(server: ExistingServer) -> tuple[Warned, ...]:
    """Return the warnings about the server as it is, also about settings that a plan does not have."""
    return tuple(warned(rule) for rule in firing(server.configuration))


def member_size(server: ExistingServer) -> int:
    """Return the bytes of each disk of the lab: the array then has room for the workload, whatever its level."""
    members = sum(drive.duty == "member" for drive in server.drives)
    layout = server.settings.get("layout")
    kind = LEVELS[str(server.settings["level"].value)]
    width = kind.of(members, str(layout.value) if layout else None).capacity(1 << 20) / (1 << 20)
    steps = -(-CAPACITY // max(1, round(width * STEP)))
    return max(LEAST, steps * STEP)


def _lines(server: ExistingServer) -> Iterator[str]:
    yield from _comment(
        f"A re-creation of the export {plain(server.export)} of an existing server, made by raidproof import. Each "
        "value has its source. A value marked DEFAULT stands where a value was not read, with the reason."
    )
    if server.appliance is not None:
        yield from _comment(f"The files have the layout of {server.appliance.value} ({server.appliance.source}).")
    yield f"title = {_quoted(f're-creation of the export {server.export}')}"
    yield ""
    for warning in warnings_about(server):
        yield from _comment(
            f"WARNING ({warning.severity.value}) {warning.rule}: {warning.reason}. Source: "
            f"{warning.source}. Remedy: {warning.remedy}."
        )
    yield ""
    yield from _hardware(server)
    yield from _settings(server)
    yield ""
    for title, those in (("In another form", server.stand_ins), ("Not re-created", server.left_out)):
        if those:
            yield f"# {title}:"
        for one in those:
            yield from _comment(f"- {one}")
    yield from _comment(
        "To compare alternatives, move a line from [fixed] to a table [axes], and make its value a list."
    )
    yield ""
    yield from _workloads(lacks_member=server.lacks_member)


def _settings(server: ExistingServer) -> Iterator[str]:
    order = [name for name in axes() if name in server.settings]
    for table, names in (
        ("[fixed]", [name for name in order if name not in server.alternatives]),
        ("[axes]", server.alternatives),
    ):
        if names:
            yield table
        for name in names:
            yield from _setting(server, name)


def _setting(server: ExistingServer, name: str) -> Iterator[str]:
    fact = server.settings[name]
    yield from _comment(f"{'' if fact.was_read else 'DEFAULT: '}{fact.source or fact.why_default}")
    values = [fact.value, not fact.value] if name in server.alternatives else [fact.value]
    written = ", ".join(_value(name, value) for value in values)
    yield f"{name} = [{written}]" if name in server.alternatives else f"{name} = {written}"


def _hardware(server: ExistingServer) -> Iterator[str]:
    size = format_size(member_size(server))
    yield from _comment(
        f"The lab's disks are smaller than the real ones ({size} each), so that a run is short. The latency of "
        "a request is computed for the capacity of the drive of the profile, over all of which the disk is spread."
    )
    for group in _groups(server.drives):
        first = group[0]
        yield ""
        yield from _comment(f"{', '.join(plain(one.name) for one in group)}: {_described(first)}")
        yield from _comment(f"profile: {_profile_source(first)}")
        if first.differs:
            yield from _comment(f"the drive differs: {first.differs}")
        yield from _comment(f"write cache of the real drive: {first.write_cache.value}, {first.write_cache}")
        yield "[[hardware.disks]]"
        yield f"count = {len(group)}"
        yield f'profile = "{first.profile.value}"'
        yield f'size = "{size}"'
        if first.duty != "member":
            yield f'duty = "{first.duty}"'
    yield ""
    yield from _comment("DEFAULT, not read: the link. 1 Gbit/s Ethernet with 100 us of delay in each direction.")
    yield "[hardware.network]"
    yield 'rate = "1Gbit"'
    yield 'delay = "100us"'
    yield ""
    yield from _comment("DEFAULT, not read: controllers. Without a table [hardware.controller] they set no limit.")
    yield ""


def _groups(drives: Sequence[Drive]) -> list[list[Drive]]:
    """Return consecutive drives of the same model and use together."""
    groups: list[list[Drive]] = []
    for drive in drives:
        before = groups[-1][0] if groups else None
        key = (drive.model, drive.duty, drive.profile.value, drive.write_cache.value)
        if before is not None and key == (before.model, before.duty, before.profile.value, before.write_cache.value):
            groups[-1].append(drive)
        else:
            groups.append([drive])
    return groups


def _described(drive: Drive) -> str:
    size = "size not read"
    if drive.real_size:
        size = f"{drive.real_size / 1e9:,.0f} GB" if drive.real_size >= 10**9 else f"{drive.real_size / 1e6:.0f} MB"
    return f"model {drive.model or 'not read'}, {size}"


def _profile_source(drive: Drive) -> str:
    return f"{'' if drive.profile.was_read else 'DEFAULT: '}{drive.profile.source or drive.profile.why_default}"


def _workloads(*, lacks_member: bool) -> Iterator[str]:
    yield from _comment(
        "DEFAULT: the workloads. Large files written in order, and small writes each of which is durable."
    )
    yield from ("[[workload]]", 'name = "sequential"', 'tool = "fio"', 'preset = "sequential-write"')
    yield from ("runtime_s = 5", f'size = "{format_size(WORK)}"', "")
    yield from ("[[workload]]", f'name = "{SMALL_WRITES}"', 'tool = "fio"', 'preset = "fsync-heavy"')
    yield from ("runtime_s = 5", 'size = "256MiB"', "")
    yield from ("[run]", "repeats = 3")
    if lacks_member:
        yield from _comment("Cut the power once, and check crash states, also of the array without one member.")
        yield from ('cut = "explore"', "explore_states = 60", 'explore_members = ["whole", "missing"]')
        return
    yield from _comment("Cut the power once, and check every acknowledged write.")
    yield 'cut = "power"'


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(plain(text), WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _value(name: str, value: str | int | bool) -> str:
    """Return a value of an axis in TOML, in the notation of plan files."""
    written = write_value(name, value)
    if isinstance(value, bool):
        return written if written in {"true", "false"} else _quoted(written)
    return str(value) if isinstance(value, int) and written == str(value) else _quoted(written)


def _quoted(text: str) -> str:
    return json.dumps(plain(text), ensure_ascii=False)
