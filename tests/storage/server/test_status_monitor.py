from unittest.mock import Mock

import pytest

from raidproof.core.command import Completed
from raidproof.storage.mount import MountSpec
from raidproof.storage.server.status_monitor import StatusMonitor


@pytest.mark.parametrize("runs", [True, False])
def test_only_its_own_daemon_is_started_and_ended(*, runs: bool) -> None:
    machine = Mock()
    machine.run.return_value = Completed(("pgrep",), 0 if runs else 1, "", "")
    monitor = StatusMonitor(machine)
    monitor.activate()
    monitor.notify()
    monitor.deactivate()
    monitor.deactivate()
    commands = [one.args[0] for one in machine.succeed.call_args_list]
    own = [] if runs else [["rpc.statd", "--no-notify"]]
    assert commands == [*own, ["sm-notify"], *([] if runs else [["pkill", "--exact", "rpc.statd"]])]


@pytest.mark.parametrize(
    ("mount", "monitored"),
    [
        (MountSpec(vers="3"), True),
        (MountSpec(vers="3", lock=False), False),
        (MountSpec(vers="4.2"), False),
    ],
)
def test_only_locks_of_nlm_need_it(mount: MountSpec, *, monitored: bool) -> None:
    assert mount.has_locks_of_nlm is monitored
