"""An application in a machine: each operation is one committed transaction of an LMDB environment."""

import random
import sys
import time
from itertools import count
from pathlib import Path

import lmdb
import raidproof_app as raidproof

MAP_SIZE = 32 << 20
"""Greatest size of the database in bytes; the file grows as it is written."""
TOTAL = b"total"
LARGEST = 6000
PAUSE_S = 0.002


def text_of(number: int) -> bytes:
    return b"%08d" % number * (1 + random.Random(number).randrange(LARGEST) // 8)


def run() -> None:
    environment = lmdb.open(raidproof.directory(), map_size=MAP_SIZE)
    for number in count(1):
        raidproof.begun(number)
        with environment.begin(write=True) as transaction:
            transaction.put(b"%08d" % number, text_of(number))
            transaction.put(TOTAL, b"%d" % number)
        raidproof.acknowledged(number)
        time.sleep(PAUSE_S)


def check() -> None:
    if not (Path(raidproof.directory()) / "data.mdb").exists():
        return
    try:
        environment = lmdb.open(raidproof.directory(), map_size=MAP_SIZE, create=False, lock=False, readonly=True)
        with environment.begin() as transaction:
            total = int(transaction.get(TOTAL, b"0"))
            entries = [(key, bytes(text)) for key, text in transaction.cursor() if key != TOTAL]
    except lmdb.Error as error:
        print(error, file=sys.stderr)
        raidproof.damaged("malformed")
        return
    if total != len(entries):
        raidproof.damaged("half-a-transaction")
    for key, text in entries:
        if text == text_of(int(key)):
            raidproof.present(int(key))
        else:
            raidproof.wrong(int(key), "other-text")


if __name__ == "__main__":
    {"run": run, "check": check}[sys.argv[1]]()
