"""`rnix gc`: the log without what is not to be kept."""

import json

import click

from rnixfs_cli.session import Session, json_option, mount_option, pass_session
from rnixfs_cli.tree import Tree


@click.command()
@json_option
@mount_option
@pass_session
def gc(session: Session) -> None:
    """Remove from the log what is older or more than `config.yaml` says; what anything needs stays."""
    tree = session.tree()
    before = now = _stats(tree)
    # The daemon removes so many at a time, so that others need not wait; this goes on to the end.
    while True:
        tree.command("sys/ctl", "gc", call="Collect")
        last, now = now, _stats(tree)
        if now["history"] >= last["history"]:
            break
    removed = max(before["history"] - now["history"], 0)
    if session.as_json:
        session.json({"removed": removed, **now})
    else:
        size = f", {now['log_bytes']} bytes" if "log_bytes" in now else ""
        kept = f"{now['history']} are kept{size}"
        session.screen.line(f"[kernel] removed {removed} finished processes from the log; {kept}")


def _stats(tree: Tree) -> dict[str, int]:
    stats: dict[str, int] = json.loads(tree.read("sys/stats"))
    return {name: stats[name] for name in ("history", "log_bytes") if name in stats}
