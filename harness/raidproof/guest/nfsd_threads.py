# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""The threads of nfsd in a checker's machine: their end releases the file system of a state.

The harness copies this file into machines, into the folder of check_agent.py: standard library only.

While nfsd's caches of exports and file handles have entries, the file system cannot be unmounted. A flush by
/proc/net/rpc/*/flush has an effect only once a second (write_flush and cache_clean in the kernel's
net/sunrpc/cache.c). The end of the last thread closes all files, ends all client state, and empties the caches at
once (nfsd_shutdown_net in fs/nfsd/nfssvc.c, cache_purge in net/sunrpc/cache.c).

The start of the threads takes 0.1 s, in which the kernel sleeps until nfsdcld has opened its pipe
(nfsd4_cld_tracking_init in fs/nfsd/nfs4recover.c). It runs in the background, during the next checks.
"""

import os
import select
import socket
import threading
import time

NFSD = "/proc/fs/nfsd"
LOCKD_GRACE = "/proc/fs/lockd/nlm_end_grace"
GRACE_ENDS_S = 10.0
_POLL_S = 0.01
_BACKLOG = 64


class NfsdThreads:
    """nfsd's threads; the first restart reads their number and the TCP ports of nfsd, which all restarts keep.

    ``nfsd``: the mount point of nfsd's file system. ``lockd_grace``: the file that ends lockd's grace period.
    ``address``: the address of nfsd's sockets; empty: all addresses of IPv4.
    """

    def __init__(self, nfsd: str = NFSD, lockd_grace: str = LOCKD_GRACE, address: str = "") -> None:
        self._address = address
        self._nfsd = nfsd
        self._lockd_grace = lockd_grace
        self._threads = ""
        self._ports: list[int] = []
        self._starting: threading.Thread | None = None
        self._error: Exception | None = None

    def release(self) -> None:
        """End all threads, so that nfsd releases all file systems; then start the threads in the background.

        Raises:
            OSError: nfsd refused, or its threads did not start again.
        """
        self.serve()
        if not self._threads:
            self._threads, self._ports = self._read("threads"), tcp_ports(self._read("portlist"))
        self._write("threads", "0")
        if (left := self._read("threads")) != "0":
            raise OSError("nfsd still has %s threads" % left)
        self._starting = threading.Thread(target=self._start_or_keep_error)
        self._starting.start()

    def serve(self) -> str:
        """Wait until the threads run and the grace period has ended; return an empty text.

        Raises:
            OSError: the threads of the last restart did not start, or the grace period did not end.
        """
        if self._starting is not None:
            self._starting.join()
            self._starting = None
        if self._error is not None:
            raise self._error
        return ""

    def _start_or_keep_error(self) -> None:
        try:
            self._start()
        except Exception as error:  # noqa: BLE001  `serve` raises it in the agent's thread
            self._error = error

    def _start(self) -> None:
        for port in self._ports:
            # nfsd uses its own reference to the socket.
            with socket.create_server((self._address, port), backlog=_BACKLOG) as listener:
                self._write("portlist", str(listener.fileno()))
        self._write("threads", self._threads)
        if (running := self._read("threads")) != self._threads:
            raise OSError("nfsd has %s threads instead of %s" % (running, self._threads))
        self._end_grace()

    def _end_grace(self) -> None:
        """End the grace periods of nfsd and lockd: no client has state to reclaim from an earlier state.

        Without clients in nfsdcld's database nfsd has no grace period; a client of NFSv4.0 stays there.
        """
        deadline = time.monotonic() + GRACE_ENDS_S
        while self._read("v4_end_grace") != "Y":
            if time.monotonic() > deadline:
                raise TimeoutError("nfsd's grace period did not end within %g s" % GRACE_ENDS_S)
            try:
                self._write("v4_end_grace", "Y")
            except OSError:
                pass  # EBUSY: the grace period has just ended
            else:
                select.select([], [], [], _POLL_S)
        if os.path.exists(self._lockd_grace):
            with open(self._lockd_grace, "w") as file:
                file.write("Y\n")

    def _read(self, name: str) -> str:
        with open("%s/%s" % (self._nfsd, name)) as file:
            return file.read().strip()

    def _write(self, name: str, text: str) -> None:
        with open("%s/%s" % (self._nfsd, name), "w") as file:
            file.write(text + "\n")


def tcp_ports(portlist: str) -> list[int]:
    """Return the TCP ports in the text of nfsd's file portlist, which has a line ``tcp 2049`` for each socket."""
    lines = [line.split() for line in portlist.splitlines()]
    return sorted({int(words[1]) for words in lines if words[:1] == ["tcp"]})


SERVICE = NfsdThreads
"""The class that `check_agent` makes of this module."""
