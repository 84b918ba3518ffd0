"""What a write log says of a drive that flushes a part of what it owes is what the drive held."""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import CrashState, Recording
from raidproof.disk.disk_fault import DiskFault, drop_flushes, newest_unflushed, overwrites_unflushed
from raidproof.disk.engine import Engine, clear_disk_faults, set_disk_fault
from raidproof.disk.messages import MemberSpec
from raidproof.disk.writelog import WriteLog

SIZE = 1 << 18
disk_faults = st.one_of(
    st.builds(newest_unflushed, st.integers(1, 3)),
    st.builds(overwrites_unflushed, offset=st.integers(0, 8).map(lambda block: block * 4096)),
    st.builds(drop_flushes, st.integers(1, 2)),
)


@given(st.lists(disk_faults, max_size=3), st.integers(0, 9999))
def test_a_cut_that_drops_all_leaves_what_the_drive_had_made_durable(wrong: list[DiskFault], seed: int) -> None:
    rng, ticks = Random(seed), iter(range(1000, 10**9, 10))
    with TemporaryDirectory() as folder:
        path = Path(folder, "log")
        engine = Engine([MemberSpec("d0", SIZE)], clock=lambda: next(ticks))
        engine.start_log(path)
        port, held = engine.connect("d0"), []
        for number in range(40):
            if number % 8 == 7 and wrong:
                set_disk_fault(engine, "d0", wrong.pop())
            if number == 30:
                clear_disk_faults(engine)
            offset, forced = rng.randrange(12) * 4096, rng.random() < 0.1
            match rng.randrange(4):
                case 0:
                    port.flush()
                case 1:
                    port.write_zeroes(offset, 4096, forced)
                case _:
                    port.write(rng.randbytes(4096 * rng.randint(1, 2)), offset, forced)
            assert engine.log is not None
            held.append((engine.log.records, bytes(engine.drives[0].member.image().view(0, SIZE))))
        engine.stop_log()
        recording = Recording(WriteLog(path))
        window = DiskStates(recording)
        for sequence, durable in held:
            cut = sum(record.sequence < sequence for record in recording.records)
            window.move(cut)
            assert window.read(CrashState(cut), 0, 0, SIZE) == durable
