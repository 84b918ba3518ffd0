"""The scenario that shows the failure of a random crash test again, as a file for pytest."""

import json
from pprint import pformat
from typing import Any

from pydantic import BaseModel

from raidproof.plan.hardware import Hardware
from raidproof.run.storm.case import Case

WIDTH = 110
TEMPLATE = '''"""{title}

Found by `raidproof storm`, seed {seed}. Run this file with pytest.
"""

import pytest

from raidproof.core.topology import Topology
from raidproof.plan.faults import read_faults
from raidproof.plan.hardware import Hardware
from raidproof.pytest_plugin.fixtures import CrashTestRunner
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LedgerSpec

HARDWARE = {hardware}
STACK = {stack}
FAULTS = {faults}
KINDS = {kinds}


@pytest.fixture(scope="session")
def lab_topology() -> Topology:
    return Hardware.model_validate(HARDWARE).topology()


def test_seed_{seed}(cycle: CrashTestRunner) -> None:
    stack, ledger = StackSpec.model_validate(STACK), LedgerSpec(kinds=KINDS)
    cycle(stack, faults=read_faults(FAULTS), cache_mode="{cache}", ledger=ledger).must_keep_every_promise()
'''


def scenario_of(case: Case, hardware: Hardware, seed: int, title: str) -> str:
    """Return the text of a scenario with one crash test; ``title``: what failed, of which the first line is used."""
    return TEMPLATE.format(
        title=title.partition("\n")[0].replace("\\", "/").replace('"""', "'''").rstrip('"'),
        seed=seed,
        hardware=_literal(_asked(hardware)),
        stack=_literal(_asked(case.stack)),
        faults=_literal(case.tables()),
        kinds=case.kinds,
        cache=case.cache_mode.value,
    )


def _asked(model: BaseModel) -> dict[str, Any]:
    """Return what differs from the defaults of a model, and the kinds of its layers."""
    whole, given = model.model_dump(mode="json"), model.model_dump(mode="json", exclude_defaults=True)
    with_kinds = {
        name: {
            **({"type": of["type"]} if isinstance(of, dict) and "type" in of else {}),
            **given.get(name, {}),
        }
        if isinstance(of, dict)
        else given.get(name)
        for name, of in whole.items()
    }
    return {name: of for name, of in with_kinds.items() if of not in (None, {})}


def _literal(value: Any) -> str:
    # Through JSON, so that nothing but literals is left.
    return pformat(json.loads(json.dumps(value)), width=WIDTH, sort_dicts=False)
