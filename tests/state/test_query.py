"""sys/query: what SQL may ask of the log, what it may not, and what holds it within its bounds."""

import base64
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from rnixfs import limits, queryjob
from rnixfs.device import Body
from rnixfs.drivers.query import Query
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import Answer
from rnixfs.state.sqlite import SqliteStore
from rnixfs.types import Caller

ME = Caller(1000, 1000)
SECONDS = 60.0  # for anything that must happen
LONG = "a long text that the log keeps once " * 10
ENDLESS = "WITH RECURSIVE x(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x)"
DOUBLING = (
    "WITH a0 AS (SELECT 1 AS x), "
    + ", ".join(f"a{n} AS (SELECT p.x FROM a{n - 1} AS p, a{n - 1} AS q)" for n in range(1, 41))
    + " SELECT * FROM a40"
)


def refused(code: Code, *words: str) -> "pytest.RaisesExc[SyscallError]":
    """Expects a SyscallError of a code, with these words in its reason."""
    return pytest.RaisesExc(
        SyscallError,
        check=lambda error: error.code is code and all(word in error.reason for word in words),
    )


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[SqliteStore]:
    """A log whose path means something in a URI."""
    made = SqliteStore(tmp_path / "a ?b#c%41")
    yield made
    made.close()


@pytest.fixture
def path(store: SqliteStore) -> str:
    """The file of a log with three events, the writer still at work."""
    store.append_event("spawn", 1, {"uuid": "u1", "ppid": 0, "intent": LONG, "steps": [{"#": "x"}]})
    store.append_event("spawn", 2, {"uuid": "u2", "ppid": 1, "intent": "short", "n": 7})
    store.append_event("exit", 2, {"code": 0, "reason": LONG})
    return str(store.path)


def rows(path: str, sql: str, *arguments: queryjob.Scalar) -> list[dict[str, Any]]:
    """The rows of a statement."""
    return [json.loads(line) for line in queryjob.query(path, sql, arguments).splitlines()]


# --- rows ---


def test_a_row_is_an_object(path: str) -> None:
    """Each row is a line of JSON with the names of the columns, in the order of the statement."""
    answer = queryjob.query(path, "SELECT seq, pid, event FROM events ORDER BY seq DESC LIMIT 2", ())
    assert answer == b'{"seq":3,"pid":2,"event":"exit"}\n{"seq":2,"pid":2,"event":"spawn"}\n'
    assert queryjob.query(path, "SELECT seq FROM events WHERE pid = 99", ()) == b""


def test_values_of_every_kind(path: str) -> None:
    """Numbers, text and NULL are those of JSON, bytes are base64, and a repeated name gets a number."""
    found = rows(path, "SELECT 1 AS a, 1.5 AS b, 'ä' AS c, NULL AS d, x'00ff' AS e, 2 AS a, 3 AS a")
    assert found == [{"a": 1, "b": 1.5, "c": "ä", "d": None, "e": {"base64": "AP8="}, "a:1": 2, "a:2": 3}]


def test_arguments_take_the_places_of_question_marks(path: str) -> None:
    """Values are given beside the statement; their number must be right."""
    assert rows(path, "SELECT ? AS a, ? AS b", "it's", None) == [{"a": "it's", "b": None}]
    for arguments in ((), (1, 2)):
        with refused(Code.INVALID, "uses 1"):
            rows(path, "SELECT ?", *arguments)


def test_the_data_of_an_event_can_be_made_whole(path: str) -> None:
    """The log keeps long texts once; `whole` puts them back, and `text` gives one by its number."""
    found = rows(path, "SELECT data, whole(data) AS whole FROM events WHERE seq IN (1, 3) ORDER BY seq")
    assert LONG not in found[0]["data"]
    assert json.loads(found[0]["whole"]) == {
        "uuid": "u1",
        "ppid": 0,
        "intent": LONG,
        "steps": [{"#": "x"}],
    }
    assert json.loads(found[1]["whole"]) == {"code": 0, "reason": LONG}
    assert rows(path, "SELECT text(id) AS t, text(id + 1000) AS none, text(NULL) AS n FROM content") == [
        {"t": LONG, "none": None, "n": None}
    ]
    assert rows(path, "SELECT whole(data) ->> 'n' AS n FROM events WHERE seq = 2") == [{"n": 7}]
    with refused(Code.INVALID, "whole() takes the data of an event"):
        rows(path, "SELECT whole(event) FROM events")


def test_what_is_no_utf_8_can_be_seen(store: SqliteStore, path: str) -> None:
    """Halves of surrogate pairs, which the log keeps, are shown as signs of replacement."""
    store.append_event("say", 1, {"text": "a\ud800b"})
    (found,) = rows(path, "SELECT data, whole(data) AS whole FROM events WHERE event = 'say'")
    assert json.loads(found["whole"]) == {"text": "a���b"}
    data = found["data"]
    assert "a" in (
        base64.b64decode(data["base64"]).decode("utf-8", "replace") if isinstance(data, dict) else data
    )


def test_what_was_just_written_is_there(store: SqliteStore, path: str) -> None:
    """An event that was acknowledged is seen by the next query, while the writer goes on."""
    for number in range(4, 24):
        store.append_event("say", 1, {"n": number})
        assert rows(path, "SELECT max(seq) AS last FROM events") == [{"last": number}]


def test_functions_and_tables_that_serve(path: str) -> None:
    """Aggregates, windows, dates, JSON and the description of tables may be used."""
    for sql in (
        "SELECT count(*), total(ts), group_concat(DISTINCT event) FROM events",
        "SELECT row_number() OVER (ORDER BY seq) FROM events",
        "SELECT date(0, 'unixepoch'), upper('a'), printf('%d', 1), length(x'00')",
        "SELECT json_extract(data, '$.uuid'), data ->> 'n' FROM events WHERE json_valid(data)",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT key FROM json_tree('{\"a\": 1}')",
        "SELECT name FROM pragma_table_info('events')",
        "PRAGMA table_info(events)",
        "SELECT name, sql FROM sqlite_schema",
        "EXPLAIN QUERY PLAN SELECT * FROM events WHERE pid = 1",
        "VALUES (1)",
        "WITH private AS (SELECT 1 AS x) SELECT x FROM private",
        f"{ENDLESS} SELECT a FROM x LIMIT 3;  -- the end",
    ):
        assert rows(path, sql), sql


# --- what is not allowed ---


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("INSERT INTO events (seq) VALUES (99)", "insert rows"),
        ("UPDATE events SET pid = 0", "change rows"),
        ("DELETE FROM events", "delete rows"),
        ("WITH x AS (SELECT 1) DELETE FROM events", "delete rows"),
        ("DROP TABLE events", "change the schema"),
        ("CREATE TABLE t (a)", "change the schema"),
        ("CREATE TEMP TABLE t (a)", ""),
        ("CREATE VIEW v AS SELECT 1", "change the schema"),
        ("ALTER TABLE events RENAME TO e", "change the schema"),
        ("ATTACH '/tmp/other.db' AS other", "attach another file"),
        ("VACUUM INTO '/tmp/copy.db'", "attach another file"),
        ("DETACH main", "detach a file"),
        ("BEGIN", "transaction"),
        ("SAVEPOINT s", "savepoint"),
        ("PRAGMA query_only = OFF", "PRAGMA query_only"),
        ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode"),
        ("PRAGMA writable_schema = ON", "PRAGMA writable_schema"),
        ("SELECT * FROM pragma_database_list", ""),
        ("SELECT * FROM pragma_function_list", ""),
        ("SELECT load_extension('x')", "load_extension()"),
        ("SELECT fts3_tokenizer('simple')", "fts3_tokenizer()"),
        ("REINDEX", ""),
        ("ANALYZE", ""),
    ],
)
def test_a_query_only_reads(path: str, sql: str, words: str) -> None:
    """Everything but reading is refused before it happens, with what it was."""
    with refused(Code.PERMISSION, "a query may only read", words):
        rows(path, sql)
    assert rows(path, "SELECT count(*) AS n, max(pid) AS p FROM events") == [{"n": 3, "p": 2}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM private_keys",
        "SELECT rowid FROM private_keys",
        "SELECT count(*) FROM Private_Keys",
        "SELECT 1 FROM events, private_keys",
        "SELECT (SELECT secret FROM main.private_keys) FROM events",
        "SELECT seq FROM events WHERE EXISTS (SELECT 1 FROM private_keys WHERE secret LIKE 's%')",
        'WITH x AS (SELECT * FROM "private_keys") SELECT * FROM x',
        "SELECT seq FROM events WHERE seq IN private_keys",
    ],
)
def test_private_tables_are_nobodys_business(path: str, sql: str) -> None:
    """A table whose name begins with `private` cannot be read, in no way."""
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE private_keys (secret)")
        other.execute("INSERT INTO private_keys VALUES ('s3cret')")
    with refused(Code.PERMISSION, "the table"):
        rows(path, sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", ["syntax error"]),
        ("SELECT", ["incomplete input"]),
        ("", ["no statement"]),
        ("-- nothing", ["no statement"]),
        ("SELECT 1; SELECT 2", ["one statement"]),
        ("SELECT 1; DELETE FROM events", ["one statement"]),
        ("SELECT * FROM event", ["no such table: event", "there are", "events(seq, ts, event, pid"]),
        ("SELECT evnt FROM events", ["no such column: evnt", "processes(pid, uuid"]),
        ("SELECT no_such(1)", ["no such function: no_such"]),
        ("SELECT 'a\0b'", ["null character"]),
        (f"SELECT {'(' * 20_000}1{')' * 20_000}", []),
    ],
)
def test_what_is_wrong_is_told_in_sqlites_words(path: str, sql: str, words: list[str]) -> None:
    """A wrong statement is told with SQLite's own reason; an unknown name with the names that there are."""
    with refused(Code.INVALID, *words):
        rows(path, sql)


def test_a_log_that_cannot_be_read_is_no_fault_of_the_query(tmp_path: pathlib.Path) -> None:
    """A file that is gone or garbage is a failure of the driver, with its path."""
    with refused(Code.DRIVER, "nothing.db"):
        rows(str(tmp_path / "nothing.db"), "SELECT 1")
    (tmp_path / "garbage.db").write_bytes(b"garbage" * 1000)
    with refused(Code.DRIVER, "garbage.db"):
        rows(str(tmp_path / "garbage.db"), "SELECT 1")
    assert not (tmp_path / "nothing.db").exists()


# --- bounds ---


def test_rows_are_bounded(path: str) -> None:
    """As many rows as the limit are given; one more is an error that says what to do, and no rows."""
    most = limits.QUERY_ROWS
    assert len(rows(path, f"{ENDLESS} SELECT a FROM x LIMIT ?", most)) == most
    with refused(Code.TOO_LARGE, str(most), "LIMIT"):
        rows(path, f"{ENDLESS} SELECT a FROM x LIMIT ?", most + 1)


def test_bytes_are_bounded(path: str) -> None:
    """Neither one value nor all rows together may have more bytes than the limit."""
    most = limits.QUERY_BYTES_MAX
    with refused(Code.TOO_LARGE, "too big"):
        rows(path, "SELECT zeroblob(?)", most + 1)
    with refused(Code.TOO_LARGE, str(most), "LIMIT"):
        rows(path, f"{ENDLESS} SELECT zeroblob(1000000) FROM x LIMIT 100")


@pytest.mark.parametrize(
    "sql", [f"{ENDLESS} SELECT count(*) FROM x", f"{ENDLESS} SELECT group_concat(a) FROM x"]
)
def test_time_is_bounded(path: str, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """A statement without an end is ended when its processor time is used up."""
    monkeypatch.setattr(limits, "QUERY_SECONDS", 0.05)
    with refused(Code.TIMEOUT, "0.05 s of processor time"):
        rows(path, sql)


# --- the device ---


async def ask(device: Query, body: Body) -> bytes:
    """Ask, and wait for the whole answer."""
    answer = Answer("/sys/query", 0)
    with trio.fail_after(SECONDS):
        await answer.run(device.accept(ME, body))
    return bytes(answer.data)


async def error_of(device: Query, body: Body) -> dict[str, str]:
    """What an answer says went wrong."""
    error: dict[str, str] = json.loads(await ask(device, body))["error"]
    return error


@pytest.fixture
def device(path: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    """The device over that log, on a machine that may be busy."""
    monkeypatch.setattr(limits, "QUERY_WALL_SECONDS", SECONDS)
    return Query(lambda: path)


async def test_text_and_objects_are_requests(device: Query) -> None:
    """Text is the statement; an object has its arguments, too."""
    assert await ask(device, "SELECT count(*) AS n FROM events\n") == b'{"n":3}\n'
    request: Body = {"sql": "SELECT ? AS a, ? AS b, ? AS c, ? AS d", "args": ["ä\n", 1.5, None, True]}
    assert await ask(device, request) == '{"a":"ä\\n","b":1.5,"c":null,"d":1}\n'.encode()
    assert await ask(device, {"sql": "SELECT 1 AS a", "args": None}) == b'{"a":1}\n'
    assert await ask(device, "SELECT 1 WHERE 0") == b""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  \n", "one statement"),
        ({}, '"sql" is missing'),
        ({"sql": 5}, '"sql" must be one statement'),
        ({"sql": " "}, '"sql" must be one statement'),
        ({"sql": "SELECT 1", "limit": 5}, "unknown field 'limit'"),
        ({"sql": "SELECT ?", "args": {"a": 1}}, '"args" must be a list'),
        ({"sql": "SELECT ?", "args": "x"}, '"args" must be a list'),
        ({"sql": "SELECT ?", "args": [1, [2]]}, '"args"[2] must be text'),
        ({"sql": "SELECT ?", "args": [1 << 63]}, '"args"[1] is too large'),
        ({"sql": "SELECT 1", "args": [0] * (limits.QUERY_ARGUMENTS_MAX + 1)}, "at most"),
        (["SELECT 1"], "as text, or a JSON object"),
    ],
)
def test_a_request_of_the_wrong_form_is_refused_at_once(device: Query, body: Body, words: str) -> None:
    """The writer is told the field and what would be right."""
    with refused(Code.INVALID, words):
        device.accept(ME, body)


async def test_what_is_wrong_with_the_sql_is_in_the_answer(device: Query) -> None:
    """The statement is looked at when it runs."""
    assert (await error_of(device, "SELECT * FROM nothing"))["code"] == "INVALID"
    assert (await error_of(device, "DELETE FROM events"))["code"] == "PERMISSION"


async def test_a_query_that_takes_too_long_is_ended(device: Query) -> None:
    """What the limits say holds in the process that runs the query."""
    error = await error_of(device, f"{ENDLESS} SELECT count(*) FROM x")
    assert (error["code"], "1 s of processor time" in error["message"]) == ("TIMEOUT", True)


async def test_a_query_that_explodes_harms_nobody(device: Query) -> None:
    """Forty names that double each time would take all memory while the statement is prepared."""
    error = await error_of(device, DOUBLING)
    assert error["code"] in ("RESOURCE_EXHAUSTED", "TIMEOUT")
    assert await ask(device, "SELECT 1 AS a") == b'{"a":1}\n'


async def test_without_a_file_it_says_so() -> None:
    """A log in memory cannot be asked: the description says why, and so does the refusal."""
    device = Query(lambda: "")
    described = device.describe(ME)
    assert (described.available, "memory" in described.reason) == (False, True)
    with refused(Code.SERVICE_UNAVAILABLE, described.reason):
        device.accept(ME, "SELECT 1")


def test_it_describes_itself(device: Query, path: str) -> None:
    """The example of the description is a query that works."""
    described = device.describe(ME)
    assert (described.available, described.reason) == (True, "")
    found = rows(path, described.example["sql"])
    assert json.loads(found[-1]["born"])["intent"] == LONG


# --- the process that runs it ---


def children() -> list[int]:
    """The processes of this one that run queries, however they fare."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = folder.joinpath("cmdline").read_bytes()
            state = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"rnixfs.queryjob" in words and int(state[1]) == os.getpid() and state[0] not in "ZX":
            found.append(int(folder.name))
    return found


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {what}"
        await trio.sleep(0.01)


@pytest.fixture
def held(tmp_path: pathlib.Path, device: Query) -> Query:
    """A device whose queries never begin: who opens a pipe for reading waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    return Query(lambda: str(tmp_path / "pipe"))


async def begin(held: Query, nursery: trio.Nursery) -> tuple[Answer, int]:
    """A query that waits, and its process."""
    answer = Answer("/sys/query", 0)
    nursery.start_soon(answer.run, held.accept(ME, "SELECT 1"))
    await until(children, "the process is there")
    (child,) = children()
    return answer, child


async def test_cancelling_kills_the_query(held: Query, nursery: trio.Nursery) -> None:
    """When nobody wants the answer any more its process is killed, whatever it does."""
    answer, _ = await begin(held, nursery)
    answer.cancel()
    await until(lambda: answer.ended, "the answer has ended")
    assert b"CANCELED" in answer.data
    await until(lambda: not children(), "the process is gone")


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGXCPU, "TIMEOUT", "processor time"), (signal.SIGKILL, "DRIVER", "status -9")],
)
async def test_a_process_that_the_host_ends_is_told(
    held: Query, nursery: trio.Nursery, number: signal.Signals, code: str, words: str
) -> None:
    """The host's own limit on processor time is a time limit, too; any other end is a failure."""
    answer, child = await begin(held, nursery)
    os.kill(child, number)
    await until(lambda: answer.ended, "the answer has ended")
    error = json.loads(answer.data)["error"]
    assert (error["code"], words in error["message"]) == (code, True)


async def test_an_answer_comes_in_time_or_not_at_all(held: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is held up longer than the limit ends, and its process with it."""
    monkeypatch.setattr(limits, "QUERY_WALL_SECONDS", 0.2)
    error = await error_of(held, "SELECT 1")
    assert (error["code"], "0.2 s" in error["message"]) == ("TIMEOUT", True)
    await until(lambda: not children(), "the process is gone")


async def test_queries_wait_for_each_other(device: Query) -> None:
    """More queries than may run at once are all answered."""
    answers = {}

    async def one(number: int) -> None:
        answers[number] = await ask(device, f"SELECT {number} AS a")

    async with trio.open_nursery() as nursery:
        for number in range(3 * limits.QUERIES_MAX):
            nursery.start_soon(one, number)
    assert answers == {n: b'{"a":%d}\n' % n for n in range(3 * limits.QUERIES_MAX)}
