"""An application in a machine: it appends numbered records to a file. The word behind the step plants a defect."""

import os
import sys
import time
from itertools import count
from pathlib import Path

import raidproof_app as raidproof

RECORDS = Path(raidproof.directory()) / "records"
PAUSE_S = 0.002
WRONG = 5
"""Number of the record that has another number with the planted defect ``phantom``."""


def run(defect: str) -> None:
    if defect == "garbage":
        os.write(int(os.environ["RAIDPROOF_FD"]), b"hello, harness\n")
    with RECORDS.open("ab", buffering=0) as file:
        for number in count(1):
            raidproof.begun(number)
            file.write(b"%08d\n" % (number + (500_000 if defect == "phantom" and number == WRONG else 0)))
            # With the planted defect, each cut loses records: no fsync after the first one.
            if defect != "early" or number == 1:
                os.fsync(file.fileno())
            raidproof.acknowledged(number)
            if number == 2 * WRONG and defect in {"dies", "ends"}:
                sys.exit("no more" if defect == "dies" else 0)
            time.sleep(PAUSE_S)


def check(defect: str) -> None:
    if defect == "hangs":
        time.sleep(600)
    if defect == "fails":
        sys.exit("the file is strange")
    if defect == "chatty":
        print("checking ...")
    for line in RECORDS.read_bytes().splitlines() if RECORDS.exists() else ():
        if len(line) == 8:
            raidproof.present(int(line))
        # The fault may have interrupted the append of the last record, which is not acknowledged then.
        elif line.isdigit() and not RECORDS.read_bytes().endswith(line):
            raidproof.wrong(int(line), "half")


if __name__ == "__main__":
    step, *words = sys.argv[1:]
    {"run": run, "check": check}[step](words[0] if words else "")
