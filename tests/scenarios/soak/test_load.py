"""Processors are busy on request, and no program remains."""

import psutil

from scenarios.soak.load import Load


def test_programs_run_while_requested() -> None:
    before = len(psutil.Process().children())
    load = Load(workers=1)
    assert load.set(busy=True)
    assert load.set(busy=True)
    assert len(psutil.Process().children()) == before + (psutil.cpu_count() or 1)
    assert not load.set(busy=False)
    assert len(psutil.Process().children()) == before
    load.set(busy=True)
    load.close()
    assert len(psutil.Process().children()) == before
