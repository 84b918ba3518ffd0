"""Completion of the command line in bash, zsh and fish: `raidproof --show-completion SHELL`."""

import os
from collections.abc import Iterator
from pathlib import Path

import typer

from raidproof.core.errors import RequestError, nearest

VARIABLE = "_RAIDPROOF_COMPLETE"
"""Environment variable by which a shell requests completions instead of a command."""
# Each calls the command as the user wrote it, so that `./raidproof` in a clone is completed, too.
BASH = """_raidproof_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _RAIDPROOF_COMPLETE=complete_bash "$1" ) )
}
complete -o default -F _raidproof_completion raidproof"""
ZSH = """#compdef raidproof
_raidproof_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _RAIDPROOF_COMPLETE=complete_zsh "${words[1]}")
}
compdef _raidproof_completion raidproof"""
FISH = """function _raidproof_completion --argument-names action
    set --local command (commandline -opc)[1]
    env _RAIDPROOF_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$action \\
        _TYPER_COMPLETE_ARGS=(commandline -cp) $command
end
complete --command raidproof --no-files --arguments "(_raidproof_completion get-args)" \\
    --condition "_raidproof_completion is-args\""""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def show_completion(shell: str | None) -> None:
    """Print the completion script of a shell and exit, if ``--show-completion`` is given.

    Raises:
        RequestError: raidproof has no script for this shell.
    """
    if shell is None:
        return
    if shell not in SCRIPTS:
        raise RequestError(f"no completion for the shell {shell!r}", remedy=nearest(shell, SCRIPTS))
    print(SCRIPTS[shell])  # noqa: T201
    raise typer.Exit


def register_shells() -> None:
    """Register the shells' formats of completions with typer, if a shell requests completions."""
    if os.environ.get(VARIABLE):
        from typer.completion import get_completion_inspect_parameters  # noqa: PLC0415

        get_completion_inspect_parameters()


def stored_runs(asked: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the names of stored runs that begin with a text, the newest first."""
    from raidproof.cli.config_files import default_of  # noqa: PLC0415
    from raidproof.record.results.names import RECORD  # noqa: PLC0415

    source = asked.get_parameter_source("results")
    named = source is not None and source.name == "COMMANDLINE"
    results = Path(asked.params["results"] if named else default_of("results") or asked.params["results"])
    # Names begin with the time of the run.
    names = sorted((path.name for path in results.glob("*") if path.name.startswith(incomplete)), reverse=True)
    yield from (name for name in names if (results / name / RECORD).is_file())
