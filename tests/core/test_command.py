import sys

import pytest

from raidproof.core.command import CommandFailed, run, succeed
from raidproof.core.errors import DeadlineExceeded, RequirementMissing


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_what_it_printed() -> None:
    assert succeed(python("print(input())"), stdin="in\n") == "in\n"


def test_a_failure_is_a_value_of_run() -> None:
    completed = run(python("import sys; print('no', file=sys.stderr); sys.exit(3)"))
    assert (completed.status, completed.stderr, completed.ok) == (3, "no\n", False)


def test_a_failure_can_be_replayed() -> None:
    with pytest.raises(CommandFailed) as failed:
        succeed(["sh", "-c", "echo it broke >&2; exit 4"])
    assert str(failed.value) == "host: status 4 from: sh -c 'echo it broke >&2; exit 4'\nit broke"
    assert failed.value.completed.status == 4


def test_arguments_are_not_a_shell_string() -> None:
    assert succeed(["echo", "$(id); *"]) == "$(id); *\n"


def test_environment_is_added_to() -> None:
    program = python("import os; print(os.environ['RAIDPROOF_TEST'], 'PATH' in os.environ)")
    assert succeed(program, environment={"RAIDPROOF_TEST": "x"}) == "x True\n"


def test_no_such_program() -> None:
    with pytest.raises(RequirementMissing, match="host tool not found: raidproof-no-such-tool"):
        run(["raidproof-no-such-tool"])


def test_deadline() -> None:
    with pytest.raises(DeadlineExceeded, match=r"still running after 0\.05 s: sleep 60"):
        run(["sleep", "60"], deadline_s=0.05)


def test_output_that_is_no_text() -> None:
    assert run(["printf", r"\377x"]).stdout.endswith("x")
