"""Knobs of the kernel that no layer has: queues of the disks, md's threads and cache, dirty pages.

What is not asked is left as the kernel has it, and recorded all the same. What was changed is put back, because
machines stay up from one stack to the next.
"""

from raidproof.storage.tuning.knob import DirtyState, MdTuningState, QueueState, TuningState
from raidproof.storage.tuning.spec import TuningSpec
from raidproof.storage.tuning.tuning import ClientTuning, ServerTuning

__all__ = [
    "ClientTuning",
    "DirtyState",
    "MdTuningState",
    "QueueState",
    "ServerTuning",
    "TuningSpec",
    "TuningState",
]
