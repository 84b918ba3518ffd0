"""Power by IPMI, with pyghmi's BMC on the loopback interface."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline, now_ns
from raidproof.disk.cache import CutPolicy
from raidproof.provider.hosts.power import HostPower, IpmiControl, IpmiSwitch

pytest.importorskip("pyghmi", reason="the hosts extra is not installed")
VARIABLE = "BMC_PASSWORD"


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[IpmiControl]:
    monkeypatch.setenv(VARIABLE, "secret")
    argv = [sys.executable, str(Path(__file__).with_name("fake_bmc.py"))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield IpmiControl(kind="ipmi", address="127.0.0.1", port=port, user="admin", password_env=VARIABLE)
        finally:
            process.kill()


def test_a_cut_ends_when_the_bmc_reports_power_off(control: IpmiControl) -> None:
    switch = IpmiSwitch(control)
    power = HostPower("server", switch, lambda: True)
    power.on()
    power.require_on()
    begun = now_ns()
    cut = power.cut(CutPolicy.DROP, 0)
    assert begun < cut.at_ns < now_ns()
    assert not switch.state()
    with pytest.raises(RigError, match=r"server has no power, .*ipmi"):
        power.require_on()
    power.on()
    assert switch.state()


def test_power_off_by_itself_is_seen(control: IpmiControl) -> None:
    switch = IpmiSwitch(control)
    switch.off()
    HostPower("server", switch, lambda: True).wait_off(Deadline.after(20))
    assert not switch.state()


def test_a_wrong_password_is_refused(control: IpmiControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "wrong")
    with pytest.raises(RigError, match=r"the BMC at 127\.0\.0\.1 refuses a request or does not answer"):
        IpmiSwitch(control).prepare()
