"""What an event holds comes back as it was, however it is kept; long texts are kept once."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log
from tests.state.storelab import numbers, reopen

# Lone surrogates come from names of the host; two that would be a pair must not become one.
TEXTS = st.text(st.characters(codec=None)) | st.text(st.characters(codec="utf-8"), min_size=20, max_size=200)
KEYS = TEXTS | st.sampled_from(["", "#", "##", "###", "# ", "key"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)

LONG = "long text " * 20


@contextlib.contextmanager
def both() -> Iterator[tuple[MemoryStore, SqliteStore]]:
    """A log of each kind, for many short uses in one test."""
    with tempfile.TemporaryDirectory() as folder:
        disk = SqliteStore(pathlib.Path(folder), synchronous="off")
        with contextlib.closing(disk):
            yield MemoryStore(), disk


@given(st.lists(OBJECTS, min_size=1, max_size=4))
@example([{"#": 1}, {"##": {"#": "#"}}, {"a": [{"#": LONG}]}, {"#": LONG}])
@example([{"key": "\ud83d\ude00", "\udcff" * 40: "\ud800" * 40, "\ud83d\ude00": 1}])
@example([{"a": -0.0, "b": 1.5e300, "c": 2**64, "d": -(2**63)}])
def test_any_json_comes_back(values: list[dict[str, Any]]):
    """Whatever JSON is appended, `load` gives it back, type by type, also after a restart."""
    with both() as stores:
        for store in stores:
            for value in values:
                store.append_event("step", 1, value)
            assert [repr(record.data) for record in store.load(1)] == list(map(repr, values))
        again = reopen(stores[1])
        with contextlib.closing(again):
            assert again.notice == ""
            assert [repr(record.data) for record in again.load(1)] == list(map(repr, values))


@given(TEXTS.filter(bool))
def test_any_key_is_found(key: str):
    """A key may be any text that is not empty."""
    with both() as stores:
        for store in stores:
            store.append_event("request", 0, {"key": key})
            store.append_event("request", 0, {"key": key + "more"})
            assert [record.seq for record in store.keyed(key)] == [1]


def nested(depth: int) -> dict[str, Any]:
    """Objects and lists in turn, so many levels of them, with a long text at the bottom."""
    value: Any = LONG
    for level in range(depth):
        value = {"#": value} if level % 2 else [value]
    return {"value": value}


@pytest.mark.parametrize("depth", [1, 50, limits.EVENT_DEPTH_MAX - 1])
def test_deep_data_comes_back(store: Log, depth: int):
    """Data of any depth up to the limit is kept, with what it holds at the bottom."""
    store.append_event("step", 1, nested(depth))
    assert next(iter(store.load(1))).data == nested(depth)


@pytest.mark.parametrize("depth", [limits.EVENT_DEPTH_MAX, 500, 5000])
def test_deeper_data_is_refused(store: Log, depth: int):
    """One level more is refused with a clear error, and leaves nothing behind."""
    with pytest.raises(SyscallError, match="no more than 128 levels") as caught:
        store.append_event("step", 1, nested(depth))
    assert caught.value.code is Code.INVALID
    assert store.append_event("step", 1, {"wide": [[[]]] * 1000}).seq == 1


def test_a_text_is_kept_once(disk: SqliteStore):
    """The same long text in many places of many events of many processes is one row."""
    for pid in (1, 2, 3):
        disk.append_event("step", pid, {"a": LONG, "b": [LONG, {"c": LONG}], "d": LONG + "x"})
    disk.append_event("request", 0, {"text": LONG})
    assert numbers(disk, "SELECT count(*) FROM content") == [2]
    assert next(iter(disk.load(2))).data == {"a": LONG, "b": [LONG, {"c": LONG}], "d": LONG + "x"}


def test_only_long_texts_are_taken_out(disk: SqliteStore):
    """The limit is in bytes of UTF-8, and the names of fields always stay."""
    shorter = {"text": "x" * (limits.CONTENT_MIN - 1), "n" * 200: "é" * (limits.CONTENT_MIN // 2 - 1)}
    disk.append_event("step", 1, shorter)
    assert numbers(disk, "SELECT count(*) FROM content") == [0]
    longer = {"text": "x" * limits.CONTENT_MIN, "more": "é" * (limits.CONTENT_MIN // 2)}
    disk.append_event("step", 1, longer)
    assert numbers(disk, "SELECT count(*) FROM content") == [2]
    assert [record.data for record in disk.load(1)] == [shorter, longer]


def test_what_repeats_is_compressed_and_what_does_not_is_left(disk: SqliteStore):
    """Compression never makes a text larger."""
    disk.append_event(
        "step", 1, {"repeats": "abc" * 1000, "does not": "".join(map(chr, range(33, 127))) + "äöüß"}
    )
    sizes = numbers(disk, "SELECT size - length(data) FROM content ORDER BY size")
    assert sizes[0] == 0
    assert sizes[1] > 2900
