"""A gateway on a real mount, as a program of its own, for the official clients."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import anthropic
import openai

from tests.daemon import SECONDS, Daemon, Program, running, until

KEY = "rnix-key-for-tests-0123456789"
KEY_VARIABLE = "GATEWAY_KEY"

PROVIDERS = """
version: 1
default_provider: script
providers:
  - name: play
    driver: script
    scenario: play.yaml
  - name: nobody
    driver: openai-compat
    base_url: http://127.0.0.1:9/v1
    default_model: tiny:7b
    retries: 0
"""
"""Providers beside `script`: one that plays `SCENE`, and one that nobody answers for."""

SCENE = r"""
name: play
rules:
  - name: weather
    when: {intent: weather, step: 0, tools: [get_weather]}
    say: Let me see.
    calls:
      - tool: get_weather
        arguments: {city: '{{ intent | after("in ") }}'}
    tokens: {input: 50, output: 7}
  - name: weather-told
    when: {intent: weather, step: 1+}
    say: 'It is {{ last.sky }} there.'
    tokens: {input: 70, output: 5}
  - name: prompt
    when: {intent: show me the prompt}
    say: '{{ system_prompt }}'
  - name: words
    when: {intent: count to four}
    word_delay_ms: 1
    say: one two three four
  - name: slow-words
    when: {intent: count slowly}
    word_delay_ms: 600000
    say: one two three four
  - name: never
    when: {intent: never mind}
    delay_ms: 600000
    say: too late
"""


class Lab:
    """A daemon, and a gateway in front of it.

    Args:
        daemon: the daemon.
        options: further options of the gateway's command line.
    """

    def __init__(self, daemon: Daemon, options: Sequence[str] = ()) -> None:
        self.daemon = daemon
        self._log = daemon.folder / "gateway.log"
        self.program = start(daemon, [f"--key-env={KEY_VARIABLE}", *options], self._log)
        self.told: dict[str, Any] = json.loads(self.program.line())
        self.url: str = self.told["url"]

    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def await_log(self, text: str) -> None:
        """Wait until its log holds a text."""
        until(lambda: text in self.log(), f"{text!r} in the log of the gateway")

    def openai(self, key: str = KEY, **options: Any) -> openai.OpenAI:
        """The official client of OpenAI; it tries nothing twice."""
        options = {"max_retries": 0, "timeout": SECONDS} | options
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, **options)

    def anthropic(self, key: str | None = KEY, **options: Any) -> anthropic.Anthropic:
        """The official client of Anthropic; it tries nothing twice."""
        options = {"max_retries": 0, "timeout": SECONDS} | options
        return anthropic.Anthropic(base_url=self.url, api_key=key, **options)

    @contextlib.contextmanager
    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[socket.socket]:
        """A connection on which a request was sent, closed when the block is left.

        Args:
            method: of the request.
            path: of the request.
            body: what is sent as JSON, or bytes as they are.
            headers: fields that are added or replaced; `_` stands for `-`.
        """
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"host": f"{host}:{port}", "x-api-key": KEY, "content-length": str(len(data))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        with socket.create_connection((host, int(port)), SECONDS) as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode() + data)
            yield connection

    def answer(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request; the status and decoded body of its response. Arguments as `raw` has them."""
        with self.raw(method, path, body, **headers) as connection:
            return response(connection)

    def opened(self, name: str) -> int:
        """How many files below a folder of the mount it has open; found out without touching the mount."""
        below = f"{self.daemon.mount}/{name}/"
        links = list(pathlib.Path(f"/proc/{self.program.pid}/fd").iterdir())
        return sum(_target(link).startswith(below) for link in links)

    def processes(self) -> list[dict[str, Any]]:
        """The status of every process of the system that has not ended."""
        return [json.loads(line) for line in self.daemon.out("cat $M/proc/processes").splitlines()]


def response(connection: socket.socket) -> tuple[int, Any]:
    """The status and decoded body of the response on a connection."""
    with contextlib.closing(http.client.HTTPResponse(connection)) as found:
        found.begin()
        return found.status, json.loads(found.read())


def _target(link: pathlib.Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def start(daemon: Daemon, options: Sequence[str], log: pathlib.Path) -> Program:
    """Start a gateway on a free port, its log in a file; it is gone when the daemon is."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "rnixfs.gateway",
        "--mount",
        str(daemon.mount),
        "--port",
        "0",
        "--json",
    ]
    script = f'exec "$@" 2>>{log}'
    return daemon.program(["bash", "-c", script, "bash", *words, *options], {KEY_VARIABLE: KEY})


def configure(folder: pathlib.Path, providers: str = PROVIDERS) -> None:
    """Lay the configuration of a daemon that will live in a folder."""
    config = folder / "home" / ".config" / "rnix"
    config.mkdir(parents=True)
    (config / "providers.yaml").write_text(providers)
    (config / "play.yaml").write_text(SCENE)


@contextlib.contextmanager
def gateway(folder: pathlib.Path, *options: str, providers: str = PROVIDERS) -> Iterator[Lab]:
    """A daemon with a gateway for as long as the block runs."""
    configure(folder, providers)
    path = os.pathsep.join(filter(None, [*map(str, _ROOTS), os.environ.get("PYTHONPATH", "")]))
    with running(folder, ["--state", "none"], env={"PYTHONPATH": path}) as daemon:
        yield Lab(daemon, options)


_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ROOTS = (_ROOT, _ROOT / "cli")
