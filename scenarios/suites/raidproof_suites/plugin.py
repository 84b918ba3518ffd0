"""The pytest plugin raidproof-suites: the option ``--suite-path``, and the fixture ``suite``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from raidproof.core.errors import RequestError

if TYPE_CHECKING:
    from raidproof.lab.lab import Lab
    from raidproof.run.run import Run
    from raidproof_suites.suites import Suites


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--suite-path``."""
    parser.getgroup("raidproof").addoption(
        "--suite-path",
        action="append",
        metavar="NAME=PATH",
        help="path of an external test suite, for example fsx=/usr/local/bin/fsx",
    )


@pytest.fixture
def suite(current_run: "Run", lab: "Lab", request: pytest.FixtureRequest) -> "Suites":
    """Return the object that runs external test suites: ``suite(stack_of("5"), Fsx()).must_pass()``."""
    # The imports take a second, and only a scenario with this fixture needs them.
    from raidproof.pytest_plugin.fixtures import name_of  # noqa: PLC0415
    from raidproof_suites.suites import Suites  # noqa: PLC0415

    paths = paths_of(request.config.option.suite_path or ())
    keep = current_run.record.suites.append
    return Suites(lab, current_run.store.path, name_of(request.node.name), keep=keep, paths=paths)


def paths_of(words: Iterable[str]) -> dict[str, str]:
    """Return the paths of suites by name, from values of ``--suite-path`` such as ``fsx=/usr/local/bin/fsx``.

    Raises:
        RequestError: a value is not NAME=PATH.
    """
    pairs = {word: word.partition("=") for word in words}
    for word, pair in pairs.items():
        if not all(pair):
            raise RequestError(
                f"--suite-path {word!r} is not NAME=PATH",
                remedy="write for example --suite-path fsx=/usr/local/bin/fsx",
            )
    return {name: path for name, _, path in pairs.values()}
