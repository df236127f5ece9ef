"""Providers through a real mount: changed files are taken up, wrong ones break nothing, servers are found."""

import contextlib
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, running, until

MINE = "providers:\n  - name: mine\n    driver: script\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for the tests that change its user's file; each leaves it removed."""
    with running(tmp_path_factory.mktemp("providers")) as daemon:
        yield daemon


@pytest.fixture
def file(daemon: Daemon) -> Iterator[pathlib.Path]:
    """The user's providers.yaml, which is not there yet."""
    path = users_file(daemon)
    yield path
    path.unlink(missing_ok=True)
    rows(daemon)  # so that it is seen that the file was missing


def users_file(daemon: Daemon) -> pathlib.Path:
    """Where its user's providers.yaml belongs."""
    path = pathlib.Path(daemon.env["XDG_CONFIG_HOME"]) / "rnix" / "providers.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def names(daemon: Daemon) -> list[str]:
    """What is in dev/llm."""
    return daemon.out("ls $M/dev/llm").split()


def rows(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The lines of sys/providers."""
    lines = daemon.out("cat $M/sys/providers").splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


def warnings(daemon: Daemon) -> list[str]:
    """What the configuration's readers had to say."""
    found: list[str] = json.loads(daemon.out("cat $M/sys/config"))["warnings"]
    return found


def described(daemon: Daemon, provider: str) -> dict[str, Any]:
    """What a provider's file tells of itself."""
    found: dict[str, Any] = json.loads(daemon.bash("cat $M/dev/llm/$P", env={"P": provider}).out)
    return found


def ask(daemon: Daemon, provider: str) -> dict[str, Any]:
    """What a provider answers."""
    script = 'exec 3<>$M/dev/llm/$P; printf \'{"intent":"say hi"}\' >&3; cat <&3'
    found: dict[str, Any] = json.loads(daemon.bash(script, env={"P": provider}).out)
    return found


def test_a_changed_file_is_taken_up_without_a_restart(daemon: Daemon, file: pathlib.Path) -> None:
    """Entries come, change and go as the file does."""
    assert "script" in names(daemon)
    assert "mine" not in names(daemon)
    file.write_text(MINE)
    until(lambda: "mine" in names(daemon), "the new entry is there")
    assert ask(daemon, "mine")["content"] == "hi"
    assert rows(daemon)["mine"]["available"] is True
    file.write_text(MINE.replace("mine", "yours"))
    until(lambda: "yours" in names(daemon), "the renamed entry is there")
    assert "mine" not in names(daemon)
    file.unlink()
    until(lambda: "yours" not in names(daemon), "the entry is gone")


def test_a_file_that_becomes_wrong_counts_as_it_was(daemon: Daemon, file: pathlib.Path) -> None:
    """Who saves half a line stops nobody's work; what is wrong is told with its line, until it is right."""
    file.write_text(MINE)
    until(lambda: "mine" in names(daemon), "the entry is there")
    file.write_text(MINE + "  - name: more\n    drivr: script\n")
    until(lambda: warnings(daemon), "the mistake is noticed")
    (told,) = warnings(daemon)
    assert told.startswith(f"{file}:5: providers[2].drivr is not a field here")
    assert "did you mean driver?" in told
    assert {"mine", "script"} <= set(names(daemon))
    assert "more" not in names(daemon)
    assert ask(daemon, "mine")["content"] == "hi"
    assert rows(daemon)["mine"]["available"] is True
    file.write_text(MINE + "  - name: more\n    driver: script\n")
    until(lambda: "more" in names(daemon), "the repaired file counts")
    assert warnings(daemon) == []


def test_a_file_that_was_never_right_is_told_of_everywhere(daemon: Daemon, file: pathlib.Path) -> None:
    """Nothing is used in the place of what was meant: each file, and each refusal, says what is wrong."""
    file.write_text("default_provider: mine\nproviders:\n  - nam: mine\n")
    what = f"{file}:3: providers[1].nam is not a field here"
    until(lambda: warnings(daemon), "the mistake is noticed")
    assert warnings(daemon)[0].startswith(what)
    shown = rows(daemon)
    assert {"claude", "cursor", "script"} == set(shown)
    assert all(not row["available"] and row["reason"].startswith(what) for row in shown.values())
    # The host's kernel remembers for a second which file a name stands for.
    until(lambda: described(daemon, "script").get("reason"), "the model's file says so")
    assert described(daemon, "script")["available"] is False
    assert described(daemon, "script")["reason"].startswith(what)
    assert ask(daemon, "script")["error"]["message"].startswith(what)
    spawned = daemon.bash('echo \'{"intent":"x"}\' > $M/proc/spawn; cat $M/proc/spawn').out
    assert json.loads(spawned)["error"]["message"].startswith(what)
    file.unlink()
    until(lambda: rows(daemon)["script"]["available"], "without the file all is well")
    until(lambda: ask(daemon, "script").get("content") == "hi", "the model answers")


# --- servers of this machine ---


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as a server of models does."""

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 2048}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": f"I am {request['model']}"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer({"model": request["model"], "choices": [choice], "usage": usage})

    def answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class Server(http.server.ThreadingHTTPServer):
    """A server of models that has its port from the start, and listens there for the length of a block."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server_bind()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer while the block runs, and never again."""
        self.server_activate()
        thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that does not listen yet."""
    with Server() as made:
        yield made


def test_a_local_server_is_a_provider_while_it_runs(server: Server, tmp_path: pathlib.Path) -> None:
    """It is found at the start and later on, answers under its name, and goes when its server does; an entry
    of that name takes its place."""
    port = server.server_port
    with running(tmp_path, env={"RNIX_LOCAL_SERVERS": f"ollama={port}"}) as daemon:
        assert "ollama" not in names(daemon)
        refused = 'echo \'{"intent":"x","provider":"ollama"}\' > $M/proc/spawn; cat $M/proc/spawn'
        error = json.loads(daemon.bash(refused).out)["error"]
        assert error["code"] == "SERVICE_UNAVAILABLE"
        assert error["message"].startswith("no server of 'ollama' was found; start it")
        with server.serving():
            until(lambda: "ollama" in names(daemon), "the server is found")
            assert rows(daemon)["ollama"]["default_model"] == "tiny"
            answer = ask(daemon, "ollama")
            assert (answer["content"], answer["tokens_used"]) == ("I am tiny", 5)
            file = users_file(daemon)
            entry = {"name": "ollama", "base_url": f"http://127.0.0.1:{port}/v1", "default_model": "big"}
            file.write_text(json.dumps({"providers": [entry]}))
            until(lambda: rows(daemon)["ollama"]["default_model"] == "big", "the entry hides the server")
            until(lambda: ask(daemon, "ollama")["content"] == "I am big", "the entry answers")
            file.unlink()
            until(lambda: rows(daemon)["ollama"]["default_model"] == "tiny", "the server is seen again")
        until(lambda: "ollama" not in names(daemon), "the server is gone")


def test_a_server_that_runs_is_found_before_the_daemon_is_ready(
    server: Server, tmp_path: pathlib.Path
) -> None:
    """Whoever starts an agent first thing finds it, unless the machine is too busy to look in time."""
    env = {"RNIX_LOCAL_SERVERS": f"vllm={server.server_port}"}
    with server.serving(), running(tmp_path, env=env) as daemon:
        until(lambda: "vllm" in names(daemon), "the server is found")
        assert "discovery" not in daemon.log()
