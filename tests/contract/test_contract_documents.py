"""The laws of documents, journals and control files, and of what is refused everywhere.

A law is tried on every file that the table names, so its tests loop; the report of a failure names the file.
"""

import errno
import os
import re

import pytest

from tests.contract.world import World, about, refused
from tests.filetable import Class
from tests.tree import read_on

LONGEST = 255
FIXED = (errno.EPERM, errno.EACCES)


async def settled(world: World, path: str) -> tuple[int, bytes]:
    """Size and content of a file at a moment at which neither changes."""
    while True:
        before, content = (await world.tree.stat(path)).size, await world.read(path)
        if (await world.tree.stat(path)).size == before:
            return before, content


async def test_size_is_true(world: World) -> None:
    """stat tells as many bytes as are read."""
    for _, path in await world.each(Class.DOCUMENT, Class.JOURNAL, Class.CONTROL):
        with about(path):
            size, content = await settled(world, path)
            assert size == len(content)


async def test_any_part_can_be_read(world: World) -> None:
    """One open gives the same bytes from every offset and in pieces of any size, and EOF past its end."""
    for _, path in await world.each(Class.DOCUMENT, Class.CONTROL):
        with about(path):
            opened = await world.open(path, os.O_RDONLY)
            content = await read_on(opened, 97)
            for start, count in ((0, 5), (3, 7), (len(content) // 2, 11), (0, len(content)), (1, 1 << 20)):
                await opened.seek(start)
                assert await opened.read(count) == content[start : start + count]
            for start in (len(content), len(content) + 1000):
                await opened.seek(start)
                assert await opened.read() == b""
            await opened.close()


async def test_what_is_only_shown_cannot_be_opened_for_writing(world: World) -> None:
    """Documents, journals and streams refuse every open for writing with EACCES."""
    for _, path in await world.each(Class.DOCUMENT, Class.JOURNAL, Class.STREAM):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            with about(path), refused(errno.EACCES):
                await world.open(path, flags)


async def test_what_is_only_shown_never_waits(world: World) -> None:
    """poll says at once that a document or journal can be read, and O_NONBLOCK reads all of it."""
    for _, path in await world.each(Class.DOCUMENT, Class.JOURNAL):
        with about(path):
            opened = await world.open(path, os.O_RDONLY | os.O_NONBLOCK)
            assert "read" in await opened.ready()
            await read_on(opened)
            await opened.close()


async def test_a_name_can_be_neither_removed_nor_moved_nor_changed(world: World) -> None:
    """rm, mv and chmod of what the system made fail with EPERM or EACCES (EROFS for the host's files, which
    could be changed if people had leave), and it is still there."""
    for row, path in await world.each(*(kind for kind in Class if kind is not Class.FOLDER)):
        numbers = (errno.EROFS,) if row.kind is Class.HOST else FIXED
        with about(path):
            with refused(*numbers):
                await world.tree.change("unlink", path)
            with refused(*numbers):
                await world.tree.change("rename", path, f"{path}-moved")
            if row.kind is not Class.LINK:
                with refused(*numbers):
                    await world.tree.change("chmod", path, 0o600)
            assert (await world.tree.stat(path)).kind in ("file", "link")


async def test_a_folder_knows_its_names_and_no_others(world: World) -> None:
    """A folder lists each name once and knows all it lists; another name is ENOENT, one of more than 255
    bytes ENAMETOOLONG, and one that is no UTF-8 ENOENT."""
    for _, path in await world.each(Class.FOLDER):
        with about(path):
            names = await world.tree.names(path)
            assert len(names) == len(set(names))
            for name in names:
                await world.tree.stat(f"{path}/{name}")
            for name in ("nothing-of-this-name", "n" * LONGEST, "ä" * (LONGEST // 2), "caf\udce9", "0"):
                with refused(errno.ENOENT):
                    await world.tree.stat(f"{path}/{name}")
                with refused(errno.ENOENT):
                    await world.open(f"{path}/{name}", os.O_RDONLY)
            for name in ("n" * (LONGEST + 1), "ä" * (LONGEST // 2 + 1)):
                with refused(errno.ENAMETOOLONG):
                    await world.tree.stat(f"{path}/{name}")


async def test_nothing_can_be_made_in_a_folder_of_the_system(world: World) -> None:
    """mkdir (but for groups), a new file and a link fail with EPERM or EACCES and leave nothing."""
    for _, path in await world.each(Class.FOLDER):
        with about(path):
            if path != "proc/groups":
                with refused(*FIXED):
                    await world.tree.change("mkdir", f"{path}/made")
            with refused(*FIXED):
                await world.open(f"{path}/made", os.O_WRONLY | os.O_CREAT)
            with refused(*FIXED):
                await world.tree.change("symlink", f"{path}/made", "elsewhere")
            assert "made" not in await world.tree.names(path)


async def test_a_file_is_no_folder_and_a_folder_no_file(world: World) -> None:
    """Below a file there is nothing (ENOTDIR), and a folder cannot be opened for writing (EISDIR)."""
    for row, path in await world.each(*Class):
        with about(path):
            if row.kind is Class.FOLDER:
                with refused(errno.EISDIR):
                    await world.open(path, os.O_WRONLY)
            elif row.kind is not Class.LINK:
                with refused(errno.ENOTDIR):
                    await world.tree.stat(f"{path}/below")
                with refused(errno.ENOTDIR):
                    await world.tree.names(path)


async def test_a_document_is_as_it_was_when_it_was_opened(world: World) -> None:
    """An open document does not change: who reads it in pieces gets one state of it."""
    pid = await world.live()
    opened = await world.open(f"proc/{pid}/status", os.O_RDONLY)
    first = await opened.read(20)
    await world.write(f"proc/{pid}/ctl", "pause\n")
    assert b'"paused":false' in first + await opened.read()
    assert (await world.status(pid))["paused"] is True
    await opened.close()


@pytest.mark.parametrize("name", ["log", "trace.jsonl", "steps.jsonl"])
async def test_a_journal_grows_under_its_reader(world: World, name: str) -> None:
    """A reader at a journal's end gets EOF, and reads on there when something was added, as tail -f does."""
    pid, gate = await world.gated()
    path = f"proc/{pid}/{name}"
    opened = await world.open(path, os.O_RDONLY)
    first = await read_on(opened)
    assert await opened.read() == b""
    gate.touch()
    await world.read(f"proc/{pid}/wait")
    second = await read_on(opened)
    assert second.endswith(b"\n")
    assert first + second == await world.read(path)
    assert (await world.tree.stat(path)).size == len(first + second)
    await opened.seek(3)
    assert await opened.read(10) == (first + second)[3:13]
    await opened.close()


# --- control files ---


async def test_a_control_file_lists_its_commands(world: World) -> None:
    """Reading gives one line a command: how it is written, and what it does."""
    for _, path in await world.each(Class.CONTROL):
        with about(path):
            lines = (await world.read(path)).decode().splitlines()
            assert lines
            for line in lines:
                assert re.fullmatch(r"[a-z]+( [A-Z]+| \[[A-Z]+\])* {2,}\S.*", line), line
            assert len({line.split()[0] for line in lines}) == len(lines)


@pytest.mark.parametrize("text", [b"nonsense\n", b"signal\n", b"loglevel LOUD\n", b"\xff\xfe\n"])
async def test_a_control_file_refuses_what_it_does_not_know(world: World, text: bytes) -> None:
    """An unknown command, a wrong argument and bytes that are no text are EINVAL from write."""
    for _, path in await world.each(Class.CONTROL):
        with about(path):
            opened = await world.open(path, os.O_WRONLY)
            with refused(errno.EINVAL):
                await opened.write(text)
            await opened.close()


@pytest.mark.parametrize("how", [os.O_TRUNC, os.O_APPEND])
async def test_a_control_file_takes_one_command_a_line(world: World, how: int) -> None:
    """Several lines of one write are done in their order, empty ones mean nothing, `>>` is like `>`."""
    pid = await world.live()
    await world.write(f"proc/{pid}/ctl", "\npause\n\nbudget 77\n", how=how)
    status = await world.status(pid)
    assert (status["paused"], status["context_budget"]) == (True, 77)
    await world.write(f"proc/{pid}/ctl", "resume", how=how)
    assert (await world.status(pid))["paused"] is False


async def test_the_lines_before_a_wrong_one_are_done(world: World) -> None:
    """A wrong line ends its batch: what stood before it is done, what stands after it is not."""
    pid = await world.live()
    opened = await world.open(f"proc/{pid}/ctl", os.O_WRONLY)
    with refused(errno.EINVAL):
        await opened.write(b"budget 5\nnonsense\nbudget 6\n")
    await opened.close()
    assert (await world.status(pid))["context_budget"] == 5


async def test_the_log_can_be_made_smaller(world: World) -> None:
    """`gc` is taken by sys/ctl, and what is to be kept stays."""
    pid = await world.done()
    await world.write("sys/ctl", "gc\n")
    assert (await world.status(pid))["state"] == "dead"
    assert (await world.json("sys/stats"))["log_events"] > 0
    with refused(errno.EINVAL):
        await world.write("sys/ctl", "gc now\n")
