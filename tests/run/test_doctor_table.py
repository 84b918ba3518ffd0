import io
import json

import pytest
from rich.console import Console

from raidproof.core.errors import RequirementMissing
from raidproof.run.doctor import HostCheck, Outcome, missing, require, show

FINDINGS = [
    HostCheck("memory", Outcome.OK, "enough [really]"),
    HostCheck("processors", Outcome.WARNING, "1", "be patient"),
    HostCheck("ip", Outcome.MISSING, "not found", "apt-get install iproute2"),
]


def shown(*, terminal: bool, as_json: bool = False) -> str:
    stream = io.StringIO()
    show(FINDINGS, json=as_json, console=Console(file=stream, force_terminal=terminal, width=200))
    return stream.getvalue()


def test_plain_lines() -> None:
    assert shown(terminal=False).splitlines() == [
        "ok       memory: enough [really]",
        "warning  processors: 1 (remedy: be patient)",
        "missing  ip: not found (remedy: apt-get install iproute2)",
        "the demo cannot run on this host: ip",
    ]


def test_table_on_a_terminal() -> None:
    text = shown(terminal=True)
    assert all(word in text for word in ("remedy", "enough [really]", "apt-get install iproute2"))


def test_json() -> None:
    parsed = json.loads(shown(terminal=False, as_json=True))
    assert parsed[2] == {
        "name": "ip",
        "outcome": "missing",
        "reason": "not found",
        "remedy": "apt-get install iproute2",
    }


def test_warnings_do_not_stop_a_run() -> None:
    require(FINDINGS[:2])
    assert missing(FINDINGS[:2]) == []


def test_what_is_missing_stops_it_with_every_reason() -> None:
    gcc = HostCheck("gcc", Outcome.MISSING, "not found", "apt-get install gcc")
    with pytest.raises(RequirementMissing) as stopped:
        require([*FINDINGS, gcc])
    assert "ip: not found (apt-get install iproute2); gcc: not found (apt-get install gcc)" in str(stopped.value)
