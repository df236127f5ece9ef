"""Finds servers of models on this machine, so that one that runs is a provider without configuration.

A look connects to the ports that Ollama, llama.cpp, vLLM and LM Studio document. Only where one takes the
connection is it asked for its models, and only what answers as they do is taken: any web server may stand on
such a port. A server of another user is not taken either, since a model decides what an agent runs. Nothing
is spent, and nothing leaves this machine.

`RNIX_LOCAL_SERVERS` says where to look in place of that: `none`, or names with ports or addresses, such as
`llamacpp=8081,ollama=127.0.0.1:11500`.
"""

import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import trio

from rnixfs import limits
from rnixfs.portowner import is_trusted
from rnixfs.presets import LOCAL, OPENAI_COMPAT, PRESETS
from rnixfs.providers import ModelConfig, ProviderConfig

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

VARIABLE = "RNIX_LOCAL_SERVERS"
NOWHERE = "none"
OURSELVES = "rnix"
"""What our own server says of its models as `owned_by`. Taking it would lead requests in a circle."""

Start = Callable[[Callable[[], Awaitable[None]]], object]
"""Runs something in the background."""


Models = tuple[ModelConfig, ...]
"""The models of one server that can hold a conversation."""


class Server(NamedTuple):
    """A place to look at: the provider's name, an IP address of this machine, and a port."""

    name: str
    host: str
    port: int

    @property
    def base_url(self) -> str:
        """Its address up to /v1."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"


def servers_of(env: Mapping[str, str]) -> tuple[tuple[Server, ...], tuple[str, ...]]:
    """The places to look at, in the order in which they are preferred, and what is wrong with the variables.

    Args:
        env: `RNIX_LOCAL_SERVERS`, and Ollama's own `OLLAMA_HOST`, which is heeded where it is this machine.
    """
    given = env.get(VARIABLE, "").strip()
    if given:
        return _given(given)
    ollama = _ollama(env.get("OLLAMA_HOST", ""))
    found: dict[tuple[str, int], Server] = {}
    for name in LOCAL:
        one = ollama if ollama and name == "ollama" else _usual(name)
        found.setdefault((one.host, one.port), one)
    return tuple(found.values()), ()


def _usual(name: str) -> Server:
    url = urlsplit(PRESETS[name].base_url)
    return Server(name, url.hostname or "127.0.0.1", url.port or 80)


def _given(text: str) -> tuple[tuple[Server, ...], tuple[str, ...]]:
    if text == NOWHERE:
        return (), ()
    found: dict[str, Server] = {}
    wrong: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, where = part.partition("=")
        place = _place(where.strip(), 0)
        if name.strip() in LOCAL and place is not None:
            found[name.strip()] = Server(name.strip(), *place)
        else:
            right = f"write {NOWHERE}, or names of {', '.join(LOCAL)} with ports, such as ollama=11434"
            wrong.append(f"{VARIABLE}: {part[:80]!r} is no place on this machine; {right}")
    return tuple(found[name] for name in LOCAL if name in found), tuple(wrong)


def _ollama(text: str) -> Server | None:
    """Where Ollama listens by its own variable: a host, a port behind a colon, or both, or an address."""
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        rest = text.strip()
    elif scheme != "http":
        return None
    place = _place(rest.partition("/")[0], 80 if mark else _usual("ollama").port)
    return Server("ollama", *place) if rest and place else None


def _place(text: str, usual_port: int) -> tuple[str, int] | None:
    """A host and port of this machine; None for what is none."""
    if text.isascii() and text.isdecimal():
        host, port = "", text
    elif text.startswith("[") or text.count(":") < 2:
        host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", "")
    else:
        host, port = text, ""
    address = _loopback(host.strip("[]"))
    if address is None or (port and not (port.isascii() and port.isdecimal())):
        return None
    number = int(port[:6]) if port else usual_port
    return (address, number) if 0 < number < 65536 else None


def _loopback(host: str) -> str | None:
    if host in ("", "localhost"):
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_unspecified:
        # A server that listens everywhere listens here.
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address) if address.is_loopback else None


# --- looking ---


class Discovery:
    """What was found at the last look.

    Args:
        servers: where to look.
        start: runs a look in the background.
        seconds: for one look.
        trusted: whether whoever listens at a host and port may be asked; may block.
    """

    def __init__(
        self,
        servers: tuple[Server, ...],
        start: Start,
        seconds: float = limits.DISCOVERY_SECONDS,
        trusted: Callable[[str, int], bool] = is_trusted,
    ) -> None:
        self._servers = servers
        self._start = start
        self._seconds = seconds
        self._trusted = trusted
        self._found: dict[Server, ProviderConfig] = {}
        self._looked = -float("inf")
        self._began = False
        self._busy = False

    def found(self) -> tuple[ProviderConfig, ...]:
        """The servers that were there, in the order in which they are preferred.

        Where that is long ago, a new look begins in the background, so that whoever asks again sees it.
        Before the first look that somebody awaited, none does.
        """
        if self._began and not self._busy and self._servers and self._is_old():
            self._busy = True
            self._start(self.look)
        return tuple(self._found[one] for one in self._servers if one in self._found)

    def _is_old(self) -> bool:
        return trio.current_time() - self._looked > limits.DISCOVERY_AGE_SECONDS

    async def look(self) -> None:
        """Look at every place at once. Ends within the time set for one look, whatever answers."""
        self._began = self._busy = True
        try:
            with trio.move_on_after(self._seconds):
                async with trio.open_nursery() as nursery:
                    for server in self._servers:
                        nursery.start_soon(self._look_at, server)
        finally:
            self._busy = False
            self._looked = trio.current_time()

    async def _look_at(self, server: Server) -> None:
        try:
            models = await self._models(server) if await _listens(server) else ()
        except Exception:
            # Whatever stands on that port and sends what the library does not expect must not end the daemon.
            log.exception("%s: looking at %s failed", server.name, server.base_url)
            models = ()
        if models:
            self._found[server] = _entry(server, models, self._found.get(server))
        elif models is not None:
            self._found.pop(server, None)

    async def _models(self, server: Server) -> Models | None:
        """The models of a server: none where it is something else or somebody else's, None where it is not
        ready to tell.

        A server at work may be slow, too. Then this is cancelled, and one that was found stays.
        """

        def prepared() -> "httpx2.AsyncClient | None":
            return _new_client() if self._trusted(server.host, server.port) else None

        # The import takes 0.1 s and more, too long for the loop that serves the mount.
        client = await trio.to_thread.run_sync(prepared, abandon_on_cancel=True)
        return await _ask(client, server) if client is not None else ()


async def _listens(server: Server) -> bool:
    family = trio.socket.AF_INET6 if ":" in server.host else trio.socket.AF_INET
    try:
        with trio.socket.socket(family) as connection:
            await connection.connect((server.host, server.port))
    except OSError:
        return False
    return True


async def _ask(client: "httpx2.AsyncClient", server: Server) -> Models | None:
    import httpx2  # brought in by whoever made the client

    headers = {"accept": "application/json", "accept-encoding": "identity", "connection": "close"}
    try:
        async with client, client.stream("GET", f"{server.base_url}/models", headers=headers) as response:
            if response.status_code == 503:
                return None  # as llama.cpp says while it loads its model
            return _models_of(await _body(response)) if response.status_code == 200 else ()
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return ()


def _new_client() -> "httpx2.AsyncClient":
    import httpx2

    # No proxy and no TLS: what is asked is on this machine, and nothing of the environment is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncClient(timeout=None, trust_env=False, verify=context)


async def _body(response: "httpx2.Response") -> bytes:
    body = bytearray()
    # Left by cancelling, never by leaving the loop: httpx2 would leave its generator to the garbage
    # collector. As it comes over the wire: what is packed could be of any size.
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_raw():
            if len(body) > limits.DISCOVERY_BYTES:
                scope.cancel()
            else:
                body += chunk
    return bytes(body) if len(body) <= limits.DISCOVERY_BYTES else b""


# --- what a server answers ---


def _models_of(body: bytes) -> Models:
    """The models of a list in OpenAI's form that can hold a conversation; none where it is no such list."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ()
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not all(map(_is_model, listed)):
        return ()
    if any(one.get("owned_by") == OURSELVES for one in listed):
        return ()
    models = {one["id"]: ModelConfig(one["id"], _window(one)) for one in listed if _converses(one["id"])}
    return tuple(models.values())[: limits.DISCOVERY_MODELS]


def _is_model(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("id"), str)


def _converses(name: str) -> bool:
    if not name.strip() or not name.isprintable() or len(name) > limits.NAME_MAX:
        return False
    return not any(other in name.lower() for other in ("embed", "rerank"))


def _window(one: dict[str, Any]) -> int:
    """The tokens that a model takes, by the names that vLLM, llama.cpp and others have for that; else 0."""
    meta = one.get("meta")
    known = (one.get(name) for name in ("max_model_len", "context_window", "context_length"))
    for number in (*known, meta.get("n_ctx") if isinstance(meta, dict) else None):
        if isinstance(number, int) and 0 < number <= limits.BUDGET_TOKENS_MAX:
            return int(number)
    return 0


def _entry(server: Server, models: Models, former: ProviderConfig | None) -> ProviderConfig:
    # The first model, but not another one only because the server lists them in another order now.
    names = [one.name for one in models]
    default = former.default_model if former is not None and former.default_model in names else names[0]
    return ProviderConfig(
        server.name, OPENAI_COMPAT, server.base_url, default_model=default, models=list(models)
    )
