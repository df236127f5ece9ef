"""Models at a real mount: what is cancelled ends at the provider too, and what is said is seen at once."""

import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from tests.daemon import until
from tests.endtoend.slowserver import SlowServer
from tests.endtoend.user import User, user_of


@pytest.fixture(scope="module")
def server() -> Iterator[SlowServer]:
    """A provider that never comes to the end of its first sentence."""
    found = SlowServer()
    yield found
    found.close()


@pytest.fixture(scope="module")
def storyteller(tmp_path_factory: pytest.TempPathFactory, server: SlowServer) -> Iterator[User]:
    """A user with that provider, whose daemon runs for all tests of this file."""
    with user_of(tmp_path_factory.mktemp("storyteller")) as user:
        config = pathlib.Path(user.env["XDG_CONFIG_HOME"]) / "rnix"
        config.mkdir(parents=True)
        entry = f"  - {{name: slow, driver: openai-compat, base_url: '{server.url}', default_model: m}}\n"
        (config / "providers.yaml").write_text(f"version: 1\nproviders:\n{entry}")
        assert user.rnix("mount", "--root", str(user.work)).status == 0
        yield user


def hang_up_after(server: SlowServer, act) -> float:
    """Seconds from an act until the provider sees its client hang up."""
    before, started = len(server.gone), time.monotonic()
    act()
    until(lambda: len(server.gone) > before, "the end of the connection to the provider")
    return server.gone[-1] - started


def test_text_is_there_before_the_answer_is_whole(storyteller, server):
    """A reader gets the first word while the provider still speaks; Ctrl-C then ends the call."""
    reader = storyteller.script(
        """exec 3<>"$M/dev/llm/slow"; echo '{"intent":"tell","stream":true}' >&3
        python3 -c 'import os; print(os.read(3, 100).decode(), flush=True)'; cat <&3"""
    )
    assert reader.line() == "Once"
    hang_up_after(server, lambda: reader.signal(signal.SIGINT))
    reader.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_for_who_asked_ends_the_call(storyteller, server, number):
    """Whoever holds the file and dies, by whatever signal, takes the call with it."""
    asked = server.asked
    holder = storyteller.script(
        """exec 3<>"$M/dev/llm/slow"; echo '{"intent":"tell"}' >&3; echo asked; sleep 1000 3>&-"""
    )
    assert holder.line() == "asked"
    until(lambda: server.asked > asked, "the request")
    hang_up_after(server, lambda: holder.signal(number))


def test_closing_the_file_ends_the_call(storyteller, server):
    """The shell that goes on living closes the descriptor: the same."""
    asked = server.asked
    shell = storyteller.script(
        """exec 3<>"$M/dev/llm/slow"; echo '{"intent":"tell"}' >&3; echo asked
        read line; exec 3>&-; echo closed; read line"""
    )
    assert shell.line() == "asked"
    until(lambda: server.asked > asked, "the request")
    assert shell.process.stdin is not None
    stdin = shell.process.stdin.fileno()
    hang_up_after(server, lambda: os.write(stdin, b"\n"))
    assert shell.line() == "closed"


def test_a_cleared_mailbox_ends_the_call(storyteller, server):
    """`: > dev/llm/slow` cancels what this session asked."""
    asked = server.asked
    shell = storyteller.script(
        """echo '{"intent":"tell"}' > "$M/dev/llm/slow"; echo asked; read line
        : > "$M/dev/llm/slow"; echo cleared; read line"""
    )
    assert shell.line() == "asked"
    until(lambda: server.asked > asked, "the request")
    assert shell.process.stdin is not None
    stdin = shell.process.stdin.fileno()
    hang_up_after(server, lambda: os.write(stdin, b"\n"))


@pytest.mark.parametrize("command", ["kill", "term", "int", "suspend"])
def test_a_process_that_is_ended_or_suspended_ends_its_call(storyteller, server, command):
    """Nothing is paid for that nobody waits for."""
    asked = server.asked
    pid = storyteller.detach("tell", "--provider", "slow")
    until(lambda: server.asked > asked, "the request")
    mount = storyteller.mount
    hang_up_after(server, lambda: storyteller.bash(f"echo {command} > {mount}/proc/{pid}/ctl"))
    if command == "suspend":
        storyteller.rnix("kill", "--signal", "KILL", pid)


def test_the_log_has_what_is_said_while_it_is_said(storyteller, server):
    """Line by line: a follower of the log sees a long answer grow before the provider is done."""
    chatty = SlowServer("A whole first line.\nand the begin")
    config = pathlib.Path(storyteller.env["XDG_CONFIG_HOME"]) / "rnix" / "providers.yaml"
    entry = f"  - {{name: chatty, driver: openai-compat, base_url: '{chatty.url}', default_model: m}}\n"
    config.write_text(config.read_text() + entry)
    pid = storyteller.detach("tell", "--provider", "chatty")
    follower = storyteller.script(f'cat "$M/proc/{pid}/.live/log"')
    lines = [follower.line() for _ in range(2)]
    assert lines[1].endswith("think A whole first line.")
    assert len(chatty.gone) == 0
    storyteller.rnix("kill", "--signal", "KILL", pid)
    chatty.close()


def test_nothing_runs_afterwards(storyteller, server):
    """sys/providers shows how many calls run: none, once what was asked is cancelled."""
    storyteller.bash(
        f"""echo '{{"intent":"tell"}}' > {storyteller.mount}/dev/llm/slow; : > $M/dev/llm/slow"""
    )

    def running() -> int:
        rows = storyteller.bash("cat $M/sys/providers").out.splitlines()
        return sum(row.get("running", 0) for row in map(json.loads, rows) if row["name"] == "slow")

    until(lambda: running() == 0, "the end of all calls")


def test_the_daemons_log_does_not_grow_with_calls(storyteller, server):
    """What libraries have to say of each request stays out of it; that the daemon mounted is in it."""
    (log,) = pathlib.Path(storyteller.env["XDG_RUNTIME_DIR"]).rglob("*.log")
    text = log.read_text()
    assert "mounted" in text
    assert "chat/completions" not in text


EPOLL = """
import os, select, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
os.write(descriptor, b'{"intent": "tell", "stream": true}')
poll = select.epoll()
poll.register(descriptor, select.EPOLLIN)
poll.poll()
print(os.read(descriptor, 100).decode(), flush=True)
print(poll.poll(0.01), flush=True)
"""


def test_epoll_tells_when_the_next_piece_is_there(storyteller, server):
    """Ready when a word has come, not ready while the next one has not."""
    device = f"{storyteller.mount}/dev/llm/slow"
    program = storyteller.script(f"exec python3 -c '{EPOLL.replace(chr(39), chr(34) * 3)}' {device}")
    assert program.line() == "Once"
    assert program.line() == "[]"


def test_tail_follows_an_answer(storyteller, server):
    """`tail -f` of the mailbox shows the word that has come, and waits for the next."""
    shell = storyteller.script(
        """echo '{"intent":"tell","stream":true}' > "$M/dev/llm/slow"
        stdbuf -o0 tail -c +1 -f "$M/dev/llm/slow" > >(head -c 4; echo) & tail=$!
        read line; : > "$M/dev/llm/slow"; kill $tail; echo over"""
    )
    assert shell.line() == "Once"
    assert shell.process.stdin is not None
    stdin = shell.process.stdin.fileno()
    hang_up_after(server, lambda: os.write(stdin, b"\n"))
    assert shell.line() == "over"
