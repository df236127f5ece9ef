"""Calls that are cancelled, clients and daemons that go away, and the end of the server itself."""

import contextlib
import json
import signal
from typing import Any

import pytest
import trio
from mcp.shared.exceptions import MCPError

from tests.daemon import Program, until
from tests.mcpserve.servelab import UNTIDY, Lab, Server, call, refused, text_of

pytestmark = pytest.mark.filterwarnings(UNTIDY)


async def spawn_until_cancelled(client: Any, lab: Lab, intent: str) -> None:
    """Have an agent work, and cancel the call when it does."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "spawn", {"intent": intent})
        await lab.until(lambda: lab.working(intent), "a process")
        nursery.cancel_scope.cancel()
    await lab.until(lambda: not lab.working(intent), "the end of the process")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_spawn_kills_its_process(server: Server, lab: Lab, mode: str) -> None:
    """A call that is cancelled ends the process that it waits for; by HTTP."""
    intent = f"wait 600 s for {mode} by http"
    async with server.client(mode) as client:
        await spawn_until_cancelled(client, lab, intent)
        assert intent not in {row["intent"] for row in (await call(client, "ps"))["processes"]}
    await lab.until(lambda: not server.opened("proc"), "the files of the process to be closed")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_spawn_by_standard_streams(lab: Lab, mode: str) -> None:
    """The same by standard streams, and the session goes on."""
    async with lab.stdio(mode=mode) as client:
        await spawn_until_cancelled(client, lab, f"wait 600 s for {mode} by streams")
        assert await text_of(client, "/sys/version")


async def test_a_cancelled_wait_does_nothing_to_the_process(server: Server, lab: Lab) -> None:
    """Who waits for a process of others may stop waiting."""
    async with server.client() as client:
        pid = (await call(client, "spawn", intent="wait 600 s alone", wait=False))["pid"]
        with trio.move_on_after(0.3):
            await client.call_tool("wait", {"pid": pid})
        assert (await call(client, "wait", pid=pid, timeout_s=0))["ended"] is False
        await call(client, "kill", pid=pid, signal="KILL")


async def test_a_client_that_goes_leaves_nothing_behind(lab: Lab) -> None:
    """The server of a client that closes its streams ends, and what the client waited for is killed."""
    intent = "wait 600 s for a client that goes"
    with contextlib.suppress(MCPError):
        async with trio.open_nursery() as nursery, lab.stdio() as client:

            async def ask() -> None:
                with contextlib.suppress(MCPError):
                    await client.call_tool("spawn", {"intent": intent})

            nursery.start_soon(ask)
            await lab.until(lambda: lab.working(intent), "a process")
    await lab.until(lambda: not lab.working(intent), "the end of the process")


def begin(lab: Lab, *options: str) -> Program:
    """A server that has begun to answer, by its standard streams."""
    program = lab.daemon.program(lab.words(*options))
    assert program.process.stdin is not None
    program.process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    program.process.stdin.flush()
    assert json.loads(program.line())["id"] == 1
    return program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it(lab: Lab, number: int) -> None:
    """A server ends in peace at a signal, although its client is still there."""
    program = begin(lab)
    program.signal(number)
    until(lambda: program.process.poll() is not None, "its end")
    done = program.end()
    assert (done.status, done.err) == (0, "")


def test_the_end_of_input_ends_it(lab: Lab) -> None:
    """A server ends when its client closes its side."""
    done = begin(lab).end()
    assert (done.status, done.out, done.err) == (0, "", "")


def test_an_output_that_nobody_takes_ends_it(lab: Lab) -> None:
    """A server ends when nobody takes what it says, although its input stays open."""
    program = begin(lab)
    assert program.process.stdout is not None
    program.process.stdout.close()
    until(lambda: program.process.poll() is not None, "its end")
    lab.daemon.forget(program)


def test_signals_end_a_server_that_listens(lab: Lab) -> None:
    """The same by HTTP."""
    assert lab.http().end() == (0, "")


def test_without_a_mount(lab: Lab) -> None:
    """Where no tree is mounted there is one line that says so, and a status that tells of failure."""
    program = lab.daemon.program([*lab.words()[:-1], str(lab.daemon.host)])
    done = program.end()
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        f"[SERVICE_UNAVAILABLE] Open: /sys/version "
        f"(no tree of rnix is mounted at {lab.daemon.host} now; run: rnix mount)\n"
    )


async def test_a_daemon_that_ends_and_comes_back(lab: Lab) -> None:
    """While there is no daemon tools say so; with the next one they work again."""
    async with lab.stdio() as client:
        assert await text_of(client, "/sys/version")
        assert lab.daemon.stop() == 0
        for tool, arguments in (("read", {"path": "/sys/version"}), ("ps", {}), ("spawn", {"intent": "hi"})):
            error = await refused(client, tool, **arguments)
            assert error["code"] == "SERVICE_UNAVAILABLE"
            assert "no tree of rnix is mounted" in error["message"]
        lab.daemon.start()
        assert await text_of(client, "/sys/version")
        assert (await call(client, "spawn", intent="say hi"))["result"] == "hi"


async def test_a_daemon_that_ends_in_a_call(lab: Lab) -> None:
    """A call that waits when the daemon ends gets an answer that says so."""
    async with lab.stdio() as client:
        pid = (await call(client, "spawn", intent="wait 600 s in vain", wait=False))["pid"]
        found: list[Any] = []
        told = trio.Event()

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told.set()

        async def wait() -> None:
            arguments = {"pid": pid, "timeout_s": 600}
            found.append(await client.call_tool("wait", arguments, progress_callback=tell))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            # The log of the process comes only once it is waited for.
            await told.wait()
            assert await trio.to_thread.run_sync(lab.daemon.stop) == 0
        lab.daemon.start()
    assert found[0].is_error
    assert found[0].structured_content["error"]["code"] == "SERVICE_UNAVAILABLE"
