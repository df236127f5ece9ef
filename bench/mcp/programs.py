"""Programs that call a tool through the mount, and where the server is that they call."""

import json
import pathlib
import sys

from bench import servers
from bench.mcp.bare import MESSAGE, WARM_UP
from bench.servers import BenchError

NAME = "bench"
"""The mount of the server."""
SERVER = "mcp-server-everything"
MOUNT_SECONDS = 60

# Calls a device, each time through an open of its own, as a program or a shell does. Several at once are
# threads that wait in read(2), as that many programs would.
_CALL = """
import json, os, sys, threading, time
path, request, right = sys.argv[1], sys.argv[2].encode(), sys.argv[3]
warm_up, count, at_once = map(int, sys.argv[4:])
wrong = []
def call():
    since = time.perf_counter()
    device = os.open(path, os.O_RDWR)
    os.write(device, request)
    answer = b""
    while part := os.read(device, 1 << 20):
        answer += part
    os.close(device)
    value = json.loads(answer)
    taken = time.perf_counter() - since
    if right not in str(value.get("content")):
        wrong.append(answer.decode())
    return taken
def some(number):
    return [call() for _ in range(number)]
some(warm_up)
if at_once == 1:
    taken = some(count)
else:
    threads = [threading.Thread(target=some, args=(count // at_once,)) for _ in range(at_once)]
    since = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [(time.perf_counter() - since) / (count // at_once * at_once)]
sys.exit(wrong[0] if wrong else print(json.dumps(taken)))
"""

_MOUNT = """
echo "mount $2 $3" > "$1/mnt/mcp/ctl"
for ((second = 0; second < $4 * 10; second++)); do
    status=$(cat "$1/mnt/mcp/$2/status")
    case $status in
        *'"state":"connecting"'*) sleep 0.1 ;;
        *) break ;;
    esac
done
echo "$status"
"""


def server() -> str:
    """The path of the server that is called, "" where it is not installed."""
    found = pathlib.Path(sys.prefix, "mcp-servers", "bin", SERVER)
    return str(found) if found.exists() else ""


def mount(mountpoint: pathlib.Path, command: str) -> pathlib.Path:
    """Mount the server; the file of the tool that is called.

    Raises:
        BenchError: the mount failed.
    """
    config = json.dumps({"command": command})
    status = servers.shell(_MOUNT, mountpoint, NAME, config, MOUNT_SECONDS)
    if json.loads(status)["state"] != "ready":
        raise BenchError(f"{SERVER} could not be mounted: {status}")
    return mountpoint / "mnt" / "mcp" / NAME / "tools" / "echo"


def through_mount(device: pathlib.Path, at_once: int, count: int) -> list[float]:
    """Seconds of each call through the tool's file, or of one on average if there are several at once."""
    request = json.dumps({"message": MESSAGE})
    words = [device, request, MESSAGE, WARM_UP, count, at_once]
    return _seconds(servers.ask(sys.executable, "-I", "-S", "-c", _CALL, *words))


def bare(command: str, at_once: int, count: int) -> list[float]:
    """The same by the SDK alone, with a server of its own."""
    return _seconds(servers.ask(sys.executable, "-m", "bench.mcp.bare", command, count, at_once))


def _seconds(printed: str) -> list[float]:
    return [float(one) for one in json.loads(printed)]
