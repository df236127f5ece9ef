"""`rnix version`."""

import click

from rnixfs_cli.session import Session, json_option, pass_session

DISTRIBUTION = "rnixfs"


@click.command()
@json_option
@pass_session
def version(session: Session) -> None:
    """Print the version of this command."""
    if session.as_json:
        session.json({"version": installed()})
    else:
        session.screen.line(f"rnix {installed()}")


def installed() -> str:
    """The version of the installed package; `unknown` in a source folder that was never installed."""
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
