"""Whole processes whose mind is a real server of models, in memory and through a mount."""

import json
import pathlib

import pytest
import trio

from tests import daemon
from tests.llama.llamalab import COMMAND, HTTP, Lab, configured, environment, system_of
from tests.llama.scripted import RESULT, SHELL_CALL, TEXTS
from tests.llama.server import ALIAS, SECONDS, WINDOW, LlamaServer
from tests.tree import ask, write

by_http = pytest.mark.parametrize("provider", HTTP)


async def ended(lab: Lab, **request: object) -> tuple[int, dict[str, object]]:
    """The number of a new process, and how it ended."""
    pid = int(await ask(lab.tree, "proc/spawn", request))
    return pid, await lab.json(f"proc/{pid}/wait")


@by_http
async def test_a_process_does_what_the_model_asks_for(lab: Lab, provider: str) -> None:
    """Asked for a command, it runs it, sends its output back, and ends with the model's last words.

    The tokens in its status are those that the server has read and written for it.
    """
    before = await lab.spent()
    pid, end = await ended(lab, intent="Let the SHELL do a sum.", provider=provider)
    after = await lab.spent()
    assert (end["code"], end["reason"], end["result"]) == (0, "done", TEXTS["FOUND"])
    status = await lab.json(f"proc/{pid}/status")
    assert (status["provider"], status["model"], status["steps"]) == (provider, ALIAS, 2)
    assert status["tokens_used"] == end["tokens_used"] == sum(after) - sum(before)
    messages = (await lab.json(f"proc/{pid}/messages.json"))["messages"]
    calls = [call for one in messages for call in one.get("tool_calls", [])]
    assert [call["arguments"] for call in calls] == [SHELL_CALL["arguments"]]
    assert ["sum of 20 and 22: 42" in one["content"] for one in messages if one["role"] == "tool"] == [True]


async def test_a_process_knows_the_window_of_its_server(lab: Lab) -> None:
    """What the server says of its window is what the process has room for."""
    pid, _ = await ended(lab, intent="PLAIN", provider="chat")
    assert (await lab.json(f"proc/{pid}/status"))["context_window"] == WINDOW


async def test_a_process_behind_the_claude_command(lab: Lab) -> None:
    """The program has no tools for us: an action in JSON, which the model writes, ends the process."""
    before = await lab.spent()
    pid, end = await ended(lab, intent="ACTION", provider=COMMAND)
    assert (end["code"], end["reason"], end["result"]) == (0, "done", RESULT)
    used = (await lab.json(f"proc/{pid}/status"))["tokens_used"]
    assert used == sum(await lab.spent()) - sum(before)


async def test_a_killed_process_leaves_the_server_free(lab: Lab) -> None:
    """A process that ends in the middle of an answer takes its call along."""
    await lab.slots(0)
    pid = int(await ask(lab.tree, "proc/spawn", {"intent": "FOREVER", "provider": "chat"}))
    await lab.slots(1)
    await write(lab.tree, f"proc/{pid}/ctl", b"kill\n")
    assert (await lab.json(f"proc/{pid}/wait"))["code"] != 0
    await lab.slots(0)


# --- found without configuration ---


async def test_a_server_is_found_where_nothing_is_configured(
    llama: LlamaServer, tmp_path: pathlib.Path
) -> None:
    """One that listens where such servers listen is a provider, and the one that is asked by default."""
    env = environment(tmp_path) | {"RNIX_LOCAL_SERVERS": f"llamacpp={llama.port}"}
    async with system_of(env, llama) as lab:
        with trio.fail_after(SECONDS):
            await lab.system.discovery.look()
        assert "llamacpp" in await lab.tree.names("dev/llm")
        assert (await lab.ask("llamacpp", intent="PLAIN"))["content"] == TEXTS["PLAIN"]
        pid, end = await ended(lab, intent="PLAIN")
        assert (end["reason"], end["result"]) == ("done", TEXTS["PLAIN"])
        status = await lab.json(f"proc/{pid}/status")
        assert (status["provider"], status["model"], status["context_window"]) == ("llamacpp", ALIAS, WINDOW)


# --- through a mount ---


def test_a_shell_works_with_a_server_through_the_mount(llama: LlamaServer, tmp_path: pathlib.Path) -> None:
    """Spawned with echo, awaited with cat, the tool's work done, the server's tokens in the status."""
    with daemon.running(tmp_path, env=configured(tmp_path, llama)) as mounted:
        before = llama.spent()
        mounted.out("""echo '{"intent": "SHELL", "provider": "messages"}' >$M/proc/spawn""")
        end = json.loads(mounted.out("cat $M/proc/1/wait"))
        assert (end["code"], end["result"]) == (0, TEXTS["FOUND"])
        status = json.loads(mounted.out("cat $M/proc/1/status"))
        assert status["tokens_used"] == sum(llama.spent()) - sum(before)
        assert "sum of 20 and 22: 42" in mounted.out("cat $M/proc/1/log")


def test_head_of_an_endless_answer(llama: LlamaServer, tmp_path: pathlib.Path) -> None:
    """A program that reads the first words through the mount and goes away ends the writing of the rest."""
    with daemon.running(tmp_path, env=configured(tmp_path, llama)) as mounted:
        request = json.dumps({"intent": "FOREVER", "stream": True, "max_tokens": WINDOW - 8000})
        words = mounted.out(f"exec 3<>$M/dev/llm/chat; echo '{request}' >&3; head -c 50 <&3")
        assert words == (TEXTS["FOREVER"] * 10)[:50]
        daemon.until(lambda: llama.busy() == 0, "the server writes no more")


def test_a_daemon_finds_the_server_when_it_starts(llama: LlamaServer, tmp_path: pathlib.Path) -> None:
    """The first thing that a new user tries works, without a line of configuration."""
    env = {"RNIX_LOCAL_SERVERS": f"llamacpp={llama.port}"}
    with daemon.running(tmp_path, env=env) as mounted:
        assert "llamacpp\n" in mounted.out("ls $M/dev/llm")
        answer = mounted.out("exec 3<>$M/dev/llm/llamacpp; echo PLAIN >&3; cat <&3")
        assert json.loads(answer)["content"] == TEXTS["PLAIN"]
