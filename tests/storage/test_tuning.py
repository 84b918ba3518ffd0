# tests/data/tuning is what read_command printed for one member and the md device of a RAID5, and for the memory.
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.tuning import (
    ClientTuning,
    ServerTuning,
    TuningSpec,
    dirty_restoring,
    dirty_values,
    md_values,
    parse_dirty,
    parse_md_tuning,
    parse_queue,
    queue_restoring,
    queue_values,
)
from tests.guest_files import FilesByCommands, parse_read

FOUND = (Path(__file__).parents[1] / "data" / "tuning" / "linux-6.12-raid5.txt").read_text()
CONTENT = parse_read(FOUND)
DISK = "/dev/disk/by-id/raidproof-disk0"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"scheduler": "deadline"}, "did you mean 'mq-deadline'"),
        ({"nr_requests": 2}, "greater than or equal to 4"),
        ({"read_ahead": "5KiB"}, "whole pages of 4KiB"),
        ({"array_read_ahead": "1KiB"}, "whole pages of 4KiB"),
        ({"max_request": "1KiB"}, "max_request 1KiB"),
        ({"stripe_cache_size": 16}, "17 to 32768"),
        ({"md_threads": 8193}, "less than or equal to 8192"),
        ({"sync_speed_min": 100}, "whole KiB"),
        ({"sync_speed_min": "2MiB", "sync_speed_max": "1MiB"}, "sync_speed_min is more"),
        ({"client_dirty_bytes": "4KiB"}, "no less than two pages"),
        ({"client_dirty_background_bytes": 1}, "less than a page"),
        ({"server_dirty_bytes": "1MiB", "server_dirty_background_bytes": "1MiB"}, "would use half"),
        ({"server_dirty_expire_s": 0}, "greater than or equal to 0.01"),
        ({"server_xfs_sync_s": 0.5}, "greater than or equal to 1"),
        ({"read_ahed": "1MiB"}, "did you mean 'read_ahead'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        TuningSpec.model_validate(asked)


def test_what_only_parity_has() -> None:
    assert TuningSpec().parity_only == ()
    assert TuningSpec(md_threads=0, stripe_cache_size=512).parity_only == ("stripe_cache_size", "md_threads")


SPEC = TuningSpec.model_validate(
    {
        "scheduler": "none",
        "nr_requests": 64,
        "read_ahead": "1MiB",
        "array_read_ahead": "4MiB",
        "stripe_cache_size": 4096,
        "sync_speed_min": "50MiB",
        "client_dirty_bytes": "16MiB",
    }
)


def test_what_is_written() -> None:
    # The scheduler comes first: it sets nr_requests anew.
    assert list(queue_values(SPEC, ["vda"]).items()) == [
        ("/sys/block/vda/queue/scheduler", "none"),
        ("/sys/block/vda/queue/nr_requests", "64"),
        ("/sys/block/vda/queue/read_ahead_kb", "1024"),
    ]
    assert md_values(SPEC, ["md0"]) == {
        "/sys/block/md0/queue/read_ahead_kb": "4096",
        "/sys/block/md0/md/stripe_cache_size": "4096",
        "/sys/block/md0/md/sync_speed_min": "51200",
    }
    assert dirty_values(SPEC, "client") == {"/proc/sys/vm/dirty_bytes": str(16 * MIB)}
    assert dirty_values(SPEC, "server") == {}


def test_only_requested_settings_are_written() -> None:
    assert queue_values(TuningSpec(), ["vda"]) == md_values(TuningSpec(), ["md0"]) == {}


def test_what_is_found() -> None:
    queue = parse_queue("vda", CONTENT)
    assert (queue.scheduler, queue.nr_requests, queue.read_ahead, queue.max_request) == (
        *("mq-deadline", 256, 128 * KIB, 1280 * KIB),
    )
    md = parse_md_tuning("md0", CONTENT)
    assert (md.read_ahead, md.stripe_cache_size, md.md_threads) == (384 * KIB, 256, 0)
    assert (md.sync_speed_min, md.sync_speed_max) == (1000 * KIB, 200_000 * KIB)
    assert parse_dirty(CONTENT).dirty_ratio == 20


def test_other_levels_have_fewer_knobs() -> None:
    plain = {path: text for path, text in CONTENT.items() if "stripe" not in path and "group" not in path}
    assert parse_md_tuning("md0", plain).stripe_cache_size is None


@pytest.mark.parametrize("path", [path for path in CONTENT if "/vda/" in path])
def test_a_queue_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(RigError, match="does not exist"):
        parse_queue("vda", {key: text for key, text in CONTENT.items() if key != path})
    if not path.endswith("scheduler"):
        with pytest.raises(RigError, match="number"):
            parse_queue("vda", {**CONTENT, path: "much"})


@given(st.integers(0, FOUND.index("/proc/sys/vm/dirty_writeback")))
def test_limits_that_were_cut_off_are_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_dirty(parse_read(FOUND[:length]))


def test_what_was_before_is_put_back() -> None:
    assert queue_restoring(SPEC, "vdc", parse_queue("vda", CONTENT)) == {
        "/sys/block/vdc/queue/scheduler": "mq-deadline",
        "/sys/block/vdc/queue/nr_requests": "256",
        "/sys/block/vdc/queue/read_ahead_kb": "128",
    }
    before = parse_dirty(CONTENT)
    assert dirty_restoring(SPEC, "client", before) == {"/proc/sys/vm/dirty_ratio": "20"}
    in_bytes = before.model_copy(update={"dirty_bytes": 7 * MIB, "dirty_ratio": 0})
    assert dirty_restoring(SPEC, "client", in_bytes) == {"/proc/sys/vm/dirty_bytes": str(7 * MIB)}


class Kernel(FilesByCommands):
    """A fake machine whose files can be written, except for files that a test makes read-only."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, *stubborn: str) -> None:
        self.files = dict(CONTENT)
        self.stubborn = stubborn
        self.ran: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(argv[0])
        said = ""
        if argv[0] == "tee":
            if not argv[1].endswith(self.stubborn or ("//",)):
                self.files[argv[1]] = f"none [{stdin}]" if argv[1].endswith("scheduler") else str(stdin)
        elif argv[0] == "realpath":
            said = "/dev/vda\n"
        else:
            said = "".join(f"{path}:{self.files[path]}\n" for path in argv[3:] if path in self.files)
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        return self.run(argv).stdout


def test_nothing_asked_runs_nothing() -> None:
    kernel = Kernel()
    server, client = ServerTuning(TuningSpec(), kernel, [DISK], ["/dev/md0"]), ClientTuning(TuningSpec(), kernel)
    assert server.activate() is None
    assert client.activate() is None
    server.deactivate()
    client.deactivate()
    assert kernel.ran == []
    assert server.state().members[DISK].nr_requests == 256


def test_the_server_is_tuned_and_put_back() -> None:
    kernel = Kernel()
    tuning = ServerTuning(SPEC, kernel, [DISK], ["/dev/md0"])
    state = tuning.activate()
    assert state is not None
    assert (state.members[DISK].scheduler, state.arrays["/dev/md0"].stripe_cache_size) == ("none", 4096)
    assert [*dict.fromkeys(kernel.ran)] == ["realpath", "grep", "tee"]
    assert tuning.require_effective() == tuning.activate()
    tuning.deactivate()
    assert parse_queue("vda", kernel.files) == parse_queue("vda", CONTENT)


def test_members_without_an_array_are_tuned() -> None:
    kernel = Kernel()
    tuning = ServerTuning(TuningSpec(scheduler="none"), kernel, [DISK], [])
    state = tuning.activate()
    assert state is not None
    assert (state.members[DISK].scheduler, state.arrays) == ("none", {})
    assert tuning.require_effective() == state


EARLY = TuningSpec(server_dirty_expire_s=1, server_dirty_writeback_s=0.5, server_xfs_sync_s=1)


def test_write_back_is_set_read_back_and_put_back() -> None:
    kernel = Kernel()
    tuning = ServerTuning(EARLY, kernel, [DISK], ["/dev/md0"])
    state = tuning.activate()
    assert state is not None
    assert state.server is not None
    assert (state.server.dirty_expire_s, state.server.dirty_writeback_s, state.server.xfs_sync_s) == (1, 0.5, 1)
    assert kernel.files["/proc/sys/vm/dirty_writeback_centisecs"] == "50"
    tuning.deactivate()
    assert parse_dirty(kernel.files) == parse_dirty(CONTENT)
    assert kernel.files["/proc/sys/fs/xfs/xfssyncd_centisecs"] == "3000"


def test_write_back_of_a_kernel_without_xfs() -> None:
    kernel = Kernel()
    del kernel.files["/proc/sys/fs/xfs/xfssyncd_centisecs"]
    tuning = ServerTuning(TuningSpec(server_dirty_expire_s=2), kernel, [DISK], ["/dev/md0"])
    state = tuning.activate()
    assert state is not None
    assert state.server is not None
    assert state.server.xfs_sync_s is None
    assert "modprobe" not in kernel.ran
    later = ServerTuning(EARLY, kernel, [DISK], ["/dev/md0"])
    later.activate()  # the module brings the file, and nobody had read it before
    later.deactivate()
    assert kernel.files["/proc/sys/fs/xfs/xfssyncd_centisecs"] == "3000"


def test_other_write_back_than_usual_is_a_caveat() -> None:
    assert TuningSpec().caveats() == TuningSpec(server_dirty_expire_s=30, server_xfs_sync_s=30).caveats() == ()
    [caveat] = EARLY.caveats()
    assert caveat.startswith("dirty_expire is 1 s, not the default 30 s, dirty_writeback is 0.5 s, not the default 5")


def test_a_client_is_tuned_and_put_back() -> None:
    kernel = Kernel()
    tuning = ClientTuning(SPEC, kernel)
    state = tuning.activate()
    assert state is not None
    assert state.dirty_bytes == 16 * MIB
    kernel.files["/proc/sys/vm/dirty_ratio"] = "0"
    tuning.deactivate()
    assert kernel.files["/proc/sys/vm/dirty_ratio"] == "20"


@pytest.mark.parametrize(
    ("stubborn", "said"),
    [
        ("scheduler", "queue of /dev/disk/by-id/raidproof-disk0 .* scheduler: requested none, effective mq-deadline"),
        ("stripe_cache_size", "/dev/md0 .* stripe_cache_size: requested 4096, effective 256"),
        ("md0/queue/read_ahead_kb", "/dev/md0 .* read_ahead: requested 4194304, effective 393216"),
        ("dirty_expire_centisecs", "write-back of server .* dirty_expire_s: requested 1.0, effective 30.0"),
    ],
)
def test_a_setting_with_another_effective_value_is_reported(stubborn: str, said: str) -> None:
    asked = SPEC.model_copy(update={"server_dirty_expire_s": 1.0})
    with pytest.raises(NotEffective, match=said):
        ServerTuning(asked, Kernel(stubborn), [DISK], ["/dev/md0"]).activate()


def test_another_effective_memory_setting_is_reported() -> None:
    with pytest.raises(NotEffective, match=r"memory of server .* dirty_bytes: requested 16777216, effective 0"):
        ClientTuning(SPEC, Kernel("dirty_bytes")).activate()
