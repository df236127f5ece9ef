"""Models behind HTTP: every server that speaks one of the dialects in DIALECTS."""

import contextlib
import math
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, TypeVar

import trio

from rnixfs import limits
from rnixfs.address import is_loopback
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Delta, Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.model import Model, ModelError, ModelInfo
from rnixfs.presets import ANTHROPIC, GEMINI, OPENAI_COMPAT
from rnixfs.providers import ProviderConfig
from rnixfs.wire.anthropic import Messages
from rnixfs.wire.count import spent
from rnixfs.wire.dialect import Dialect, StreamReader
from rnixfs.wire.failure import WireError, one_line, retry_after, too_large
from rnixfs.wire.gemini import GenerateContent
from rnixfs.wire.openai import Chat
from rnixfs.wire.sse import EventReader

if TYPE_CHECKING:
    import httpx2

_T = TypeVar("_T")
_Read = Callable[["httpx2.Response"], Awaitable[_T]]
_Spent = Callable[[WireError], Usage]

DIALECTS: Mapping[str, Callable[[str], Dialect]] = {
    OPENAI_COMPAT: Chat,
    ANTHROPIC: Messages,
    GEMINI: GenerateContent,
}
"""How the servers of each driver are spoken to: makes the dialect for a server's address."""


class HttpModel(Model):
    """One provider that is reached by HTTP.

    Args:
        entry: its entry in `providers.yaml`. The address holds no password, since it is shown.
        dialect: what its server speaks.
        api_key: returns the key at the time of a call, or None; never shown in any text.
    """

    native_tools = True

    def __init__(self, entry: ProviderConfig, dialect: Dialect, api_key: Callable[[], str | None]) -> None:
        self.provider = entry.name
        self._entry = entry
        self._dialect = dialect
        self._api_key = api_key
        self._configured = {one.name: one.context_window for one in entry.models if one.context_window}
        self._windows = self._configured
        self._first = ""
        self._asking = trio.Lock()
        self._client: httpx2.AsyncClient | None = None

    def unavailable(self) -> str:
        name = self._entry.api_key_env
        if name and not self._key():
            return f"the environment variable {name} is not set; it must hold the API key"
        return ""

    def details(self) -> dict[str, object]:
        return {
            "driver": self._entry.driver,
            "base_url": self._entry.base_url,
            "default_model": self._entry.default_model,
            "api_key_env": self._entry.api_key_env,
            "timeout_ms": self._entry.timeout_ms,
            "context_windows": dict(self._windows),
        }

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        call = _Call(self._dialect, emit)
        with self._failing(request.timeout_ms or self._entry.timeout_ms, call.spent):
            model = request.model or self._entry.default_model or await self._first_model()
            call.prompt = self._dialect.encode(request, model, emit is not None)
            path = self._dialect.path(model, emit is not None)
            try:
                answer = await self._exchange("POST", path, call.read, call.prompt, stream=emit is not None)
            except WireError as error:
                if error.status == 404 and model == self._first:
                    self._first = ""  # it has been removed, and the list has another one
                raise
        answer.model = answer.model or model
        answer.context_window = self._windows.get(model, 0)
        return answer

    async def check(self) -> list[ModelInfo]:
        with self._failing(round(limits.MODEL_CHECK_SECONDS * 1000), lambda failure: Usage()):
            return await self._list()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- what is asked for ---

    async def _first_model(self) -> str:
        """The first model of the server's list, for requests that name none where no default is configured.

        Only where that costs nothing: a server on this machine, or one that wants no key.
        """
        if self._entry.api_key_env and not is_loopback(self._entry.base_url):
            raise self._nameless("has no default_model")
        async with self._asking:
            if not self._first:
                names = [one.name for one in await self._list()]
                if not names:
                    raise self._nameless("has no default_model, and its server lists no models")
                self._first = names[0]
        return self._first

    def _nameless(self, what: str) -> SyscallError:
        return invalid(f'provider "{self.provider}" {what}; name one in "model", or set default_model')

    async def _list(self) -> list[ModelInfo]:
        async def read(response: "httpx2.Response") -> list[ModelInfo]:
            return [ModelInfo(*one) for one in self._dialect.read_models(await _body(response))]

        found = await self._exchange("GET", self._dialect.models, read)
        listed = {one.name: one.context_window for one in found if one.context_window}
        self._windows = listed | self._configured
        return found

    # --- the exchange ---

    async def _exchange(
        self, method: str, path: str, read: _Read[_T], content: bytes = b"", *, stream: bool = False
    ) -> _T:
        """Send a request and read its reply.

        Raises:
            WireError: it failed.
        """
        headers = self._headers(stream)
        client = await self._connected()
        import httpx2  # brought in by the line above

        url = self._entry.base_url + path
        try:
            async with client.stream(method, url, content=content, headers=headers) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                return await read(response)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _network_failure(error, self._entry.base_url) from None

    @contextlib.contextmanager
    def _failing(self, timeout_ms: int, spent: _Spent) -> Generator[None]:
        """A block that ends in time, and whose failures are those of this provider."""
        try:
            with trio.fail_after(timeout_ms / 1000):
                yield
        except trio.TooSlowError:
            failure = WireError(Code.TIMEOUT, f"no complete answer within {timeout_ms / 1000:g} s")
        except WireError as error:
            failure = error
        except RecursionError:
            failure = WireError(Code.DRIVER, "the reply has too many levels")
        else:
            return
        raise ModelError(
            failure.code,
            f"{self.provider}: {one_line(failure.text, self._key())}",
            transient=failure.transient,
            retry_after=failure.retry_after,
            usage=spent(failure),
            status=failure.status,
        ) from None

    async def _refusal(self, response: "httpx2.Response") -> WireError:
        error = self._dialect.refusal(response.status_code, await _body(response))
        if error.retry_after is None:
            error.retry_after = retry_after(response.headers, time.time())
        if error.retry_after is not None:
            error.text += f"; retry after {error.retry_after:g} s"
        if response.has_redirect_location:
            where = response.headers["location"]
            error.text += f"; it points to {where}, so base_url may need correcting"
        return error

    def _key(self) -> str:
        # Keys from files often end with a line feed, which no header may hold.
        return (self._api_key() or "").strip()

    def _headers(self, stream: bool) -> dict[str, str]:
        if reason := self.unavailable():
            raise WireError(Code.PERMISSION, reason)
        key = self._key()
        if not (key.isascii() and key.isprintable()):
            where = self._entry.api_key_env or "the API key"
            raise WireError(Code.PERMISSION, f"{where} holds characters that no header can carry")
        return {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            # So that the bytes counted are the bytes held, and no event waits in a decompressor.
            "accept-encoding": "identity",
            **self._dialect.headers(key),
        }

    async def _connected(self) -> "httpx2.AsyncClient":
        if self._client is None:
            # The import and the certificates take about 0.1 s, too long for the loop that serves the mount.
            try:
                client = await trio.to_thread.run_sync(_new_client, self._entry, abandon_on_cancel=True)
            except Exception as error:
                raise _no_client(error) from None
            if self._client is None:
                self._client = client
        return self._client


class _Call:
    """One call: what was sent, and how much of the reply came.

    Args:
        dialect: what the server speaks.
        emit: takes the pieces of a reply that streams.
    """

    def __init__(self, dialect: Dialect, emit: Emit | None) -> None:
        self._dialect = dialect
        self._emit: Emit = emit or (lambda delta: None)
        self._reader: StreamReader | None = None
        self._answered = False
        self._told = False
        self.prompt = b""

    async def read(self, response: "httpx2.Response") -> ModelAnswer:
        """Read a reply of status 200."""
        self._answered = True
        # Not every server can stream, and some do where nobody asked.
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return await self._stream(response, self._dialect.reader())
        answer = self._dialect.read_answer(await _body(response), self.prompt)
        for delta in (Delta("reasoning", answer.reasoning), Delta("text", answer.content)):
            if delta.text:
                self._emit(delta)
        return answer

    async def _stream(self, response: "httpx2.Response", reader: StreamReader) -> ModelAnswer:
        self._reader = reader
        events, size = EventReader(), 0

        def take(chunk: bytes) -> bool:
            nonlocal size
            size += len(chunk)
            if size > limits.MODEL_REPLY_MAX:
                raise too_large()
            for data in events.feed(chunk):
                for delta in reader.feed(data):
                    self._told = True
                    self._emit(delta)
            return reader.done

        await _receive(response, take)
        return reader.answer(self.prompt)

    def spent(self, failure: WireError) -> Usage:
        """What a call spent that failed: nothing where the server refused it before the model said a word."""
        if failure.usage.tokens:
            return failure.usage
        if not self._answered or (failure.status and not self._told):
            return Usage()
        return self._reader.usage(self.prompt) if self._reader else spent(self.prompt)


def _new_client(entry: ProviderConfig) -> "httpx2.AsyncClient":
    import httpx2

    # One deadline covers the whole call; only a server that never takes the connection is found sooner.
    timeout = httpx2.Timeout(None, connect=limits.MODEL_CONNECT_SECONDS)
    local = is_loopback(entry.base_url)
    # One connection a call, and one to ask for models. How many calls there are others decide.
    pool = httpx2.Limits(
        max_connections=entry.concurrency + 1 if entry.concurrency else None,
        max_keepalive_connections=entry.concurrency or limits.MODEL_CALLS_HTTP,
        # A call on a connection that its server is just closing fails, so it must not get that old.
        keepalive_expiry=limits.MODEL_IDLE_LOCAL_SECONDS if local else limits.MODEL_IDLE_SECONDS,
    )
    if not local:
        return httpx2.AsyncClient(timeout=timeout, limits=pool)
    # A proxy of the environment is no way to a server on this machine. Reading all certificates, 0.1 s, is
    # left out where none is looked at; without them, no TLS connection could come about.
    plain = entry.base_url.startswith("http:")
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx2.create_ssl_context()
    return httpx2.AsyncClient(timeout=timeout, limits=pool, trust_env=False, verify=verify)


def _no_client(error: Exception) -> WireError:
    """What it means that no client could be made: the environment names proxies or certificates in vain."""
    # An address that cannot be read may hold a password anywhere.
    why = str(error) if isinstance(error, ImportError | OSError) else type(error).__name__
    where = "the variables for proxies (HTTPS_PROXY, ALL_PROXY) and certificates (SSL_CERT_FILE)"
    return WireError(Code.DRIVER, f"no connection can be made with what {where} say: {why}")


def _network_failure(error: Exception, where: str) -> WireError:
    """What a failure of the HTTP library means."""
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        seconds = f"{limits.MODEL_CONNECT_SECONDS:g} s"
        text = f"{where} does not take connections (waited {seconds})"
        return WireError(Code.SERVICE_UNAVAILABLE, text, transient=True)
    if isinstance(error, httpx2.ConnectError):
        return _connect_failure(error, where)
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.WriteError):
        text = f"the connection to {where} broke before the answer was complete: {error}"
        return WireError(Code.DRIVER, text, transient=True)
    return WireError(Code.DRIVER, f"the exchange with {where} failed: {str(error) or type(error).__name__}")


def _connect_failure(error: Exception, where: str) -> WireError:
    cause = _root_cause(error)
    if isinstance(cause, ssl.SSLError):
        return WireError(Code.DRIVER, f"no secure connection to {where}: {cause}")
    if isinstance(cause, socket.gaierror):
        text = f"the host name in {where} cannot be resolved: {cause}"
        return WireError(Code.SERVICE_UNAVAILABLE, text, transient=True)
    text = f"cannot connect to {where} ({error}); is the server running?"
    return WireError(Code.SERVICE_UNAVAILABLE, text, transient=True)


def _root_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error


async def _receive(response: "httpx2.Response", take: Callable[[bytes], bool]) -> None:
    """Hand the bytes of a reply to `take` until it has enough, which its result says, or raises.

    Reading is never left early by leaving the loop: httpx2 would leave a generator to the garbage collector,
    and its connection open until then. A cancelled wait ends both at once.
    """
    failures: list[Exception] = []
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            if failures or scope.deadline != math.inf:
                continue
            try:
                if take(chunk):
                    # What is left is the end of the body, as a rule; with it the connection can serve again.
                    scope.deadline = trio.current_time() + limits.MODEL_DRAIN_SECONDS
            except Exception as error:
                failures.append(error)
                scope.cancel()
    if failures:
        raise failures[0]


async def _body(response: "httpx2.Response") -> bytes:
    body = bytearray()

    def take(chunk: bytes) -> bool:
        body.extend(chunk)
        if len(body) > limits.MODEL_REPLY_MAX:
            raise too_large()
        return False

    await _receive(response, take)
    return bytes(body)
