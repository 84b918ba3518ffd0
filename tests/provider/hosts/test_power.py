from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.waiting import Deadline, now_ns
from raidproof.disk.cache import CutPolicy
from raidproof.provider.hosts.power import (
    CommandControl,
    CommandSwitch,
    HostPower,
    PowerControl,
    SysrqControl,
    SysrqSwitch,
    parse_state,
    switch_of,
)

CONTROL: TypeAdapter[PowerControl] = TypeAdapter(PowerControl)


class Armed:
    """A dd that waits for one byte of input."""

    def __init__(self, answer: Completed | None = None, *, ended: bool = False) -> None:
        self.ended = ended
        self.got = b""
        self._answer = answer

    def wait(self, _deadline: Deadline, stdin: bytes = b"") -> Completed:
        self.got += stdin
        if self._answer is None:
            raise RigError("server: the connection broke")
        return self._answer


def pdu(state: Path) -> CommandControl:
    """A fake PDU that is a file: `dd` sets it, `cat` reads it."""
    on, off = state.with_name("on"), state.with_name("off")
    on.write_text("Outlet 3: On\n")
    off.write_text("Outlet 3: Off\n")
    return CommandControl(
        kind="command", off=("cp", str(off), str(state)), on=("cp", str(on), str(state)), state=("cat", str(state))
    )


def no_start(_argv: Sequence[str]) -> Any:
    raise AssertionError("nothing is started on the machine")


def test_a_pair_of_commands_cuts_and_gives_power(tmp_path: Path) -> None:
    power = HostPower("server", switch_of(pdu(tmp_path / "outlet"), no_start), lambda: True)
    power.on()
    power.require_on()
    begun = now_ns()
    assert begun < power.cut(CutPolicy.DROP, 7).at_ns < now_ns()
    with pytest.raises(RigError, match="server has no power"):
        power.require_on()


def test_the_instant_of_the_cut_is_before_the_command(tmp_path: Path) -> None:
    moments = []

    class Slow(CommandSwitch):
        def off(self) -> None:
            moments.append(now_ns())
            super().off()

    cut = HostPower("server", Slow(pdu(tmp_path / "outlet")), lambda: True).cut(CutPolicy.DROP, 0)
    assert cut.at_ns < moments[0]


def test_without_a_state_of_the_switch_a_silent_machine_is_off() -> None:
    switch = CommandSwitch(CommandControl(kind="command", off=("true",), on=("true",)))
    answers = [True, False]
    power = HostPower("server", switch, lambda: answers.pop(0))
    power.cut(CutPolicy.DROP, 0)
    assert not answers
    assert "no command reports" in " ".join(power.cannot_prove)


def test_a_machine_that_still_answers_is_not_off() -> None:
    switch = CommandSwitch(CommandControl(kind="command", off=("true",), on=("true",)))
    with pytest.raises(DeadlineExceeded, match="server to stop"):
        HostPower("server", switch, lambda: True).wait_off(Deadline.after(0))


def test_a_command_that_fails_is_an_error() -> None:
    switch = CommandSwitch(CommandControl(kind="command", off=("false",), on=("true",)))
    with pytest.raises(CommandFailed):
        HostPower("server", switch, lambda: True).cut(CutPolicy.DROP, 0)


@pytest.mark.parametrize("policy", [policy for policy in CutPolicy if policy is not CutPolicy.DROP])
def test_what_a_real_disk_keeps_cannot_be_chosen(policy: CutPolicy) -> None:
    with pytest.raises(RequestError, match="cannot be chosen"):
        HostPower("server", SysrqSwitch(no_start), lambda: True).cut(policy, 0)


def test_sysrq_starts_its_program_before_the_cut_and_then_sends_one_byte() -> None:
    armed, started = Armed(), []

    def start(argv: Sequence[str]) -> Any:
        started.append(tuple(argv))
        return armed

    switch = switch_of(SysrqControl(kind="sysrq"), start)
    power = HostPower("server", switch, lambda: True)
    power.prepare()
    assert started == [SysrqSwitch.ARM]
    power.cut(CutPolicy.DROP, 0)
    assert armed.got == b"b"
    assert len(started) == 1
    assert "not a power cut" in " ".join(power.cannot_prove)
    assert power.poweroff == ("systemctl", "reboot")


@pytest.mark.parametrize(
    ("armed", "said"),
    [
        (Armed(ended=True), "is not running"),
        (Armed(Completed(SysrqSwitch.ARM, 1, "", "dd: Permission denied")), "still answers.*Permission denied"),
    ],
)
def test_a_machine_that_outlives_sysrq_is_no_cut(armed: Armed, said: str) -> None:
    switch = SysrqSwitch(lambda _argv: armed)  # type: ignore[arg-type,return-value]
    with pytest.raises(RigError, match=said):
        HostPower("server", switch, lambda: True).cut(CutPolicy.DROP, 0)


@pytest.mark.parametrize(
    ("text", "on"), [("Chassis Power is off\n", False), ("Outlet 3: On\n", True), ("ON", True), ("off.\n", False)]
)
def test_the_state_is_the_last_word_of_the_output(text: str, on: bool) -> None:
    assert parse_state(text) is on


@pytest.mark.parametrize("text", ["", "Chassis Power is unknown\n", "Error: timeout\n", "on 12 W\n"])
def test_a_state_that_is_neither_is_an_error(text: str) -> None:
    with pytest.raises(RigError, match="is not on or off"):
        parse_state(text)


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "ipmi", "address": "bmc", "user": "admin"},
        {"kind": "ipmi", "address": "bmc", "user": "admin", "password_env": "A", "password_file": "b"},
        {"kind": "ipmi", "address": "bmc", "user": "admin", "password": "secret"},
        {"kind": "redfish", "url": "bmc", "user": "admin", "password_env": "A"},
        {"kind": "command", "off": [], "on": ["true"]},
        {"kind": "command", "off": "pdu off", "on": "pdu on"},
        {"kind": "lever"},
    ],
)
def test_a_control_that_cannot_be_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CONTROL.validate_python(said)


def test_a_password_is_read_from_the_file_in_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    account = {"kind": "ipmi", "address": "bmc", "user": "admin"}
    from_file = CONTROL.validate_python(account | {"password_file": str(file)})
    from_environment = CONTROL.validate_python(account | {"password_env": "BMC"})
    assert from_file.password() == "open sesame"  # type: ignore[union-attr]
    monkeypatch.delenv("BMC", raising=False)
    with pytest.raises(RequestError, match=r"variable BMC, .*is not set"):
        from_environment.password()  # type: ignore[union-attr]
    file.unlink()
    with pytest.raises(RequestError, match="cannot be read"):
        from_file.password()  # type: ignore[union-attr]
