"""Where a suite runs, and one command of it."""

from pydantic import Field

from raidproof.core.layer import State


class SuitePlace(State):
    """What a suite is told of the stack."""

    path: str
    """The suite's program or folder in the machine."""
    directory: str
    """An empty directory of its own on the mount."""
    mount: str
    """The mount point."""
    server: str
    """The server's address."""
    export: str
    """The path that the server exports."""
    vers: str
    """The mount's NFS version, as 3 or 4.2."""


class SuiteStep(State):
    """One command of a suite, whose end is judged by itself."""

    name: str
    argv: tuple[str, ...]
    directory: str
    """Where it runs."""
    environment: dict[str, str] = Field(default_factory=dict)


def step_command(step: SuiteStep) -> list[str]:
    """Return the command in its directory and environment."""
    settings = [f"{name}={value}" for name, value in step.environment.items()]
    return ["env", f"--chdir={step.directory}", *settings, *step.argv]
