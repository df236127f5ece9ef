"""The opens that every folder is made of: documents, journals, streams, control files, wake-ups."""

import os

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.node import (
    Broadcast,
    Change,
    CommandRow,
    Control,
    Dir,
    Document,
    File,
    FixedDir,
    Journal,
    JournalNode,
    Node,
    Pulse,
    StreamFile,
    StreamNode,
    TableDir,
    fixed_link,
    refuse_reading,
    refuse_writing,
    wants_read,
    wants_write,
)
from rnixfs.types import Kind, Ready
from tests.kernel.kernellab import PERSON, text

ALL = 1 << 20


# --- what refuses unless a class says otherwise ---


def test_a_plain_file_can_neither_be_read_nor_written():
    """Refusal is the default, with the errno of a wrong access mode."""
    for call in (lambda: File().read(1, 0), lambda: File().write(b"x", 0)):
        with pytest.raises(SyscallError) as caught:
            call()
        assert caught.value.code is Code.BAD_FD


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: folder.create("x", 0o644, PERSON, os.O_CREAT),
        lambda folder: folder.mkdir("x", 0o755, PERSON),
        lambda folder: folder.unlink("x", PERSON),
        lambda folder: folder.rmdir("x", PERSON),
        lambda folder: folder.rename("x", folder, "y", PERSON, 0),
        lambda folder: folder.symlink("x", "y", PERSON),
        lambda folder: folder.link("x", text("y", b""), PERSON),
        lambda folder: folder.setattr(PERSON, Change(mode=0o777)),
        lambda folder: folder.setattr(PERSON, Change(owner=(0, -1))),
    ],
)
def test_folders_of_the_system_cannot_be_changed(call):
    """`mkdir`, `rm`, `mv`, `ln` and `chmod` where they mean nothing are EPERM, never EIO."""
    with pytest.raises(SyscallError) as caught:
        call(FixedDir("d", {"x": text("x", b"")}))
    assert caught.value.code is Code.NOT_PERMITTED


def test_touch_and_truncate_are_agreed_to():
    """`touch f` and `> f` ask for times and sizes, which change nothing here."""
    text("x", b"1").setattr(PERSON, Change(size=0, times=(1, None)))
    Dir().setattr(PERSON, Change(times=(1, 2)))


@pytest.mark.parametrize(
    ("flags", "reads", "writes"),
    [
        (os.O_RDONLY, True, False),
        (os.O_WRONLY, False, True),
        (os.O_RDWR, True, True),
        (os.O_WRONLY | os.O_TRUNC | os.O_APPEND, False, True),
        (os.O_RDONLY | os.O_NONBLOCK, True, False),
    ],
)
def test_what_flags_ask_for(flags, reads, writes):
    """The access mode is a number, not a set of bits."""
    assert (wants_read(flags), wants_write(flags)) == (reads, writes)
    for refuse, asked in ((refuse_writing, writes), (refuse_reading, reads)):
        if asked:
            with pytest.raises(SyscallError) as caught:
                refuse(flags, "this")
            assert caught.value.code is Code.PERMISSION
        else:
            refuse(flags, "this")


# --- folders and links ---


def test_a_fixed_folder_lists_its_children_and_hides_the_others():
    """What is hidden can be entered and is never listed."""
    seen, hidden = text("seen", b""), text("hidden", b"")
    folder = FixedDir("d", {"seen": seen}, {".live": hidden})
    assert list(folder.entries(PERSON)) == [("seen", seen)]
    assert folder.lookup(".live", PERSON) is hidden
    with pytest.raises(SyscallError) as caught:
        folder.lookup("absent", PERSON)
    assert caught.value.code is Code.NOT_FOUND


def test_a_table_folder_leaves_out_what_is_gone():
    """A name that vanishes between listing and finding is no entry and no error."""
    folder = TableDir(
        "t", lambda name, _c: text(name, b"") if name != "gone" else None, lambda _c: ["a", "gone"]
    )
    assert [name for name, _ in folder.entries(PERSON)] == ["a"]
    with pytest.raises(SyscallError) as caught:
        folder.lookup("gone", PERSON)
    assert caught.value.code is Code.NOT_FOUND


def test_nodes_are_values():
    """Two nodes of the same thing are equal and hash alike, whoever made them; others differ."""
    assert text("x", b"1") == text("x", b"2")
    assert hash(text("x", b"1")) == hash(text("x", b"2"))
    assert text("x", b"") != text("y", b"")
    assert FixedDir("x") == FixedDir("x", {"a": text("a", b"")})
    assert fixed_link("x", "a") != fixed_link("y", "a")


def test_a_link_has_the_size_of_its_target():
    """As lstat shows it; in bytes."""
    link = fixed_link("l", "übér")
    assert (link.stat().kind, link.stat().size, link.target(PERSON)) == (Kind.LINK, 6, "übér")


# --- documents ---


def test_a_document_is_a_snapshot_with_its_true_size():
    """An open shows the bytes of that moment to its end, and stat those of now."""
    versions = [b"one", b"second"]
    node = Document("d", lambda: versions[0], lambda: 42)
    opened = node.open(PERSON, os.O_RDONLY)
    assert (node.stat().size, node.stat().mtime_ns) == (3, 42)
    versions.pop(0)
    assert opened.read(ALL, 0) == b"one"
    assert node.stat().size == 6
    assert node.open(PERSON, os.O_RDONLY).read(ALL, 0) == b"second"


@given(st.binary(max_size=40), st.integers(0, 50), st.integers(0, 50))
def test_reads_of_a_document_are_slices(data, offset, size):
    """Any offset and size, beyond the end too."""
    assert (
        Document("d", lambda: data).open(PERSON, os.O_RDONLY).read(size, offset)
        == data[offset : offset + size]
    )


@pytest.mark.parametrize(
    "node",
    [
        text("d", b""),
        JournalNode("j", Journal()),
        StreamNode("s", lambda _c: Broadcast().join()),
    ],
)
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_what_is_shown_cannot_be_written(node, flags):
    """Documents, journals and streams refuse to be opened for writing with EACCES."""
    with pytest.raises(SyscallError) as caught:
        node.open(PERSON, flags)
    assert caught.value.code is Code.PERMISSION


# --- journals ---


def test_a_journal_is_read_from_its_start_and_goes_on():
    """End of file where it ends now; what is appended later is read from there, as `tail -f` does."""
    journal = Journal()
    node = JournalNode("j", journal)
    opened = node.open(PERSON, os.O_RDONLY)
    assert opened.read(ALL, 0) == b""
    journal.append(b"one\n", 10)
    journal.append(b"two\n", 20)
    assert opened.read(ALL, 0) == b"one\ntwo\n"
    assert opened.read(2, 3) == b"\nt"
    assert opened.read(ALL, 8) == b""
    journal.append(b"three\n", 30)
    assert opened.read(ALL, 8) == b"three\n"
    assert (node.stat().size, node.stat().mtime_ns) == (14, 30)
    assert opened.poll() is Ready.READ


def read_whole(file: File, size: int) -> bytes:
    """All of a file, in pieces of one size."""
    data = b""
    while piece := file.read(size, len(data)):
        data += piece
    return data


@given(
    st.lists(st.binary(max_size=8).map(lambda one: one.hex().encode() + b"\n")),
    st.integers(0, 60),
    st.integers(1, 9),
)
def test_a_full_journal_says_how_many_records_it_lost(records, limit, size):
    """The kept records are the first ones, whole; the count of the others is exact; stat and read agree."""
    journal = Journal(limit)
    for record in records:
        journal.append(record, 1)
    data = read_whole(JournalNode("j", journal).open(PERSON, os.O_RDONLY), size)
    kept = len(records) - journal.lost
    expected = b"".join(records[:kept])
    assert len(expected) <= limit
    if journal.lost:
        assert len(expected) + len(records[kept]) > limit
        assert msgspec.json.decode(data[len(expected) :]) == {"dropped": len(records) - kept}
    assert data.startswith(expected)
    assert len(journal) == len(data) == JournalNode("j", journal).stat().size


async def test_a_journal_wakes_who_waits_for_it(nursery, autojump_clock):
    """Poll handles and tasks hear of an append."""
    journal = Journal()
    heard: list[str] = []

    async def wait() -> None:
        await journal.pulse.wait()
        heard.append("task")

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    journal.pulse.once("key", lambda: heard.append("poll"))
    journal.append(b"x\n", 1)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(heard) == ["poll", "task"]


# --- waking ---


def test_a_poll_handle_hears_once_and_only_the_last_of_a_key():
    """A later call with the same key takes the place of the first, and a wake-up is told once."""
    heard: list[int] = []
    pulse = Pulse()
    pulse.once("a", lambda: heard.append(1))
    pulse.once("a", lambda: heard.append(2))
    pulse.once("b", lambda: heard.append(3))
    pulse.forget("b")
    pulse.forget("never there")
    pulse.fire()
    pulse.fire()
    assert heard == [2]


def test_a_poll_handle_may_register_again_while_it_is_called():
    """It then hears of the next wake-up, not of this one again."""
    heard: list[int] = []
    pulse = Pulse()

    def again() -> None:
        heard.append(1)
        pulse.once("a", again)

    pulse.once("a", again)
    pulse.fire()
    assert heard == [1]
    pulse.fire()
    assert heard == [1, 1]


async def test_waiting_ends_at_readiness_not_at_a_wake_up(nursery, autojump_clock):
    """A wake-up without anything to read makes nobody return."""
    reader = StreamFile(lambda _r: None)
    woken = trio.Event()

    async def wait() -> None:
        await reader.wait(Ready.READ)
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    reader.pulse.fire()
    await trio.testing.wait_all_tasks_blocked()
    assert not woken.is_set()
    reader.push(b"x\n")
    await woken.wait()


async def test_a_hang_up_ends_any_wait(autojump_clock):
    """Whoever waits to write into what has ended is told."""
    reader = StreamFile(lambda _r: None)
    reader.end()
    with trio.fail_after(10):
        await reader.wait(Ready.WRITE)


# --- streams ---


def drain(reader: StreamFile, size: int = ALL) -> bytes:
    """What can be read without waiting."""
    data = b""
    while True:
        try:
            piece = reader.read(size, 0)
        except trio.WouldBlock:
            return data
        if not piece:
            return data
        data += piece


def check_numbers(data: bytes, first: int = 0) -> int:
    """Check that numbers come in order, with gaps as counted; returns the next number."""
    expected = first
    for line in data.splitlines():
        value = msgspec.json.decode(line)
        if isinstance(value, dict):
            assert value["dropped"] > 0
            expected += value["dropped"]
        else:
            assert value == expected
            expected += 1
    return expected


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(1, 12)), max_size=30),
    st.integers(1, 6),
)
def test_a_slow_reader_knows_exactly_what_it_missed(turns, limit):
    """Whatever the order of records and reads: every record is read, or counted where it would have stood."""
    reader = StreamFile(lambda _r: None, limit)
    pushed, data = 0, b""
    for pushes, reads, size in turns:
        for _ in range(pushes):
            reader.push(b"%d\n" % pushed)
            pushed += 1
        for _ in range(reads):
            try:
                data += reader.read(size, 0)
            except trio.WouldBlock:
                assert pushed == 0 or data.endswith(b"\n")
    reader.end()
    assert check_numbers(data + drain(reader)) == pushed
    assert reader.read(ALL, 0) == b""


def test_a_reader_within_the_limit_misses_nothing():
    """The limit itself still fits; one more costs the oldest."""
    reader = StreamFile(lambda _r: None, 3)
    for number in range(3):
        reader.push(b"%d\n" % number)
    assert drain(reader) == b"0\n1\n2\n"
    for number in range(4):
        reader.push(b"%d\n" % number)
    assert drain(reader) == b'{"dropped":1}\n1\n2\n3\n'


def test_a_read_gives_whole_records_where_they_fit():
    """As many as fit, and a piece only of one that never fits."""
    reader = StreamFile(lambda _r: None)
    for record in (b"aaa\n", b"bbb\n", b"cccccccccc\n"):
        reader.push(record)
    assert reader.read(9, 0) == b"aaa\nbbb\n"
    assert reader.read(9, 0) == b"ccccccccc"
    assert reader.read(9, 0) == b"c\n"


def test_a_stream_has_no_positions():
    """A read gives what comes next, whatever offset the host kernel sends."""
    reader = StreamFile(lambda _r: None)
    reader.push(b"a\n")
    reader.push(b"b\n")
    assert reader.read(2, 500) == b"a\n"
    assert reader.read(2, 0) == b"b\n"


def test_what_came_before_is_read_first():
    """History put before a live reader is read whole before the first live record."""
    reader = StreamFile(lambda _r: None)
    reader.push(b"live\n")
    reader.prepend(b"old\n")
    assert reader.poll() is Ready.READ
    assert drain(reader, 3) == b"old\nlive\n"


def test_the_end_comes_after_the_last_record():
    """Records that were pushed before the end are read; later ones are nobody's."""
    reader = StreamFile(lambda _r: None)
    with pytest.raises(trio.WouldBlock):
        reader.read(ALL, 0)
    assert reader.poll() is Ready.NONE
    reader.push(b"last\n")
    reader.end()
    reader.push(b"too late\n")
    assert reader.poll() == Ready.READ | Ready.HANGUP
    assert reader.read(ALL, 0) == b"last\n"
    assert reader.read(ALL, 0) == b""


def test_a_broadcast_gives_each_record_to_who_is_there():
    """Readers see what comes after they joined, each all of it, until they close."""
    source = Broadcast()
    assert not source
    first = source.join()
    source.push(b"1\n")
    second = source.join()
    source.push(b"2\n")
    assert (drain(first), drain(second)) == (b"1\n2\n", b"2\n")
    first.close()
    source.push(b"3\n")
    assert drain(second) == b"3\n"
    second.close()
    assert not source


def test_a_broadcast_that_ended_stays_ended():
    """Readers of before and after get the end of the file."""
    source = Broadcast()
    before = source.join()
    source.push(b"1\n")
    source.end()
    source.push(b"2\n")
    after = source.join()
    assert drain(before) == b"1\n"
    assert (before.read(ALL, 0), after.read(ALL, 0)) == (b"", b"")
    assert not source
    before.close()


def test_a_stream_shows_no_size():
    """Its size cannot be known, and 0 makes tools read instead of trust."""
    assert StreamNode("s", lambda _c: Broadcast().join()).stat().size == 0


# --- control files ---


def control(done: list[tuple[str, str]]) -> Control:
    def run(name: str):
        return lambda _caller, rest: done.append((name, rest))

    def fail(_caller, _rest):
        raise invalid("it always fails")

    rows = {
        "go": CommandRow("go", "go on", run("go")),
        "say": CommandRow("say TEXT", "say it", run("say")),
        "fail": CommandRow("fail", "fail", fail),
    }
    return Control("c", rows)


def test_a_control_file_lists_its_commands():
    """One line each, aligned, with the true size in stat."""
    node = control([])
    listing = node.open(PERSON, os.O_RDONLY).read(ALL, 0)
    assert listing == b"go        go on\nsay TEXT  say it\nfail      fail\n"
    assert node.stat().size == len(listing)


def test_lines_are_done_in_order():
    """One command a line, in any case, with the rest of the line as it stands; empty lines are nothing."""
    done: list[tuple[str, str]] = []
    data = b"GO\n\n  say  two  words \nsay \xc3\xbc"
    assert control(done).open(PERSON, os.O_WRONLY).write(data, 0) == len(data)
    assert done == [("go", ""), ("say", "two  words"), ("say", "ü")]


def test_a_batch_stops_at_what_fails():
    """What came before is done, what follows is not."""
    done: list[tuple[str, str]] = []
    with pytest.raises(SyscallError, match="always fails"):
        control(done).open(PERSON, os.O_WRONLY).write(b"go\nfail\ngo\n", 0)
    assert done == [("go", "")]


@pytest.mark.parametrize(("data", "said"), [(b"jump\n", "go, say, fail"), (b"\xff\n", "byte 0")])
def test_what_is_no_command_is_refused(data, said):
    """An unknown word is answered with the words there are."""
    with pytest.raises(SyscallError, match=said) as caught:
        control([]).open(PERSON, os.O_WRONLY).write(data, 0)
    assert caught.value.code is Code.INVALID


def test_who_may_not_command_cannot_open_for_writing():
    """The refusal comes at open, and reading stays possible."""

    def refuse(_caller):
        raise SyscallError(Code.PERMISSION, "no")

    node: Node = Control("c", {}, refuse)
    assert node.open(PERSON, os.O_RDONLY).read(ALL, 0) == b""
    for flags in (os.O_WRONLY, os.O_RDWR):
        with pytest.raises(SyscallError):
            node.open(PERSON, flags)
