"""An end for the timed part, whatever the tool."""

from concurrent.futures import ThreadPoolExecutor, wait

from raidproof.core.errors import DeadlineExceeded
from raidproof.workload.sample import Place, Sample, Workload


def run_within(workload: Workload, place: Place, seconds: float | None) -> Sample:
    """Run the timed part of a workload. One that takes longer goes on until its lab ends, which has to follow.

    Raises:
        DeadlineExceeded: it took longer; None is no limit.
    """
    if seconds is None:
        return workload.run(place)
    pool = ThreadPoolExecutor(1)
    try:
        running = pool.submit(workload.run, place)
        if not wait([running], seconds).done:
            raise DeadlineExceeded(f"the workload took longer than max_seconds, {seconds:g} s")
        return running.result()
    finally:
        pool.shutdown(wait=False)
