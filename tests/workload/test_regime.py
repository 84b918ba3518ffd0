from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.units import GIB, MIB
from raidproof.workload.regime import Memory, Route, regime_of
from raidproof.workload.workload import Work

LAB = Memory(server=GIB, client=512 * MIB)
BATTERY = replace(LAB, controller=256 * MIB)
CAPACITORS = replace(LAB, drives=128 * MIB, drives_protected=True)
DRIVES = replace(LAB, drives=128 * MIB)

NFS = Route("clients")
ASYNC = Route("clients", export_sync=False)
SERVER = Route("server")
DEVICE = Route("array")
WARM = replace(NFS, emptied=False)

WRITE = Work(100 * MIB, reads=False, writes=True)
SYNCED = replace(WRITE, durable="end")
EACH = replace(WRITE, durable="each")
READ = Work(100 * MIB, reads=True, writes=False)
AGAIN = replace(READ, once=False)


@pytest.mark.parametrize(
    ("work", "memory", "route", "cache"),
    [
        # Writes that are made durable in the time reach the disks, or a cache that may acknowledge for them.
        (SYNCED, LAB, NFS, None),
        (EACH, LAB, NFS, None),
        (WRITE, LAB, NFS, "client cache"),
        (replace(WRITE, working_set=600 * MIB), LAB, NFS, "server cache"),
        (replace(WRITE, working_set=2 * GIB), LAB, NFS, None),
        (SYNCED, BATTERY, NFS, "controller cache"),
        (replace(SYNCED, working_set=300 * MIB), BATTERY, NFS, None),
        (SYNCED, DRIVES, NFS, None),
        (SYNCED, CAPACITORS, NFS, "drive cache"),
        (replace(SYNCED, working_set=200 * MIB), CAPACITORS, NFS, None),
        # Overwritten in memory before the flush at the end, but not before the next fsync.
        (replace(SYNCED, once=False), LAB, NFS, "client cache"),
        (replace(SYNCED, once=False, working_set=600 * MIB), LAB, NFS, "server cache"),
        (replace(EACH, once=False), LAB, NFS, None),
        # An async export answers from memory whatever was asked.
        (EACH, LAB, ASYNC, "server cache"),
        (replace(EACH, working_set=2 * GIB), LAB, ASYNC, None),
        (replace(WRITE, direct=True), LAB, ASYNC, "server cache"),
        # Over NFS, O_DIRECT, a sync mount and close make durable; on the server they do not.
        (replace(WRITE, direct=True), LAB, NFS, None),
        (replace(WRITE, direct=True), DRIVES, SERVER, "drive cache"),
        (replace(WRITE, direct=True), DRIVES, DEVICE, "drive cache"),
        (replace(WRITE, direct=True), LAB, SERVER, None),
        (WRITE, LAB, replace(NFS, mount_sync=True), None),
        (replace(WRITE, closes=True), LAB, NFS, None),
        (replace(WRITE, closes=True), LAB, replace(NFS, delegations=True), "client cache"),
        (replace(WRITE, closes=True), LAB, SERVER, "server cache"),
        (SYNCED, LAB, SERVER, None),
        (WRITE, LAB, DEVICE, "server cache"),
        # The first read after caches were emptied comes from the disks, the second from the nearest cache.
        (READ, LAB, NFS, None),
        (READ, LAB, WARM, "client cache"),
        (replace(READ, warm=True), LAB, NFS, "client cache"),
        (AGAIN, LAB, NFS, "client cache"),
        (replace(AGAIN, working_set=600 * MIB), LAB, NFS, "server cache"),
        (replace(AGAIN, working_set=2 * GIB), LAB, NFS, None),
        (replace(AGAIN, direct=True), LAB, NFS, "server cache"),
        (replace(AGAIN, direct=True), LAB, SERVER, None),
        (replace(AGAIN, direct=True), DRIVES, DEVICE, "drive cache"),
        (replace(AGAIN, direct=True, working_set=200 * MIB), DRIVES, DEVICE, None),
        (AGAIN, LAB, SERVER, "server cache"),
        # A write cache holds nothing for readers.
        (replace(AGAIN, direct=True), BATTERY, DEVICE, None),
        # A mixed load is that of the nearest cache in which one half stays.
        (replace(AGAIN, writes=True, durable="each"), LAB, NFS, "client cache"),
        (replace(READ, writes=True, durable="each"), LAB, NFS, None),
    ],
)
def test_what_is_measured(work: Work, memory: Memory, route: Route, cache: str | None) -> None:
    found = regime_of(work, memory, route)
    assert found.cache == cache
    assert found.accepted == (cache is None)
    assert regime_of(work, memory, route, allow_cache=True) == found.model_copy(update={"accepted": True})


def test_the_server_holds_what_all_clients_touch_and_each_client_its_own() -> None:
    two = replace(ASYNC, machines=2)
    work = replace(EACH, working_set=600 * MIB, everywhere=True)
    assert regime_of(work, LAB, two).cache is None
    assert regime_of(replace(work, everywhere=False), LAB, two).cache == "server cache"
    small = replace(AGAIN, everywhere=True, working_set=400 * MIB)
    assert regime_of(small, LAB, replace(NFS, machines=9)).cache == "client cache"


def test_the_reason_names_the_working_set_and_the_cache() -> None:
    assert regime_of(AGAIN, LAB, NFS).reason == "reads of 100MiB fit into the client cache of 512MiB"
    assert "writes of 100MiB bypass the caches" in regime_of(SYNCED, LAB, NFS).reason


def test_an_unknown_working_set_is_not_refused() -> None:
    found = regime_of(replace(AGAIN, working_set=None), LAB, NFS)
    assert (found.cache, found.accepted) == (None, True)
    assert "not known before the run" in found.reason


SIZES = st.integers(0, 4 * GIB)
WORKS = st.builds(
    Work, working_set=SIZES, reads=st.booleans(), writes=st.booleans(), durable=st.sampled_from(["each", "end", "no"]),
    direct=st.booleans(), once=st.booleans(), closes=st.booleans(), warm=st.booleans(), everywhere=st.booleans(),
)  # fmt: skip
MEMORIES = st.builds(
    Memory, server=SIZES, client=SIZES, controller=SIZES, drives=SIZES, drives_protected=st.booleans()
)
ROUTES = st.builds(
    Route, on=st.sampled_from(["clients", "server", "array"]), machines=st.integers(1, 8), export_sync=st.booleans(),
    mount_sync=st.booleans(), delegations=st.booleans(), emptied=st.booleans(),
)  # fmt: skip


@given(WORKS, MEMORIES, ROUTES, SIZES)
def test_more_work_never_goes_from_the_disks_into_a_cache(work: Work, memory: Memory, route: Route, more: int) -> None:
    larger = replace(work, working_set=(work.working_set or 0) + more)
    if regime_of(work, memory, route).cache is None:
        assert regime_of(larger, memory, route).cache is None


@given(WORKS, MEMORIES, ROUTES)
def test_without_memory_there_is_no_cache(work: Work, memory: Memory, route: Route) -> None:
    work = replace(work, working_set=(work.working_set or 0) + 1)
    assert regime_of(work, Memory(server=0, client=0), route).cache is None


@given(WORKS, MEMORIES, ROUTES)
def test_off_the_clients_there_is_no_client_cache(work: Work, memory: Memory, route: Route) -> None:
    found = regime_of(work, memory, route)
    assert found.cache != "client cache" or route.on == "clients"


@given(MEMORIES, ROUTES, SIZES)
def test_each_write_durable_on_a_sync_export_is_in_no_page_cache(memory: Memory, route: Route, size: int) -> None:
    route = replace(route, export_sync=True)
    found = regime_of(replace(EACH, working_set=size), memory, route)
    assert found.cache in {None, "controller cache", "drive cache"}
