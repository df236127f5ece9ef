"""A provider for the tests of mounts: it says one word and then holds the line until its client hangs up."""

import json
import socket
import threading
import time

from tests.daemon import SECONDS

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class SlowServer:
    """Chat completions on the loopback.

    Attributes:
        url: its address, up to `/v1`.
        asked: how many requests came.
        gone: when each client hung up, in seconds of `time.monotonic`.
    """

    def __init__(self, word: str = "Once") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.asked = 0
        self.gone: list[float] = []
        self._word = word
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._hold, args=(connection,), daemon=True).start()

    def _hold(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(SECONDS)
            data = connection.recv(1 << 20)
            while b'"messages"' not in data:
                data += connection.recv(1 << 20)
            self.asked += 1
            event = {"choices": [{"index": 0, "delta": {"content": self._word}}]}
            connection.sendall(HEAD + b"data: " + json.dumps(event).encode() + b"\n\n")
            try:
                while connection.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
            self.gone.append(time.monotonic())

    def close(self) -> None:
        """Take no more clients."""
        self._listener.close()
