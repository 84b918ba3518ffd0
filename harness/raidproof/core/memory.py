"""The memory of this process after a large piece of work."""

import ctypes
import gc


def release() -> None:
    """Free the objects of ended work that refer to each other, and return the freed memory to the operating system.

    CPython looks for such objects rarely once a process has many (gc.set_threshold), and glibc keeps freed memory for
    later requests (malloc_trim(3)): after an exploration, a process would keep 500 MiB and more.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)
