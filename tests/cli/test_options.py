from inspect import signature

import pytest

from raidproof.cli.main import compare_sides, demo, run
from raidproof.cli.options import PLATFORM, with_platform
from raidproof.run.options import OPTIONS


@pytest.mark.parametrize("command", [demo, run, compare_sides])
def test_a_command_that_starts_machines_has_every_option_of_the_platform(command: object) -> None:
    assert {option.name for option in OPTIONS} == set(PLATFORM) <= set(signature(command).parameters)  # type: ignore[arg-type]


def test_a_command_is_called_with_its_own_options_only() -> None:
    called: dict[str, object] = {}

    @with_platform(before="results")
    def command(seed: int, results: str) -> None:
        called.update(seed=seed, results=results)

    command(seed=1, results="here", kernel="debian/sid")
    assert called == {"seed": 1, "results": "here"}
    assert list(signature(command).parameters) == ["seed", *PLATFORM, "results"]
