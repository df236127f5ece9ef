"""Reading, writing and listing the files of the tree, each within a time."""

import base64
import contextlib
import errno
import os
import stat
from typing import Any, NamedTuple

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, invalid, printable
from rnixfs.gateway.mount import json_of, write_all
from rnixfs.mcpserve.tree import Place, Tree

CHUNK = 1 << 16  # bytes asked for at once
READ_MAX = limits.REQUEST_MAX  # bytes of one answer
ENTRIES_MAX = 2000  # names of one listing
RECHECK_SECONDS = 2.0  # readiness is asked for anew this often, should a wake-up get lost on the way
AGAIN_SECONDS = 0.02  # before the next try of what was ready and was not

_PIPES = "/dev/pipes/"


class Piece(NamedTuple):
    """A part of a file.

    Args:
        data: what was read.
        ended: whether that is the end of it.
        timed_out: whether the time was over before the end, or before enough was read.
    """

    data: bytes
    ended: bool
    timed_out: bool = False


class Source:
    """A file that is read as its content comes.

    Args:
        tree: the tree.
        path: its real path, for messages.
        descriptor: the file, opened with O_NONBLOCK.
    """

    def __init__(self, tree: Tree, path: str, descriptor: int) -> None:
        self._tree = tree
        self._path = path
        self._descriptor = descriptor
        self._data = bytearray()
        self._ended = False

    async def next(self, size: int = CHUNK) -> bytes:
        """What comes next, waiting for it; nothing at the end.

        Raises:
            SyscallError: the file fails.
        """
        while True:
            try:
                return await self._tree.call(os.read, self._descriptor, size)
            except BlockingIOError:
                await self._wait()
            except OSError as error:
                raise self._tree.failure(error, self._path, "Read") from None

    async def _wait(self) -> None:
        with trio.move_on_after(RECHECK_SECONDS):
            await trio.lowlevel.wait_readable(self._descriptor)
        # A device may be ready, and busy all the same: EAGAIN is an answer, too.
        await trio.sleep(AGAIN_SECONDS)

    async def line(self) -> bytes | None:
        """The next line without its newline; None at the end. Whoever is cancelled here loses nothing."""
        while (end := self._data.find(b"\n")) < 0:
            if self._ended:
                rest, self._data = bytes(self._data), bytearray()
                return rest or None
            piece = await self.next()
            self._data += piece
            self._ended = not piece
        found = bytes(self._data[:end])
        del self._data[: end + 1]
        return found

    async def upto(self, length: int, seconds: float) -> Piece:
        """What comes within a time."""
        data = bytearray()
        with trio.move_on_after(seconds) as scope:
            while len(data) < length:
                piece = await self.next(min(CHUNK, length - len(data)))
                if not piece:
                    return Piece(bytes(data), ended=True)
                data += piece
        return Piece(bytes(data), ended=False, timed_out=scope.cancelled_caught)


# --- reading ---


async def read(tree: Tree, name: str, offset: int, length: int, seconds: float) -> tuple[Place, Piece]:
    """Read a part of a file; a device that nothing was asked gives its description.

    Args:
        tree: the tree.
        name: the file.
        offset: the first byte.
        length: how many bytes.
        seconds: how long what waits may be waited for.

    Raises:
        SyscallError: it cannot be read.
    """
    place = await _found(tree, name, "Read")
    if place.is_folder:
        raise SyscallError(
            Code.IS_DIRECTORY, "a folder is listed, not read", syscall="Read", device=place.path
        )
    if place.is_stream and offset:
        raise invalid("a stream has no offset: it begins with what comes next").at(
            syscall="Read", device=place.path
        )
    # What is only read shows the last answer of this session, not what the device is.
    mode = os.O_RDWR if place.is_device else os.O_RDONLY
    async with tree.opened(place.path, mode | os.O_NONBLOCK) as descriptor:
        if place.is_stream or place.is_device:
            source = Source(tree, place.path, descriptor)
            whole = await source.upto(offset + length, seconds)
            return place, whole._replace(data=whole.data[offset:])
        try:
            return place, await tree.call(_pread, descriptor, offset, length)
        except OSError as error:
            raise tree.failure(error, place.path, "Read") from None


async def _found(tree: Tree, name: str, syscall: str) -> Place:
    def look() -> Place:
        place = tree.there(name)
        if not place.is_folder:
            tree.rights.check_read(place.path)
        return place

    try:
        return await tree.call(look)
    except SyscallError as error:
        raise error.at(syscall=syscall, device=name) from None


def _pread(descriptor: int, offset: int, length: int) -> Piece:
    data = bytearray()
    # One byte more, to know whether that is all.
    while len(data) <= length:
        piece = os.pread(descriptor, min(CHUNK, length + 1 - len(data)), offset + len(data))
        if not piece:
            return Piece(bytes(data), ended=True)
        data += piece
    return Piece(bytes(data[:length]), ended=False)


def as_text(piece: Piece) -> tuple[str, str, int]:
    """What was read, as text or base64.

    Returns:
        `utf-8` or `base64`, the text, and how many bytes it stands for: a character that the end of the piece
        cuts is left for the next one.
    """
    data = piece.data
    for cut in range(4 if not piece.ended else 1):
        with contextlib.suppress(UnicodeDecodeError):
            part = data[: len(data) - cut]
            if part or not data:
                return "utf-8", part.decode(), len(part)
    return "base64", base64.b64encode(data).decode(), len(data)


# --- writing ---


async def write(tree: Tree, name: str, data: bytes, seconds: float) -> tuple[Place, Piece | None]:
    """Write a file; a device is asked, and its answer waited for.

    Args:
        tree: the tree.
        name: the file.
        data: what is written, the whole of it.
        seconds: how long the answer may take; then what runs is cancelled.

    Returns:
        What was written, and the answer of a device.

    Raises:
        SyscallError: it cannot be written, or is refused, with the device's own reason.
    """
    if len(data) > limits.REQUEST_MAX:
        # Said here: the host's kernel would split the write, and keep the refusal of a later part to itself.
        reason = f"a write may have {limits.REQUEST_MAX} bytes; this one has {len(data)}"
        raise SyscallError(Code.TOO_LARGE, reason, syscall="Write", device=name)
    place = await _writable(tree, name, data)
    if place.is_host_file:
        await _replace(tree, place, data)
        return place, None
    async with tree.opened(place.path, _flags(place) | os.O_NONBLOCK) as descriptor:
        await _send(tree, place, descriptor, data, seconds)
        if not place.is_device:
            return place, None
        answer = await Source(tree, place.path, descriptor).upto(READ_MAX, seconds)
    if answer.timed_out:
        reason = f"no answer within {seconds:g} s; what was begun is cancelled. Give a longer timeout_s"
        raise SyscallError(Code.TIMEOUT, reason, syscall="Read", device=place.path)
    return place, answer


async def _writable(tree: Tree, name: str, data: bytes) -> Place:
    def look() -> Place:
        place = tree.resolve(name)
        if not place.mode and not place.is_host_file:
            place = tree.there(name)
        if place.is_folder:
            raise SyscallError(Code.IS_DIRECTORY, "a folder is not written", device=place.path)
        tree.rights.check_write(place.path, data)
        if place.mode and not place.mode & 0o222:
            raise denied("this file is only read").at(device=place.path)
        return place

    try:
        return await tree.call(look)
    except SyscallError as error:
        raise error.at(syscall="Write", device=name) from None


def _flags(place: Place) -> int:
    return os.O_RDWR if place.mode & 0o444 else os.O_WRONLY


async def _replace(tree: Tree, place: Place, data: bytes) -> None:
    def write_file() -> None:
        descriptor = tree.open(place.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)

    try:
        await tree.call(write_file)
    except OSError as error:
        raise tree.failure(error, place.path, "Write") from None


async def _send(tree: Tree, place: Place, descriptor: int, data: bytes, seconds: float) -> None:
    try:
        if _PIPES not in place.path:
            await tree.call(write_all, descriptor, data)
            return
        with trio.fail_after(seconds):
            await _pump(tree, descriptor, data)
    except trio.TooSlowError:
        reason = f"the pipe was full for {seconds:g} s; a part may be written"
        raise SyscallError(Code.TIMEOUT, reason, syscall="Write", device=place.path) from None
    except OSError as error:
        raise await tree.call(_refusal, tree, place, descriptor, error) from None


async def _pump(tree: Tree, descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[await tree.call(os.write, descriptor, rest) :]
        except BlockingIOError:
            with trio.move_on_after(RECHECK_SECONDS):
                await trio.lowlevel.wait_writable(descriptor)
            await trio.sleep(AGAIN_SECONDS)


def _refusal(tree: Tree, place: Place, descriptor: int, error: OSError) -> SyscallError:
    """Why a write was refused, which the file says to who reads next; in a thread."""
    with contextlib.suppress(OSError):
        told = told_error(os.read(descriptor, CHUNK), place.path)
        if told is not None:
            return told
    return tree.failure(error, place.path, "Write")


def told_error(answer: bytes, path: str) -> SyscallError | None:
    """The error that an answer tells of; None where it tells of none."""
    error = json_of(answer).get("error") if answer.startswith(b'{"error"') else None
    if not isinstance(error, dict) or "message" not in error:
        return None
    code = str(error.get("code", ""))
    return SyscallError(
        Code(code) if code in Code.__members__ else Code.DRIVER,
        str(error["message"]),
        syscall=str(error.get("syscall") or "Write"),
        device=str(error.get("device") or path),
    )


def encode(value: Any) -> bytes:
    """A value as a request of JSON.

    Raises:
        SyscallError: a text in it is no Unicode.
    """
    try:
        return msgspec.json.encode(value) + b"\n"
    except (UnicodeEncodeError, RecursionError) as error:
        raise invalid(f"the value cannot be passed on: {error}") from None


# --- listing ---


async def listing(tree: Tree, name: str) -> tuple[str, list[dict[str, Any]], bool]:
    """What is in a folder: its real path, a row for each name, and whether those are all.

    Raises:
        SyscallError: it is no folder, or cannot be listed.
    """

    def look() -> tuple[str, list[dict[str, Any]], bool]:
        place = tree.there(name)
        if not place.is_folder:
            raise SyscallError(Code.NOT_DIRECTORY, "only folders are listed", device=place.path)
        try:
            names = sorted(os.listdir(tree.host(place.path)), key=_natural)
        except OSError as error:
            raise tree.failure(error, place.path, "List") from None
        seen = [one for one in names if tree.rights.passes(f"{place.path.rstrip('/')}/{one}")]
        rows = [_row(tree, place.path, one) for one in seen[:ENTRIES_MAX]]
        return place.path, [row for row in rows if row], len(seen) <= ENTRIES_MAX

    try:
        return await tree.call(look)
    except SyscallError as error:
        raise error.at(syscall="List", device=name) from None


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with names that can be shown: those of the host may be no Unicode."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers in their order, then names."""
    return (0, int(name), "") if name.isascii() and name.isdecimal() else (1, 0, name)


def _row(tree: Tree, folder: str, name: str) -> dict[str, Any]:
    path = f"{folder.rstrip('/')}/{name}"
    try:
        found = os.lstat(tree.host(path))
        target = os.readlink(tree.host(path)) if stat.S_ISLNK(found.st_mode) else ""
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES):
            return {}
        raise tree.failure(error, path, "List") from None
    row = {"name": name, "type": _type(Place(path, found.st_mode, found.st_size), target)}
    if target and row["type"] == "link":
        row["target"] = target
    return row | ({"size": found.st_size} if row["type"] in ("document", "file") else {})


def _type(place: Place, target: str) -> str:
    if target:
        stream = target.startswith(".live/") and target != ".live/root"
        return "stream" if stream else "link"
    if place.is_folder:
        return "folder"
    if place.is_host_file:
        return "file"
    if place.is_control:
        return "control"
    return "device" if place.is_device else "document"
