"""Whose program listens on a port: read from the kernel's tables as they are on real hosts."""

import ipaddress
import os
import pathlib
import socket
import sys
from collections.abc import Iterator

import pytest

from rnixfs import portowner
from rnixfs.portowner import is_trusted, owners

# The columns of the tables. Those that are named in braces matter.
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
ROW = "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 27123 1 0"
LOCAL4, ANY4, OTHER4 = "127.0.0.1", "0.0.0.0", "192.168.1.5"
LOCAL6, ANY6, MAPPED = "::1", "::", "::ffff:127.0.0.1"


def words(address: str) -> str:
    """An address as the tables have it: words of 32 bits as numbers of this machine."""
    packed = ipaddress.ip_address(address).packed
    parts = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


def row(address: str, port: int, uid: int, state: str = "0A") -> str:
    """A line of a table."""
    return ROW.format(local=f"{words(address)}:{port:04X}", state=state, uid=uid)


@pytest.mark.parametrize(
    ("address", "host", "found"),
    [
        (LOCAL4, "127.0.0.1", True),
        (ANY4, "127.0.0.1", True),
        (ANY6, "127.0.0.1", True),
        (MAPPED, "127.0.0.1", True),
        (LOCAL6, "::1", True),
        (ANY6, "::1", True),
        (OTHER4, "127.0.0.1", False),
        (LOCAL6, "127.0.0.1", False),
        (LOCAL4, "::1", False),
        (ANY4, "::1", False),
    ],
)
def test_the_sockets_that_take_a_connection_are_those_bound_to_it(
    address: str, host: str, found: bool
) -> None:
    """To the address itself, or to all addresses."""
    assert owners([HEAD, row(address, 11434, 1001)], host, 11434) == ({1001} if found else set())


def test_other_ports_and_connections_do_not_count() -> None:
    """Only sockets that listen, on this port; lines of other forms are passed over."""
    rows = [row(LOCAL4, 11435, 1), row(LOCAL4, 11434, 2, state="01"), row(LOCAL4, 11434, 3), "", "x y"]
    assert owners(rows, "127.0.0.1", 11434) == {3}


def test_all_who_listen_are_told() -> None:
    """Which of them gets a connection is not for us to guess."""
    rows = [row(LOCAL4, 80, 5), row(ANY6, 80, 6)]
    assert owners(rows, "127.0.0.1", 80) == {5, 6}


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    """A real socket of ours that listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()


def test_our_own_socket_is_ours(listening: tuple[str, int]) -> None:
    """Read from the real tables of this host."""
    tables = [pathlib.Path(table) for table in portowner.TABLES]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()]
    assert owners(lines, *listening) == {os.geteuid()}
    assert is_trusted(*listening)


@pytest.mark.parametrize(
    ("uids", "trusted"),
    [
        ([0], True),
        ([999], True),
        ([4242], True),
        ([4243], False),
        ([0, 4243], False),
        ([65534], False),
        ([], False),
    ],
)
def test_our_own_and_the_systems_are_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, uids: list[int], trusted: bool
) -> None:
    """A service runs under an account of the system; where nobody is known to listen, nobody is trusted."""
    table = tmp_path / "tcp"
    table.write_text("\n".join([HEAD, *(row(LOCAL4, 80, uid) for uid in uids)]))
    monkeypatch.setattr(portowner, "TABLES", (str(table), str(tmp_path / "none")))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert is_trusted("127.0.0.1", 80) is trusted
