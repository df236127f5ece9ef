"""`rnix spawn`: start an agent and watch it work."""

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Any

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.loglines import Entry, live, painted, parse
from rnixfs_cli.screen import Screen, cells, exit_line, model_label
from rnixfs_cli.session import Session, json_option, mount_option, pass_session
from rnixfs_cli.tree import Tree, lines
from rnixfs_cli.wait import end_of

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
RULE = 60  # columns of the line above and below a result
# What a first and a second Ctrl-C write to the process's ctl.
_INTERRUPTS = {1: "int", 2: "kill"}


@click.command()
@click.argument("intent", required=False)
@click.option("-i", "--intent", "option", metavar="INTENT", help="The intent, in the place of the argument.")
@click.option("--agent", help="The agent, a folder of lib/agents.")
@click.option("--provider", help="The model's provider, a name of dev/llm.")
@click.option("--model", help="The provider's model.")
@click.option("--skills", multiple=True, metavar="NAME[,NAME]", help="Skills added to the agent's own.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Reasoning steps before it is ended.")
@click.option(
    "--budget", type=click.IntRange(min=0), metavar="TOKENS", help="Tokens before it is ended with code 2."
)
@click.option("--timeout-ms", type=click.IntRange(min=0), help="Milliseconds of running before it is ended.")
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
    pid = _pid(tree.exchange("proc/spawn", request, call="Spawn"))
    if not detach:
        return _watch(tree, pid, session, quiet)
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
        "skills": skills or None,
        "max_steps": wishes.get("max_steps"),
        "context_budget": wishes.get("budget"),
        "timeout_ms": wishes.get("timeout_ms"),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return {"intent": intent, **given, "cwd": _here(), "env": environment(os.environb)}


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


def _pid(answer: str) -> int:
    if not answer.strip().isdecimal():
        reason = f"the answer is no pid: {answer.strip()[:80]!r}"
        raise CommandError("DRIVER", reason, syscall="Spawn", device="/proc/spawn")
    return int(answer)


def _watch(tree: Tree, pid: int, session: Session, quiet: bool) -> int:
    # Opened at once: the file answers also when the process's folder has gone.
    ending = tree.open(f"proc/{pid}/wait", call="Wait", pid=pid)
    status = tree.status(f"proc/{pid}", pid=pid)
    view = View(pid, session.screen)
    shown = not (quiet or session.as_json)
    with Interrupts(tree, pid, Screen(sys.stderr)) as interrupts:
        if shown:
            view.begin(model_label(status))
            follow(tree, pid, view)
        end = end_of(tree, ending, pid)
    with contextlib.suppress(CommandError):
        # Which model answers is known for certain only after its first answer.
        status = tree.status(f"proc/{pid}", pid=pid)
    if session.as_json:
        about = {key: status.get(key) for key in ("uuid", "agent", "provider", "model")}
        session.json({"pid": pid, **about, **end})
    elif quiet:
        session.screen.line(session.screen.safe(str(end.get("result", "")).rstrip("\n")))
    else:
        view.end(model_label(status), end)
    return INTERRUPTED if interrupts.count else int(end["code"])


def follow(tree: Tree, pid: int, view: "View") -> None:
    """Show the log of a process until it ends.

    Args:
        tree: the tree.
        pid: the process.
        view: where to show it.
    """
    name = f"proc/{pid}/.live/log"
    descriptor = tree.open(name, call="Log", pid=pid)
    try:
        for line in lines(descriptor):
            view.entry(parse(line))
    except BrokenPipeError:
        # It is our own output that nobody reads any more; the process goes on without its audience.
        raise
    except OSError as error:
        raise tree.failure(error, name, "Log", pid) from None
    finally:
        os.close(descriptor)


class View:
    """What a person sees of a running process: its log, of each tool's output the first line.

    Args:
        pid: the process.
        screen: where to print.
    """

    def __init__(self, pid: int, screen: Screen) -> None:
        self.pid = pid
        self.screen = screen
        self._last = Entry(0.0, "", "")

    def begin(self, label: str) -> None:
        """Say that the process starts.

        Args:
            label: its provider and model.
        """
        self.screen.line(f"[kernel] spawning PID {self.pid} ({self.screen.safe(label)})...")

    def entry(self, entry: Entry) -> None:
        """Show an entry of its log."""
        if not entry.goes_on:
            self._last = entry
            self.screen.line(live(entry, self.pid, self.screen))
        elif self._last.category != "output":
            self.screen.line(painted(self.screen.safe(entry.text), self._last, self.screen))

    def end(self, label: str, end: dict[str, Any]) -> None:
        """Show the result and how it ended.

        Args:
            label: provider and model.
            end: what its `wait` file gave.
        """
        result = str(end.get("result") or "")
        if result.strip():
            self._result(result)
        style = "red" if end.get("code") else "green"
        self.screen.line(self.screen.paint(style, self.screen.safe(exit_line(self.pid, label, end))))

    def _result(self, result: str) -> None:
        title = "══ Result "
        self.screen.line(self.screen.paint("bold", title + "═" * (RULE - cells(title))))
        self.screen.line(self.screen.safe(result.rstrip("\n")))
        self.screen.line(self.screen.paint("bold", "═" * RULE))


class Interrupts:
    """Ctrl-C for the process instead of for this command: the first interrupts it, the second kills it.

    A third one ends this command alone, should the process not end.

    Args:
        tree: the tree.
        pid: the process.
        notes: where to say what was sent.
    """

    def __init__(self, tree: Tree, pid: int, notes: Screen) -> None:
        self.count = 0
        self._tree = tree
        self._pid = pid
        self._notes = notes
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        # A shell without job control starts background commands with SIGINT ignored; that stays so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        # Raising nothing here lets the read that was interrupted go on, so that no line is lost.
        self.count += 1
        command = _INTERRUPTS.get(self.count)
        if command is None:
            raise KeyboardInterrupt
        try:
            self._tree.write(f"proc/{self._pid}/ctl", command, call="Kill", pid=self._pid)
            self._notes.line(f"[kernel] PID {self._pid}: signal sent (SIG{command.upper()})")
        except CommandError as failure:
            self._notes.line(str(failure))
