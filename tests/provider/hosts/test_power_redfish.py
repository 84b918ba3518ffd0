"""Power by Redfish, with OpenStack's emulator on the loopback interface."""

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import now_ns
from raidproof.disk.cache import CutPolicy
from raidproof.provider.hosts.power import HostPower, RedfishControl, RedfishSwitch

pytest.importorskip("sushy", reason="the hosts extra is not installed")
serving = pytest.importorskip("werkzeug.serving", reason="sushy-tools is not installed")
emulator = pytest.importorskip("sushy_tools.emulator.main", reason="sushy-tools is not installed")
VARIABLE = "BMC_PASSWORD"


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedfishControl]:
    # The emulator's power takes 1 to 11 seconds to come and go.
    monkeypatch.setattr("sushy_tools.emulator.resources.systems.fakedriver.random.randint", lambda *_: 0)
    monkeypatch.setenv(VARIABLE, "secret")
    config = {"SUSHY_EMULATOR_FAKE_DRIVER": True, "SUSHY_EMULATOR_STATE_DIR": str(tmp_path)}
    for name, value in config.items():
        monkeypatch.setitem(emulator.app.config, name, value)
    server = serving.make_server("127.0.0.1", 0, emulator.app)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    yield RedfishControl(kind="redfish", url=url, user="admin", password_env=VARIABLE)
    server.shutdown()
    server.server_close()


def test_a_cut_ends_when_the_bmc_reports_power_off(control: RedfishControl) -> None:
    switch = RedfishSwitch(control)
    power = HostPower("server", switch, lambda: True)
    assert not switch.state()
    power.on()
    assert switch.state()
    begun = now_ns()
    cut = power.cut(CutPolicy.DROP, 0)
    assert begun < cut.at_ns < now_ns()
    assert not switch.state()


def test_a_system_that_is_not_there_is_refused(control: RedfishControl) -> None:
    stray = control.model_copy(update={"system": "/redfish/v1/Systems/none"})
    with pytest.raises(RigError, match="refuses a request or does not answer"):
        RedfishSwitch(stray).prepare()


def test_a_bmc_without_force_off_is_refused_beforehand(control: RedfishControl) -> None:
    switch = RedfishSwitch(control)
    switch.state()
    switch._found.get_allowed_reset_system_values = lambda: {switch._sushy.ResetType.GRACEFUL_SHUTDOWN}
    with pytest.raises(RigError, match="does not offer reset type ForceOff"):
        switch.prepare()


def test_a_bmc_without_a_reply_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library waits for 2 s before each further attempt.
    monkeypatch.setattr("sushy.connector.time", Mock())
    control = RedfishControl(kind="redfish", url="http://127.0.0.1:9", user="admin", password_file=Path("/dev/null"))
    with pytest.raises(RigError, match=r"http://127\.0\.0\.1:9 refuses a request or does not answer"):
        RedfishSwitch(control).state()
