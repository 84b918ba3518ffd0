"""The program of a worker in a network namespace: waits for its interface, then runs `raidproof worker`.

A planted defect changes this process only; the files of raidproof, and with them its version, stay as they are.
"""

import json
import sys
import time
from typing import Any

from raidproof.cli.main import main
from raidproof.cluster import campaign
from raidproof.core.command import succeed
from raidproof.crash.checker import Checker
from raidproof.crash.states import Patch
from raidproof.image.cache import root
from raidproof.record.exploration import Observation


def plant(name: str) -> None:
    """Plant a defect: ``stale``: checks see the first state again; ``kernel``: another kernel is found."""
    if name == "stale":
        check, first = Checker.check, {}

        def stale(checker: Checker, patch: Patch, **options: Any) -> Observation:
            if checker not in first:
                first[checker] = check(checker, patch, **options)
            return first[checker]

        Checker.check = stale  # type: ignore[method-assign,assignment]
    elif name == "kernel":
        vars(campaign)["software_digest"] = lambda _: "another kernel"


def ip(*words: str) -> None:
    """Configure the network of this namespace."""
    succeed(["ip", *words])


def run(config: dict[str, str]) -> int:
    """Run the worker; return its exit status."""
    if config["room"]:
        succeed(["mount", "-t", "tmpfs", "-o", f"size={config['room']}", "tmpfs", config["temporary"]])
    # The paths of a kernel of User-mode Linux do not change, so that the cache of this worker is at the usual place.
    succeed(["mount", "--bind", config["cache"], str(root())])
    interface = config["interface"]
    while interface not in links():
        time.sleep(0.05)
    ip("link", "set", "lo", "up")
    ip("address", "add", config["address"], "dev", interface)
    ip("link", "set", interface, "up")
    plant(config["plant"])
    words = ["--name", config["name"], "--checkers", "1", "--labs", "1", "--certificates", config["certificates"]]
    return main(["worker", config["scheduler"], *words])


def links() -> set[str]:
    """Return the names of the interfaces of this network namespace; /sys may be that of another one."""
    return {one["ifname"] for one in json.loads(succeed(["ip", "-json", "link", "show"]))}


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1])))
