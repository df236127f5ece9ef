"""Whose program listens on a port of this machine, from the tables that the host's kernel has of sockets."""

import ipaddress
import os
import sys
from collections.abc import Iterable

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"  # TCP_LISTEN, in the column `st`
_PEOPLE = 1000  # the first uid of people, as UID_MIN of login.defs has it


def is_trusted(host: str, port: int) -> bool:
    """Whether what listens there belongs to us or to the system, as a service does, and not to somebody else.

    A model decides what an agent runs, and any user of a machine may listen on a port that is free. Blocking,
    and quick unless there are very many sockets.

    Args:
        host: an IP address of this machine.
        port: the port.
    """
    uids = owners(_lines(), host, port)
    return bool(uids) and all(uid == os.geteuid() or uid < _PEOPLE for uid in uids)


def _lines() -> Iterable[str]:
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as file:
                yield from file
        except FileNotFoundError:
            # A host without IPv6 has no table for it.
            continue


def owners(lines: Iterable[str], host: str, port: int) -> set[int]:
    """The users whose sockets take connections to an address.

    Args:
        lines: those of /proc/net/tcp and tcp6 (see proc(5)).
        host: the IP address that is connected to.
        port: the port.
    """
    wanted, found = ipaddress.ip_address(host), set[int]()
    for line in lines:
        fields = line.split()
        if len(fields) < 8 or fields[3] != _LISTENS:
            continue
        address, _, number = fields[1].partition(":")
        if int(number, 16) == port and _takes(_address(address), wanted):
            found.add(int(fields[7]))
    return found


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> Address:
    # Words of 32 bits, each in the order of bytes of this machine.
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _takes(bound: Address, wanted: Address) -> bool:
    # A socket for every address of IPv6 takes those of IPv4, too, unless it says otherwise.
    return bound == wanted or (bound.is_unspecified and bound.version >= wanted.version)
