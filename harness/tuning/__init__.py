"""Knobs of the kernel that no layer has: queues of the disks, md's threads and cache, dirty pages.

What is not asked is left as the kernel has it, and recorded all the same. What was changed is put back, because
machines stay up from one stack to the next.
"""

from harness.tuning.knob import DirtyState, MdTuningState, QueueState, TuningState
from harness.tuning.spec import TuningSpec
from harness.tuning.tuning import ClientTuning, ServerTuning

__all__ = [
    "ClientTuning",
    "DirtyState",
    "MdTuningState",
    "QueueState",
    "ServerTuning",
    "TuningSpec",
    "TuningState",
]
