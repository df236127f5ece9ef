"""Codes and errnos: each leads to the other, and an error says what, where and who."""

import errno
import os

import pytest

from rnixfs.errors import CODE_OF_ERRNO, ERRNO, Code, SyscallError, denied, from_oserror, invalid, not_found

LOSSY = {Code.INTERNAL}  # EIO is read as a driver's failure


@pytest.mark.parametrize("code", Code)
def test_every_code_has_an_errno_and_leads_back(code):
    """No code is without an errno that the host knows, and the errno is read as the code again."""
    number = ERRNO[code]
    assert number in errno.errorcode
    back = CODE_OF_ERRNO[number]
    assert back is code or code in LOSSY
    assert ERRNO[back] == number


def test_only_internal_and_driver_share_an_errno():
    """Two codes with one errno could not be told apart outside."""
    shared = [code for code in Code if CODE_OF_ERRNO[ERRNO[code]] is not code]
    assert set(shared) == LOSSY


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (Code.NOT_FOUND, errno.ENOENT),
        (Code.BAD_FD, errno.EBADF),
        (Code.PERMISSION, errno.EACCES),
        (Code.INVALID, errno.EINVAL),
        (Code.TIMEOUT, errno.ETIMEDOUT),
        (Code.IS_DIRECTORY, errno.EISDIR),
        (Code.BROKEN_PIPE, errno.EPIPE),
        (Code.SERVICE_UNAVAILABLE, errno.EAGAIN),
        (Code.RESOURCE_EXHAUSTED, errno.ENOSPC),
        (Code.BUDGET_EXCEEDED, errno.EDQUOT),
        (Code.INTERRUPTED, errno.EINTR),
        (Code.TOO_LARGE, errno.EFBIG),
        (Code.DRIVER, errno.EIO),
        (Code.INTERNAL, errno.EIO),
    ],
)
def test_the_promised_errnos(code, number):
    """Programs outside rely on these numbers."""
    assert ERRNO[code] == number
    assert SyscallError(code, "x").errno == number


def test_an_error_is_an_oserror_with_its_reason():
    """Whoever catches OSError gets the number and the words."""
    error = SyscallError(Code.PERMISSION, "no")
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror, error.code, error.reason) == (errno.EACCES, "no", "PERMISSION", "no")


def test_the_line_of_an_error():
    """`[CODE] PID n Syscall: device (reason)`, without the parts that are not known."""
    whole = SyscallError(Code.TIMEOUT, "no answer", syscall="Read", device="/dev/shell", pid=7)
    assert str(whole) == "[TIMEOUT] PID 7 Read: /dev/shell (no answer)"
    assert str(SyscallError(Code.INVALID, "odd")) == "[INVALID] (odd)"
    assert str(SyscallError(Code.INVALID, "odd", syscall="Open", device="/x")) == "[INVALID] Open: /x (odd)"


def test_a_place_is_filled_in_once():
    """What the place that raised said stays; only gaps are filled, and the error stays the same object."""
    error = SyscallError(Code.INVALID, "odd", device="/dev/a")
    assert error.at(syscall="Open", device="/dev/b", pid=3) is error
    assert error.at(syscall="Read", pid=4).as_dict() == {
        "code": "INVALID",
        "message": "odd",
        "syscall": "Open",
        "device": "/dev/a",
    }
    assert error.pid == 3


def test_errors_of_the_host_become_ours():
    """Known numbers keep their meaning, unknown ones are a driver's failure, ours pass through."""
    assert from_oserror(FileNotFoundError(errno.ENOENT, "x")).code is Code.NOT_FOUND
    assert from_oserror(OSError(errno.ENOENT, "x")).reason == os.strerror(errno.ENOENT)
    assert from_oserror(OSError(errno.ENOENT, "x"), "because").reason == "because"
    assert from_oserror(OSError(errno.EXFULL, "x")).code is Code.DRIVER
    assert from_oserror(OSError()).code is Code.DRIVER
    own = SyscallError(Code.CANCELED, "x")
    assert from_oserror(own) is own


def test_the_short_forms():
    """Each short form makes the code that its name says."""
    assert invalid("a").code is Code.INVALID
    assert not_found("name").code is Code.NOT_FOUND
    assert "name" in not_found("name").reason
    assert denied("a").code is Code.PERMISSION
