"""The real llama-server with the scripted model, for tests and benchmarks."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.llama import scripted

SECONDS = 60.0  # for anything that must happen; a bound for what hangs, not a measure
ALIAS = "scripted-1"
SLOTS = 4  # answers that it writes at once; more requests wait for each other
WINDOW = 32768  # tokens of one slot
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def command() -> str:
    """The program that the set-up has built; its absence is a failure, here and in CI."""
    beside = pathlib.Path(sys.prefix, "bin", "llama-server")
    found = str(beside) if beside.exists() else shutil.which("llama-server")
    assert found, f"there is no {beside}: run `make dev`, which builds it"
    return found


class LlamaServer:
    """A running llama-server.

    Args:
        folder: where its model and its log lie.
        slots: answers that it writes at once.
        window: tokens that one of them may have, prompt included.
    """

    def __init__(self, folder: pathlib.Path, slots: int = SLOTS, window: int = WINDOW) -> None:
        self.model = folder / "scripted.gguf"
        self.window = window
        scripted.write(self.model)
        self._log = folder / "llama-server.log"
        options = {
            "--model": self.model,
            "--alias": ALIAS,
            "--host": "127.0.0.1",
            "--port": 0,
            "--parallel": slots,
            "--ctx-size": slots * window,
            # Several threads wait for each other by turning in circles, which loaded machines do not bear.
            "--threads": 1,
            "--threads-batch": 1,
            "--threads-http": 32,
            "--cache-ram": 0,
        }
        argv = [
            command(),
            "--jinja",
            "--offline",
            "--metrics",
            *(str(word) for pair in options.items() for word in pair),
        ]
        with self._log.open("wb") as log:
            # It ends with the tests, however these end.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"HOME": str(folder), "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd=folder,
                start_new_session=True,
            )
        try:
            self.port = int(self._await(self._listening))
            self.url = f"http://127.0.0.1:{self.port}"
            self._await(self._healthy)
        except BaseException:
            self.end()
            raise

    def _await(self, look: Any) -> str:
        deadline = time.monotonic() + SECONDS
        while not (found := look()):
            running = self.process.poll() is None and time.monotonic() < deadline
            assert running, f"llama-server did not start:\n{self.log()[-2000:]}"
            time.sleep(0.01)
        return str(found)

    def _listening(self) -> str:
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", self.log())
        return found[1] if found else ""

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.get("/health") == {"status": "ok"})
        return False

    def log(self) -> str:
        """What it wrote so far."""
        return self._log.read_text("utf-8", "replace")

    def get(self, path: str, body: object = None) -> Any:
        """What it answers to a bare client, as decoded JSON.

        Args:
            path: what is asked for.
            body: sent as JSON in a POST; a GET if None.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with _OPENER.open(request, timeout=SECONDS) as answer:
            return json.load(answer)

    def busy(self) -> int:
        """How many of its slots are writing an answer."""
        return sum(slot["is_processing"] for slot in self.get("/slots"))

    def cancelled(self) -> int:
        """How many answers it has given up because nobody was there any more to read them."""
        return self.log().count(": cancel task, id_task = ")

    def spent(self) -> tuple[int, int]:
        """The tokens of all prompts that it has read so far, cached ones included, and of all answers."""
        with _OPENER.open(f"{self.url}/metrics", timeout=SECONDS) as answer:
            found = dict(re.findall(r"^llamacpp:(\w+) (\d+)$", answer.read().decode(), re.MULTILINE))
        prompts = int(found["prompt_tokens_total"]) + int(found["prompt_tokens_cached_total"])
        return prompts, int(found["tokens_predicted_total"])

    def end(self) -> None:
        """End it; nothing of it is left."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(SECONDS)


@contextlib.contextmanager
def running(folder: pathlib.Path, **options: int) -> Iterator[LlamaServer]:
    """A server for as long as the block runs; arguments as `LlamaServer` has them."""
    server = LlamaServer(folder, **options)
    try:
        yield server
    finally:
        server.end()
