"""The laws of devices: descriptions, requests, mailboxes, private exchanges, cancelling, failures."""

import contextlib
import errno
import json
import os
import pathlib

import pytest
import trio

from tests.contract.world import World, about, refused
from tests.daemon import state_of
from tests.filetable import Class, holds
from tests.tree import read_on, write

LLM = "dev/llm/script"
SHELL = "dev/shell"
REQUEST_MAX = 1 << 20  # bytes


def failure(data: bytes) -> dict[str, str]:
    """What an answer says went wrong."""
    assert data.endswith(b"\n")
    error: dict[str, str] = json.loads(data)["error"]
    about_models = {"retryable", "attempts", "status", "retry_after_ms", "tokens_used", "cost_usd"}
    assert set(error) - about_models == {"code", "message", "syscall", "device"}
    return error


# --- what every device does ---


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDONLY | os.O_NONBLOCK, os.O_RDWR])
async def test_a_device_describes_itself(world: World, flags: int) -> None:
    """Reading without asking gives one JSON object that says what it does and takes; its size is 0."""
    for _, path in await world.each(Class.DEVICE):
        with about(path):
            opened = await world.open(path, flags)
            described = json.loads(await read_on(opened))
            await opened.close()
            assert described["device"] == f"/{path}"
            assert described["does"]
            assert {"type", "oneOf"} & set(described["request"])
            assert described["example"]
            assert described.get("available", True) or described["reason"]
            assert (await world.tree.stat(path)).size == 0
            for tool in described.get("tools", []):
                assert tool["name"]
                assert tool["description"]
                assert tool["input_schema"]["type"] == "object"


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        (b'{"intent": nonsense}\n', "INVALID", errno.EINVAL),
        (b'{"intent": "x"}}\n', "INVALID", errno.EINVAL),
        (b'{"no_such_field": 1}\n', "INVALID", errno.EINVAL),
        (b"x" * (REQUEST_MAX + 1), "TOO_LARGE", errno.EFBIG),
        (b'{"intent": "' + b"x" * REQUEST_MAX + b'"}', "TOO_LARGE", errno.EFBIG),
    ],
    ids=["malformed", "trailing", "unknown field", "long text", "long JSON"],
)
@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_TRUNC, os.O_RDWR], ids=["mailbox", "private"])
async def test_a_wrong_request_fails_in_write_and_its_reason_can_be_read(
    world: World, text: bytes, code: str, number: int, flags: int
) -> None:
    """What is wrong with a request fails its write with the errno, and the next read says what it was: in the
    mailbox for separate opens, on the same descriptor for a private exchange."""
    for _, path in await world.each(Class.DEVICE):
        with about(path):
            opened = await world.open(path, flags)
            with refused(number):
                for start in range(0, len(text), REQUEST_MAX):
                    await opened.write(text[start : start + REQUEST_MAX])
            data = await read_on(opened) if flags == os.O_RDWR else await world.read(path)
            await opened.close()
            error = failure(data)
            assert (error["code"], error["syscall"], error["device"]) == (code, "Write", f"/{path}")
            assert len(error["message"]) > 10


async def test_a_request_that_ends_wrong_is_told_to_its_reader(world: World) -> None:
    """JSON that stops in the middle and text that is no UTF-8 cannot be known for wrong in write: the reader
    is told what it was."""
    for _, path in await world.each(Class.DEVICE):
        with about(path):
            await world.write(path, '{"intent": "x"')
            assert failure(await world.read(path))["code"] == "INVALID"
            await world.write(path, b"abc\xff\n")
            error = failure(await world.read(path))
            assert (error["code"], "3" in error["message"]) == ("INVALID", True)


# --- requests ---


@holds("dev/llm/<provider>")
async def test_text_is_a_request_that_ends_with_its_file(world: World) -> None:
    """`echo TEXT > device; cat device` gives the answer to the text, as one line of JSON."""
    await world.write(LLM, "say good morning\n")
    answer = await world.json(LLM)
    assert answer["content"] == "good morning"
    assert answer["tokens_used"] == answer["input_tokens"] + answer["output_tokens"] > 0
    assert set(answer) >= {"content", "tokens_used", "cost_usd", "model", "tool_calls", "stop_reason"}


async def test_a_reader_ends_a_text_that_its_writer_has_not_closed(world: World) -> None:
    """Text is also ended by the first reader, since close may come late."""
    opened = await world.open(LLM, os.O_WRONLY | os.O_TRUNC)
    await opened.write(b"say ")
    await opened.write(b"hello\n")
    assert (await world.json(LLM))["content"] == "hello"
    await opened.close()
    assert (await world.json(LLM))["content"] == "hello"


async def test_an_object_starts_where_it_is_whole(world: World) -> None:
    """JSON needs no close: it may come in pieces, and it starts with its last brace."""
    mark = world.new_path()
    opened = await world.open(SHELL, os.O_WRONLY | os.O_TRUNC)
    for piece in (' \n{"comm', f'and": "touch {mark}', '"', "}"):
        assert await opened.write(piece.encode()) == len(piece)
    await world.until(mark.exists, "the command has run")
    await opened.close()


@holds("dev/shell")
async def test_the_form_of_a_request_is_the_form_of_its_answer(world: World) -> None:
    """The shell answers text with text and JSON with JSON."""
    assert await world.ask(SHELL, "echo out; echo err >&2; exit 3") == b"out\nerr\n[exit 3]\n"
    answer = json.loads(await world.ask(SHELL, {"command": "echo out; echo err >&2; exit 3"}))
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)
    assert (answer["timed_out"], answer["truncated"]) == (False, False)


@holds("dev/glob", "dev/grep", "dev/edit")
async def test_file_tools_answer_about_the_host(world: World) -> None:
    """glob finds names, grep finds lines, and edit is refused where people may not write."""
    found = json.loads(await world.ask("dev/glob", {"pattern": "**/inner.txt"}))
    assert [match["path"] for match in found["matches"]] == ["sub/inner.txt"]
    found = json.loads(await world.ask("dev/grep", {"pattern": "^inner", "path": "sub"}))
    assert "inner hello" in json.dumps(found)
    name = str(world.host / "hello.txt")
    opened = await world.open("dev/edit", os.O_RDWR)
    with contextlib.suppress(OSError):
        await opened.write(json.dumps({"path": name, "old_string": "hello", "new_string": "bye"}).encode())
    assert failure(await read_on(opened))["code"] in ("READ_ONLY", "PERMISSION", "NOT_PERMITTED", "INVALID")
    await opened.close()
    assert (world.host / "hello.txt").read_text() == "hello\n"


# --- mailboxes ---


async def test_an_answer_stays_until_the_next_request(world: World) -> None:
    """Reading takes nothing: an answer is there for every reader until another request replaces it."""
    await world.write(LLM, '{"intent": "say one"}')
    assert [(await world.json(LLM))["content"] for _ in range(3)] == ["one"] * 3
    await world.write(LLM, '{"intent": "say two"}')
    assert (await world.json(LLM))["content"] == "two"


async def test_append_is_a_request_like_any_other(world: World) -> None:
    """`>>` behaves as `>`: the request it brings replaces the answer before it."""
    await world.write(LLM, "say one\n")
    await world.read(LLM)
    await world.write(LLM, "say two\n", how=os.O_APPEND)
    assert (await world.json(LLM))["content"] == "two"


async def test_an_empty_write_clears_the_mailbox(world: World) -> None:
    """`: > device` forgets the answer: the next reader sees the description."""
    await world.write(LLM, "say one\n")
    assert "content" in await world.json(LLM)
    opened = await world.open(LLM, os.O_WRONLY | os.O_TRUNC)
    await opened.close()
    assert "content" not in await world.json(LLM)
    assert "does" in await world.json(LLM)


async def test_two_sessions_never_see_each_others_answers(world: World) -> None:
    """The mailbox belongs to the login session of the program that opens."""
    other = await world.tree.other()
    await world.write(LLM, "say mine\n")
    theirs = World(other, world.host)
    assert "does" in await theirs.json(LLM)
    await write(other, LLM, b"say theirs\n")
    assert (await theirs.json(LLM))["content"] == "theirs"
    assert (await world.json(LLM))["content"] == "mine"


async def test_a_writer_keeps_its_mailbox_whatever_others_open(world: World) -> None:
    """Between a writer's open and its first write any number of other sessions may come; the answer still
    goes where its session finds it."""
    opened = await world.open(SHELL, os.O_WRONLY | os.O_TRUNC)
    other = World(await world.tree.other(), world.host)
    assert "does" in await other.json(SHELL)
    await opened.write(b"echo mine\n")
    await opened.close()
    assert await world.read(SHELL) == b"mine\n"


async def test_devices_have_mailboxes_of_their_own(world: World) -> None:
    """A request to one device leaves the answer of another alone."""
    await world.write(LLM, "say one\n")
    await world.write(SHELL, "echo two\n")
    assert (await world.json(LLM))["content"] == "one"
    assert await world.read(SHELL) == b"two\n"


async def test_an_answer_can_be_read_from_every_offset(world: World) -> None:
    """Who goes back in an answer finds it again, and past its end is EOF."""
    await world.write(SHELL, "seq 1 1000\n")
    opened = await world.open(SHELL, os.O_RDONLY)
    whole = await read_on(opened, 100)
    assert whole == "".join(f"{n}\n" for n in range(1, 1001)).encode()
    for start in (0, 17, len(whole) - 3, len(whole), len(whole) + 9):
        await opened.seek(start)
        assert await read_on(opened) == whole[start:]
    await opened.close()


async def test_a_reader_waits_for_the_answer(world: World) -> None:
    """Until an answer comes poll is silent and O_NONBLOCK gets EAGAIN; a reader that waits gets it whole."""
    gate = world.new_path()
    await world.write(SHELL, f"echo first; while [ ! -e {gate} ]; do sleep 0.01; done; echo second\n")
    waiting = await world.open(SHELL, os.O_RDONLY)
    assert await waiting.read() == b"first\n"
    assert await waiting.ready() == set()
    hasty = await world.open(SHELL, os.O_RDONLY | os.O_NONBLOCK)
    assert await hasty.read() == b"first\n"
    with refused(errno.EAGAIN):
        await hasty.read()
    async with trio.open_nursery() as nursery:
        answers: list[bytes] = []

        async def wait() -> None:
            answers.append(await read_on(waiting))

        nursery.start_soon(wait)
        gate.touch()
    assert answers == [b"second\n"]
    await hasty.until("read")
    assert await hasty.read() == b"second\n"
    assert await hasty.read() == b""
    await waiting.close()
    await hasty.close()


async def test_a_stream_of_words_is_the_answer(world: World) -> None:
    """With "stream": true a model answers with its text instead of an object."""
    assert await world.ask(LLM, {"intent": "stream: one two", "stream": True}) == b"one two\n"


# --- private exchanges ---


async def test_a_private_exchange_is_a_conversation(world: World) -> None:
    """One open for reading and writing: request, answer, request, answer; no mailbox knows of it."""
    opened = await world.open(SHELL, os.O_RDWR)
    for word in ("one", "two", "a longer one", "4"):
        await opened.write(f"echo {word}\n".encode())
        assert await read_on(opened, 3) == f"{word}\n".encode()
    await opened.write(json.dumps({"command": "echo five"}).encode())
    assert json.loads(await read_on(opened))["stdout"] == "five\n"
    await opened.close()
    assert "does" in await world.json(SHELL)


async def test_the_answer_of_an_exchange_can_be_read_again(world: World) -> None:
    """An answer begins where its request ended; seeking to the start of the file begins it anew."""
    opened = await world.open(SHELL, os.O_RDWR)
    await opened.write(b"echo hello\n")
    assert await opened.read(3) == b"hel"
    await opened.seek(0)
    assert await read_on(opened) == b"hello\n"
    await opened.close()


async def test_an_exchange_takes_one_request_at_a_time(world: World) -> None:
    """While an answer is on its way another request is EAGAIN, poll allows no write, and nothing is lost."""
    gate = world.new_path()
    opened = await world.open(SHELL, os.O_RDWR)
    assert await opened.ready() == {"read", "write"}
    await opened.write(
        json.dumps({"command": f"while [ ! -e {gate} ]; do sleep 0.01; done; echo x"}).encode()
    )
    assert await opened.ready() == set()
    with refused(errno.EAGAIN):
        await opened.write(b"echo y\n")
    gate.touch()
    await opened.until("read")
    assert json.loads(await read_on(opened))["stdout"] == "x\n"
    assert await opened.ready() == {"read", "write"}
    await opened.close()


async def test_a_refused_text_is_told_by_the_read_that_ended_it(world: World) -> None:
    """Where reading ends the text, the read gets the errno, and the next one says why."""
    opened = await world.open(SHELL, os.O_RDWR)
    await opened.write(b"echo \xff\n")
    with refused(errno.EINVAL):
        await opened.read()
    assert failure(await read_on(opened))["code"] == "INVALID"
    await opened.close()


# --- cancelling ---


def pids_in(mark: pathlib.Path) -> list[int]:
    """The pids that a command has left in a file so far."""
    text = mark.read_text() if mark.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def started(world: World, mark: pathlib.Path) -> int:
    """The pid of a command that leaves it in a file."""
    await world.until(lambda: bool(pids_in(mark)), "the command runs")
    return pids_in(mark)[0]


def forever(mark: pathlib.Path) -> bytes:
    return json.dumps({"command": f"echo $$ > {mark}; exec sleep 500"}).encode()


async def gone(world: World, pid: int) -> None:
    await world.until(lambda: not state_of(pid), "the program of the cancelled request has ended")


async def test_closing_a_private_exchange_cancels_it(world: World) -> None:
    """Nobody can read the answer any more, so its work ends, programs of the host included."""
    mark = world.new_path()
    opened = await world.open(SHELL, os.O_RDWR)
    await opened.write(forever(mark))
    pid = await started(world, mark)
    await opened.close()
    await gone(world, pid)


@pytest.mark.parametrize("clear", [b"", b"echo next\n"])
async def test_clearing_a_mailbox_cancels_what_runs(world: World, clear: bytes) -> None:
    """`: >` and a new request end the work of the one before; its readers are told CANCELED."""
    mark = world.new_path()
    await world.write(SHELL, forever(mark))
    pid = await started(world, mark)
    reader = await world.open(SHELL, os.O_RDONLY)
    opened = await world.open(SHELL, os.O_WRONLY | os.O_TRUNC)
    if clear:
        await opened.write(clear)
    await opened.close()
    await gone(world, pid)
    assert failure(await read_on(reader))["code"] == "CANCELED"
    await reader.close()
    if clear:
        assert await world.read(SHELL) == b"next\n"


async def test_a_reader_that_leaves_cancels_nothing(world: World) -> None:
    """An answer in a mailbox is made whether or not anybody waits for it now."""
    gate = world.new_path()
    await world.write(SHELL, f"while [ ! -e {gate} ]; do sleep 0.01; done; echo through\n")
    reader = await world.open(SHELL, os.O_RDONLY)
    await reader.close()
    gate.touch()
    assert await world.read(SHELL) == b"through\n"


# --- failures ---


@pytest.mark.parametrize("code", ["TIMEOUT", "SERVICE_UNAVAILABLE", "DRIVER", "PERMISSION"])
async def test_a_failed_job_answers_with_its_reason(world: World, code: str) -> None:
    """Once a request was taken its failure is the answer: code, message, call and device, then EOF."""
    error = failure(await world.ask(LLM, {"intent": f"fail: {code}"}))
    assert (error["code"], error["device"]) == (code, f"/{LLM}")
    await world.write(LLM, f"fail: {code}\n")
    assert failure(await world.read(LLM))["code"] == code


@pytest.mark.parametrize("bad", [b'{"command": 5}', b'{"command"; "x"}'])
async def test_a_refusal_can_be_read_later_in_a_conversation(world: World, bad: bytes) -> None:
    """A write that failed moved nothing: the reason is where the reader stands, whatever was read before."""
    opened = await world.open(SHELL, os.O_RDWR)
    await opened.write(b"echo hello\n")
    assert await read_on(opened) == b"hello\n"
    with refused(errno.EINVAL):
        await opened.write(bad)
    assert failure(await read_on(opened))["syscall"] == "Write"
    await opened.write(b"echo again\n")
    assert await read_on(opened) == b"again\n"
    await opened.close()


async def test_after_a_failure_the_device_serves_the_next_request(world: World) -> None:
    """A refusal and a failure end nothing but themselves, on the same open too."""
    opened = await world.open(LLM, os.O_RDWR)
    with refused(errno.EINVAL):
        await opened.write(b'{"intent": 5}')
    assert failure(await read_on(opened))["code"] == "INVALID"
    await opened.write(b'{"intent": "fail: DRIVER"}')
    assert failure(await read_on(opened))["code"] == "DRIVER"
    await opened.write(b'{"intent": "say better"}')
    assert json.loads(await read_on(opened))["content"] == "better"
    await opened.close()


# --- keys ---


async def test_a_key_runs_a_command_once(world: World) -> None:
    """Requests with the same key, one after the other and through any kind of open, are one; the same key
    with another content is refused."""
    mark = world.new_path()
    request = {"command": f"echo once >> {mark}; echo done", "idempotency_key": mark.name}
    answers = [await world.ask(SHELL, request) for _ in range(2)]
    await world.write(SHELL, json.dumps(request))
    answers.append(await world.read(SHELL))
    assert answers == [answers[0]] * 3
    assert (json.loads(answers[0])["stdout"], mark.read_text()) == ("done\n", "once\n")
    with refused(errno.EINVAL):
        await world.write(SHELL, json.dumps({**request, "command": "echo other"}))
    assert "another content" in failure(await world.read(SHELL))["message"]


async def test_a_key_is_joined_while_its_request_runs(world: World) -> None:
    """Who asks with the key of a request that runs waits for that one, from any session of the same user."""
    gate, mark = world.new_path(), world.new_path()
    command = f"echo once >> {mark}; while [ ! -e {gate} ]; do sleep 0.01; done; echo $$"
    request = json.dumps({"command": command, "idempotency_key": mark.name})
    await world.write(SHELL, request)
    await world.until(mark.exists, "the command runs")
    other = World(await world.tree.other(), world.host)
    await other.write(SHELL, request)
    await world.write(SHELL, request)
    gate.touch()
    answers = [await one.read(SHELL) for one in (world, other)]
    assert answers[0] == answers[1]
    assert (json.loads(answers[0])["exit_code"], mark.read_text()) == (0, "once\n")


async def test_a_model_is_asked_once_for_a_key(world: World) -> None:
    """Models take keys, too, and so does a failure have one."""
    for number, intent in enumerate(("say hello", "fail: DRIVER")):
        request = {"intent": intent, "idempotency_key": f"{world.new_path().name}-{number}"}
        answers = [await world.ask(LLM, request) for _ in range(2)]
        assert answers[0] == answers[1]


# --- the log ---


@holds("sys/query")
async def test_the_log_can_be_asked(world: World) -> None:
    """SQL finds what a process did, in its order; what is not reading is refused."""
    pid = await world.done("say hello")
    sql = "SELECT event, whole(data) ->> 'intent' AS intent FROM events WHERE pid = ? ORDER BY seq"
    rows = [
        json.loads(row) for row in (await world.ask("sys/query", {"sql": sql, "args": [pid]})).splitlines()
    ]
    events = [row["event"] for row in rows]
    assert rows[0] == {"event": "spawn", "intent": "say hello"}
    assert [event for event in events if event in ("exit", "reap")] == ["exit", "reap"]
    assert await world.ask("sys/query", "SELECT 1 AS one") == b'{"one":1}\n'
    error = failure(await world.ask("sys/query", "DELETE FROM events"))
    assert (error["code"], error["device"]) == ("PERMISSION", "/sys/query")


async def test_the_log_is_for_those_who_were_granted_it(world: World) -> None:
    """A process sees the log only when it was granted it, since it tells of everybody."""
    pid = await world.spawn("wait 500 s")
    path = f"proc/{pid}/root/sys/query"
    assert "query" not in await world.tree.names(f"proc/{pid}/root/sys")
    with refused(errno.EACCES):
        await world.open(path, os.O_RDWR)
    await world.write(f"proc/{pid}/ctl", "grant /sys/query\n")
    assert await world.ask(path, "SELECT 1 AS one") == b'{"one":1}\n'


# --- providers ---


@holds("sys/check")
async def test_a_provider_can_be_asked_whether_it_would_answer(world: World) -> None:
    """The answer is its line of sys/providers with the models it has; unknown names are refused."""
    for request in ("script", {"provider": "script"}):
        (row,) = [json.loads(line) for line in (await world.ask("sys/check", request)).splitlines()]
        (shown,) = [row for row in await world.lines("sys/providers") if row["name"] == "script"]
        assert set(row) - set(shown) == {"models"}
        assert (row["name"], row["driver"], row["available"]) == ("script", "script", True)
        assert row["latency_ms"] >= 0
        assert isinstance(row["models"], list)
    with refused(errno.ENOENT):
        await world.ask("sys/check", "nobody")
    with refused(errno.EINVAL):
        await world.ask("sys/check", {"name": "script"})


async def test_asking_providers_is_for_those_who_were_granted_it(world: World) -> None:
    """A process sees the device only when it was granted it, as it does all of sys/ that acts."""
    pid = await world.spawn("wait 500 s")
    path = f"proc/{pid}/root/sys/check"
    assert "check" not in await world.tree.names(f"proc/{pid}/root/sys")
    with refused(errno.EACCES):
        await world.open(path, os.O_RDWR)
    await world.write(f"proc/{pid}/ctl", "grant /sys/check\n")
    assert json.loads(await world.ask(path, "script"))["available"] is True
