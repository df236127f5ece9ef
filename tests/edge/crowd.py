"""Many clients of one file, made by fork so that hundreds start in no time.

`crowd.py block FILE COUNT`: each reads once; prints the pids as JSON, and then "ended COUNT".
`crowd.py storm FILE COUNT READS`: each reads until it has READS answers, while signals arrive; prints the
number of wrong answers.
"""

import ctypes
import errno
import json
import os
import random
import signal
import sys

LIBC = ctypes.CDLL(None, use_errno=True)


def block(path: str, count: int) -> None:
    children = [fork_reader(path) for _ in range(count)]
    print(json.dumps(children), flush=True)
    for child in children:
        os.waitpid(child, 0)
    print("ended", count, flush=True)


def fork_reader(path: str) -> int:
    child = os.fork()
    if child == 0:
        os.read(os.open(path, os.O_RDONLY), 100)
        os._exit(0)
    return child


def storm(path: str, count: int, reads: int) -> None:
    """Each attempt is told through a pipe; three of ten are answered by a signal to some client."""
    told, tell = os.pipe()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    children = [fork_stormed(path, reads, told, tell) for _ in range(count)]
    os.close(tell)
    while attempts := os.read(told, 100):
        for _ in attempts:
            if random.random() < 0.3:
                os.kill(random.choice(children), signal.SIGUSR1)
    print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)


def fork_stormed(path: str, reads: int, told: int, tell: int) -> int:
    child = os.fork()
    if child == 0:
        os.close(told)
        os._exit(min(100, wrong_answers(os.open(path, os.O_RDONLY), reads, tell)))
    return child


def wrong_answers(descriptor: int, reads: int, tell: int) -> int:
    """Not os.pread, which would try again by itself where a signal came."""
    buffer = ctypes.create_string_buffer(100)
    right = wrong = 0
    while right + wrong < reads:
        offset = random.randrange(1_000_000)
        os.write(tell, b".")
        got = LIBC.pread(descriptor, buffer, 100, ctypes.c_long(offset))
        if got > 0:
            matches = buffer.raw[:got] == b"%d\n" % offset
            right, wrong = right + matches, wrong + (not matches)
        elif ctypes.get_errno() != errno.EINTR:
            wrong += 1
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "block":
        block(sys.argv[2], int(sys.argv[3]))
    else:
        storm(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
