"""The program behind `tests.tree.MountTree`: makes the system calls that its standard input asks for.

Each call runs in a thread of its own, so that one may wait while others go on. Needs the standard library
only, and starts with `python -I -S`.
"""

import json
import os
import select
import stat
import sys
import threading

BITS = {"read": select.POLLIN, "write": select.POLLOUT, "hup": select.POLLHUP}


class Calls:
    """The calls by name; paths are relative to the mount."""

    def __init__(self, mount):
        self.mount = mount

    def _path(self, path):
        return f"{self.mount}/{path}"

    def open(self, path, flags):
        return os.open(self._path(path), flags | os.O_CLOEXEC, 0o644)

    def read(self, handle, size):
        return os.read(handle, size).decode("latin-1")

    def write(self, handle, text):
        return os.write(handle, text.encode("latin-1"))

    def seek(self, handle, offset):
        return os.lseek(handle, offset, os.SEEK_SET)

    def close(self, handle):
        os.close(handle)

    def poll(self, handle, milliseconds, wanted):
        poller = select.poll()
        poller.register(handle, sum(BITS[name] for name in wanted))
        found = dict(poller.poll(milliseconds)).get(handle, 0)
        return [name for name, bit in BITS.items() if found & bit]

    def stat(self, path):
        found = os.lstat(self._path(path))
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        return kinds[stat.S_IFMT(found.st_mode)], found.st_size, stat.S_IMODE(found.st_mode)

    def names(self, path):
        return os.listdir(self._path(path))

    def readlink(self, path):
        return os.readlink(self._path(path))

    def mkdir(self, path):
        os.mkdir(self._path(path))

    def rmdir(self, path):
        os.rmdir(self._path(path))

    def unlink(self, path):
        os.unlink(self._path(path))

    def rename(self, path, to):
        os.rename(self._path(path), self._path(to))

    def symlink(self, path, target):
        os.symlink(target, self._path(path))

    def chmod(self, path, mode):
        os.chmod(self._path(path), mode)

    def truncate(self, path, size):
        os.truncate(self._path(path), size)


def serve(calls, request, lock):
    """Make one call and print what it gave."""
    answer = {"number": request["number"]}
    try:
        answer["result"] = getattr(calls, request["call"])(*request["arguments"])
    except OSError as error:
        answer["errno"] = error.errno
    with lock:
        print(json.dumps(answer), flush=True)


def main():
    """Serve until the input ends."""
    calls, lock = Calls(sys.argv[1]), threading.Lock()
    for line in sys.stdin:
        threading.Thread(target=serve, args=(calls, json.loads(line), lock), daemon=True).start()


main()
