"""`rnix spawn`: start an agent and watch it work."""

import os
import sys
from typing import Any

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.session import Session, json_option, mount_option, pass_session
from rnixfs_cli.tree import Tree
from rnixfs_cli.watch import watch


@click.command()
@click.argument("intent", required=False)
@click.option("-i", "--intent", "option", metavar="INTENT", help="The intent, in the place of the argument.")
@click.option("--agent", help="The agent, a folder of lib/agents.")
@click.option("--provider", help="The model's provider, a name of dev/llm.")
@click.option("--model", help="The provider's model.")
@click.option("--effort", metavar="WORD", help="How much the model is to think, in its provider's words.")
@click.option(
    "--fallback",
    multiple=True,
    metavar="PROVIDER[:MODEL]",
    help="Who is asked when the provider cannot answer; may be given several times.",
)
@click.option("--skills", multiple=True, metavar="NAME[,NAME]", help="Skills added to the agent's own.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Reasoning steps before it is ended.")
@click.option(
    "--budget", type=click.IntRange(min=0), metavar="TOKENS", help="Tokens before it is ended with code 2."
)
@click.option("--timeout-ms", type=click.IntRange(min=0), help="Milliseconds of running before it is ended.")
@click.option("--key", help="Idempotency key: the same command with the same key starts one process only.")
@click.option("--detach", is_flag=True, help="Print the pid and leave the process running.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result alone.")
@json_option
@mount_option
@pass_session
def spawn(
    session: Session, /, intent: str | None, option: str | None, detach: bool, quiet: bool, **wishes: Any
) -> int:
    """Start a process that works on INTENT (`-` reads it from stdin) and show what it does until it ends.

    The exit status is the process's code. Ctrl-C interrupts the process, a second one kills it.
    """
    tree = session.tree()
    request = request_of(_intent(intent, option), wishes)
    pid = pid_of(tree.exchange("proc/spawn", request, call="Spawn"))
    if detach:
        return tell_pid(session, pid)
    if wishes.get("key") is not None:
        return _watch_keyed(tree, pid, session, quiet)
    return watch(tree, pid, session, quiet=quiet)


def _watch_keyed(tree: Tree, pid: int, session: Session, quiet: bool) -> int:
    """Watch a process that may have been made long ago, with the same key."""
    folder, _ = tree.find(str(pid), "Spawn")
    status = tree.status(folder, call="Spawn", pid=pid)
    if status.get("suspended"):
        reason = f"made with this key before, and suspended; to go on: rnix resume --wait {pid}"
        raise CommandError("SERVICE_UNAVAILABLE", reason, syscall="Spawn", device=f"/proc/{pid}", pid=pid)
    return watch(tree, pid, session, folder=folder, quiet=quiet, word="made with this key:")


def tell_pid(session: Session, pid: int) -> int:
    """Print the pid of a process that was made; returns the exit status for success."""
    if session.as_json:
        session.json({"pid": pid})
    else:
        session.screen.line(str(pid))
    return 0


def _intent(argument: str | None, option: str | None) -> str:
    if argument is not None and option is not None:
        raise click.UsageError("the intent is given twice; give it as the argument or with -i")
    text = argument if argument is not None else option
    if text == "-":
        text = "" if sys.stdin is None else sys.stdin.read()
    if text is None or not text.strip():
        raise click.UsageError("say what is to be done, such as: rnix spawn 'Review the code in this folder'")
    return text


def request_of(intent: str, wishes: dict[str, Any]) -> dict[str, Any]:
    """What is written to `proc/spawn`: the wishes, and where the caller stands.

    Args:
        intent: what is to be done.
        wishes: the options by name; those that are None or empty are left to the kernel.
    """
    skills = [name.strip() for one in wishes.get("skills") or () for name in one.split(",") if name.strip()]
    fields = {
        "agent": wishes.get("agent"),
        "provider": wishes.get("provider"),
        "model": wishes.get("model"),
        "effort": wishes.get("effort"),
        "fallback": [_fallback(one) for one in wishes.get("fallback") or ()] or None,
        "skills": skills or None,
        "max_steps": wishes.get("max_steps"),
        "context_budget": wishes.get("budget"),
        "timeout_ms": wishes.get("timeout_ms"),
        "idempotency_key": wishes.get("key"),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return {"intent": intent, **given, "cwd": _here(), "env": environment(os.environb)}


def _fallback(text: str) -> dict[str, str]:
    """A fallback as the kernel takes it; `:MODEL` is another model of the same provider."""
    provider, _, model = text.partition(":")
    return {name: value for name, value in (("provider", provider), ("model", model)) if value}


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        reason = f"the current folder cannot be used: {error.strerror}; cd to one that exists"
        raise CommandError("NOT_FOUND", reason, syscall="Spawn", device=".") from None


def environment(variables: Any) -> dict[str, str]:
    """The variables of the caller for the programs of the agent.

    Requests are UTF-8, so a variable of other bytes stays behind.

    Args:
        variables: names and values as bytes.
    """
    env = {}
    for name, value in variables.items():
        try:
            env[name.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return env


def pid_of(answer: str) -> int:
    """The pid in an answer of `proc/spawn`.

    Raises:
        CommandError: it holds none.
    """
    if not answer.strip().isdecimal():
        reason = f"the answer is no pid: {answer.strip()[:80]!r}"
        raise CommandError("DRIVER", reason, syscall="Spawn", device="/proc/spawn")
    return int(answer)
