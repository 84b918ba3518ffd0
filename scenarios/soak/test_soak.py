"""Many crash tests drawn by a seed: none may hang, leak, or end with another result than the known one.

`./raidproof test soak` runs 1,000 of them, and `./raidproof scenarios scenarios/soak --soak=50 --soak-seed=7` other
ones. During the second half, programs keep all processors of the host busy.
"""

import pytest

from raidproof.core.errors import Inconclusive
from raidproof.pytest_plugin.fixtures import CrashTestRunner
from raidproof.record.outcome import Outcome
from scenarios.soak.draw import draw
from scenarios.soak.load import Load
from scenarios.soak.resources import Watch


def test_soak(number: int, cycle: CrashTestRunner, load: Load, watch: Watch, request: pytest.FixtureRequest) -> None:
    options, record_property = request.config.option, request.getfixturevalue("record_property")
    spec = draw(options.soak_seed, number)
    record_property("loaded", load.set(busy=number >= options.soak // 2))
    ended = cycle.run(spec)
    record = ended.record
    record_property("resources", watch.sample())
    record_property("outcome", str(record.outcome))
    record = ended.record
    record_property(
        "reason",
        f"{record.fault} on RAID{spec.stack.array.level} and {spec.stack.filesystem.type}: {record.reason}",
    )
    try:
        ended.must_pass()
    except Inconclusive:
        # A busy host may leave too few operations: that proves nothing, and is not wrong. The summary counts it.
        assert record.outcome is Outcome.INCONCLUSIVE
    watch.must_not_grow()
