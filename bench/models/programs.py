"""Programs that make calls: through the mount, and of commands as they are. Each prints figures as JSON."""

import dataclasses
import importlib.util
import json
import pathlib
import shutil
import sys

from bench import servers
from bench.servers import BenchError, Program

# Asks a device again and again, each time through an open of its own, as a program or a shell does.
_ASK = """
import json, os, sys, time
path, request, count = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
warm_up, right = int(sys.argv[4]), sys.argv[5]
taken = []
for _ in range(warm_up + count):
    since = time.perf_counter()
    device = os.open(path, os.O_RDWR)
    os.write(device, request)
    answer = b""
    while part := os.read(device, 1 << 20):
        answer += part
    os.close(device)
    value = json.loads(answer)
    taken.append(time.perf_counter() - since)
    if right not in value.get("content", ""):
        sys.exit(answer.decode())
print(json.dumps(taken[warm_up:]))
"""

# Starts a command again and again, its input a prompt.
_START = """
import json, subprocess, sys, time
count, prompt, argv = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]
taken = []
for _ in range(1 + count):
    since = time.perf_counter()
    done = subprocess.run(argv, input=prompt, stdout=subprocess.PIPE, check=True)
    json.loads(done.stdout.splitlines()[-1])
    taken.append(time.perf_counter() - since)
print(json.dumps(taken[1:]))
"""

# Many at once, each in a thread of its own that waits in read(2), as that many programs would.
_CROWD = """
import json, os, sys, threading, time
path, request, count = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
threading.stack_size(128 << 10)
first, sizes = [], set()
def one():
    since, size, told = time.perf_counter(), 0, False
    device = os.open(path, os.O_RDWR)
    os.write(device, request)
    while part := os.read(device, 1 << 16):
        if not told:
            told = True
            first.append(time.perf_counter() - since)
        size += len(part)
    os.close(device)
    sizes.add(size - 1)  # without the line feed at the end
threads = [threading.Thread(target=one) for _ in range(count)]
began = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
total = time.perf_counter() - began
print(json.dumps({"first": first, "total": total, "cpu": time.process_time(), "sizes": sorted(sizes)}))
"""


@dataclasses.dataclass(frozen=True)
class Streams:
    """Many streams at once.

    Args:
        first: seconds to the first piece of each, in order.
        total: seconds until all had ended.
        cpu: seconds of processor time that the program took which asked.
    """

    first: list[float]
    total: float
    cpu: float

    def at(self, share: float) -> float:
        """Seconds within which a share of the streams had its first piece."""
        return self.first[min(len(self.first) - 1, int(share * len(self.first)))]


def through_mount(device: pathlib.Path, request: object, count: int, right: str, warm_up: int) -> list[float]:
    """Seconds of each call of a model through its file.

    Args:
        device: the file.
        request: what is written.
        count: how many calls.
        right: what each answer must hold.
        warm_up: calls before that, which are not counted.
    """
    argv = [sys.executable, "-I", "-S", "-c", _ASK, device, json.dumps(request), count, warm_up, right]
    return _seconds(servers.ask(*argv))


def bare_http(url: str, body: object, count: int) -> list[float]:
    """Seconds of each call of the same server by the HTTP library alone."""
    return _seconds(
        servers.ask(sys.executable, "-m", "bench.models.bare", "calls", url, json.dumps(body), count)
    )


def bare_command(argv: list[str], env: dict[str, str], prompt: str, count: int) -> list[float]:
    """Seconds of each run of a command by itself."""
    program = [sys.executable, "-I", "-S", "-c", _START, str(count), prompt, *argv]
    return _seconds(Program(program, env).output())


def crowd_through_mount(device: pathlib.Path, request: object, count: int, cores: set[int]) -> Streams:
    """Many streams at once through the file of a model."""
    argv = [sys.executable, "-I", "-S", "-c", _CROWD, str(device), json.dumps(request), str(count)]
    return _streams(argv, cores)


def crowd_bare(url: str, body: object, count: int, cores: set[int]) -> Streams:
    """Many streams at once by the HTTP library alone."""
    argv = [sys.executable, "-m", "bench.models.bare", "crowd", url, json.dumps(body), str(count)]
    return _streams(argv, cores)


def _streams(argv: list[str], cores: set[int]) -> Streams:
    taskset = ["taskset", "-c", ",".join(map(str, sorted(cores)))]
    found = json.loads(Program([*taskset, *argv]).output())
    if len(found["sizes"]) != 1:
        raise BenchError(f"streams of different lengths: {found['sizes']} characters")
    return Streams(sorted(found["first"]), found["total"], found["cpu"])


def _seconds(printed: str) -> list[float]:
    return [float(one) for one in json.loads(printed)]


def claude() -> str:
    """The path of the `claude` command, "" where there is none."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    places = list(spec.submodule_search_locations or []) if spec else []
    bundled = [
        path for path in (pathlib.Path(place, "_bundled", "claude") for place in places) if path.is_file()
    ]
    return str(bundled[0]) if bundled else shutil.which("claude") or ""
