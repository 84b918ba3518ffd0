"""A suite in a stored run: read back as it was, and judged the same."""

from typing import Any

from raidproof.record.outcome import Outcome
from raidproof.record.suite import SuiteRecord
from raidproof.verdict.suite import judge_suite_record

STORED = """{
 "name": "fsstress", "title": "fsstress (fsstress)", "suite": "fsstress", "client": "client1",
 "asked": {"suite": {"suite": "fsstress", "path": null, "operations": 300, "processes": 4, "seed": 1}},
 "effective": {}, "path": "/var/lib/raidproof-suites/fsstress-1ad6a55d6d5b1b30/fsstress",
 "commands": [["env", "--chdir=/", "sh"]], "seconds": 1.7,
 "outcomes": {"passed": ["fsstress"], "skipped": [], "unknown": [],
  "failed": [{"name": "trees agree", "reason": "a: client f 644 3, server has none"}]},
 "known": ["trees agree"], "files": {"fsstress": "fsstress/fsstress-fsstress.txt"},
 "rig_error": null, "not_effective": null, "requirement_missing": null,
 "verdicts": [{"checker": "suite", "outcome": "PASS", "kind": null, "of_the_stack": false, "blame": null,
  "reason": "1 of 2 passed, 1 failed as expected: trees agree"}],
 "outcome": "PASS", "reason": "1 of 2 passed, 1 failed as expected: trees agree"
}"""


def test_a_stored_suite_is_judged_as_it_was() -> None:
    stored, again = SuiteRecord.model_validate_json(STORED), SuiteRecord.model_validate_json(STORED)
    judge_suite_record(again)
    texts: Any = {"reason": True, "verdicts": {"__all__": {"reason"}}}
    assert again.model_dump(exclude=texts) == stored.model_dump(exclude=texts)
    again.known = []
    judge_suite_record(again)
    assert again.outcome is Outcome.FAIL
