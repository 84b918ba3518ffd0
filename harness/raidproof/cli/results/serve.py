"""`raidproof serve`: the stored runs in a browser of this host."""

from typing import Annotated

import typer

from raidproof.cli.options import Results
from raidproof.run.options import RESULTS


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")] = 0,
    results: Results = RESULTS,
) -> None:
    """Show the stored runs in a browser of this host, with the progress of a running run, until Ctrl-C.

    The server listens on 127.0.0.1 only.
    """
    from raidproof.run.serve import ResultsServer  # noqa: PLC0415

    with ResultsServer(results, port) as server:
        print(f"{server.url} shows the runs in {results.absolute()}; Ctrl-C ends the server", flush=True)  # noqa: T201
        server.serve_forever()
