"""How a program of the Linux Test Project ends: bits in its exit status, and a summary."""

import re

from raidproof.core.command import Completed
from raidproof.workload.suite.outcome import SuiteOutcome, failed, passed, skipped, tail, unknown

# include/tst_res_flags.h of LTP.
TFAIL, TBROK, TWARN, TCONF = 1, 2, 4, 32
_SUMMARY = re.compile(r"^(passed|failed|broken|skipped|warnings) +(\d+)$", re.MULTILINE)
_SAID = r"(?:^|[ :])({word})(?:[ :]+)(.*)$"


def parse_ltp(name: str, ended: Completed) -> SuiteOutcome:
    """Judge one program: a test that broke says nothing of the product, so it is unknown."""
    text = f"{ended.stdout}\n{ended.stderr}"
    counts = {word: int(number) for word, number in _SUMMARY.findall(text)}
    if ended.status >= 128:
        return unknown(name, f"status {ended.status}: {tail(text)}")
    if ended.status & TFAIL:
        return failed(name, _line("TFAIL", text))
    if ended.status & (TBROK | TWARN):
        return unknown(name, _line("TBROK|TWARN", text))
    if ended.status & TCONF:
        return skipped(name, _line("TCONF", text))
    if ended.status != 0:
        return unknown(name, f"status {ended.status}: {tail(text)}")
    if counts and not counts.get("passed"):
        return unknown(name, "it ended well and counts nothing as passed")
    return passed(name)


def _line(word: str, text: str) -> str:
    found = re.search(_SAID.format(word=word), text, re.MULTILINE)
    return found.group(2).strip() if found else tail(text)
