"""Models behind OpenAI-compatible HTTP: OpenAI, Groq, DeepSeek, OpenRouter, Ollama, llama.cpp and others."""

import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import ModelAnswer, ModelRequest
from rnixfs.model import Model
from rnixfs.wire import openai as wire
from rnixfs.wire.failure import WireError, body_text, code_of_status, one_line, too_large
from rnixfs.wire.sse import EventReader

if TYPE_CHECKING:
    import httpx2


class OpenAICompatible(Model):
    """One provider that speaks chat completions.

    Args:
        provider: its name under `dev/llm/`.
        base_url: address up to and without `/chat/completions`, such as `http://127.0.0.1:11434/v1`.
        default_model: the model for requests that name none.
        api_key: returns the key at the time of a call, or None; never shown in any text.
        timeout_s: seconds for a call whose request names no time.
        api_key_env: the variable that should hold the key; empty where no key is needed.
    """

    native_tools = True

    def __init__(
        self,
        provider: str,
        base_url: str,
        default_model: str,
        api_key: Callable[[], str | None],
        timeout_s: float = limits.MODEL_SECONDS,
        *,
        api_key_env: str = "",
    ) -> None:
        self.provider = provider
        self._base_url = base_url.rstrip("/")
        self._default_model = default_model
        self._api_key = api_key
        self._api_key_env = api_key_env
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None

    def unavailable(self) -> str:
        url = _split(self._base_url)
        if url is None or url.scheme not in ("http", "https") or not url.hostname:
            return f'base_url of provider "{self.provider}" is no http:// or https:// address'
        if self._api_key_env and not self._key():
            return f"the environment variable {self._api_key_env} is not set; it must hold the API key"
        return ""

    def details(self) -> dict[str, object]:
        return {
            "driver": "openai-compatible",
            "base_url": _without_login(self._base_url),
            "default_model": self._default_model,
            "api_key_env": self._api_key_env,
            "timeout_ms": round(self._timeout_s * 1000),
        }

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        async with self._posted(request, stream=False) as response:
            body = await _body(response)
        return wire.read_answer(body, request)

    async def stream(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelAnswer:
        async with self._posted(request, stream=True) as response:
            if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                answer = await _events(response, request, emit)
            else:  # a server that cannot stream answers as a whole
                answer = wire.read_answer(await _body(response), request)
                emit(answer.content)
        return answer

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @contextlib.asynccontextmanager
    async def _posted(self, request: ModelRequest, stream: bool) -> AsyncGenerator["httpx2.Response"]:
        """Send a request and yield the reply once its status is 200; every failure is a SyscallError."""
        content = wire.encode_request(request, self._model(request), stream)
        headers = self._headers(stream)
        client = await self._connected()
        with self._failures(request):
            url = f"{self._base_url}/chat/completions"
            async with client.stream("POST", url, content=content, headers=headers) as response:
                if response.status_code != 200:
                    raise await _refusal(response)
                yield response

    def _model(self, request: ModelRequest) -> str:
        model = request.model or self._default_model
        if reason := self.unavailable():
            code = Code.PERMISSION if self._api_key_env and not self._key() else Code.INVALID
            raise SyscallError(code, f"{self.provider}: {reason}")
        if not model:
            raise invalid(f'provider "{self.provider}" has no default_model; name one in "model"')
        return model

    def _key(self) -> str:
        # Keys from files often end with a line feed, which no header may hold.
        return (self._api_key() or "").strip()

    def _headers(self, stream: bool) -> dict[str, str]:
        key = self._key()
        if not (key.isascii() and key.isprintable()):
            where = self._api_key_env or "the API key"
            raise SyscallError(
                Code.PERMISSION, f"{self.provider}: {where} holds characters that no header can carry"
            )
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            # So that the bytes counted are the bytes held, and no event waits in a decompressor.
            "accept-encoding": "identity",
        }
        return headers | ({"authorization": f"Bearer {key}"} if key else {})

    async def _connected(self) -> "httpx2.AsyncClient":
        if self._client is None:
            # The import and the certificates take about 0.1 s, too long for the loop that serves the mount.
            client = await trio.to_thread.run_sync(_new_client, self._base_url)
            if self._client is None:
                self._client = client
        return self._client

    @contextlib.contextmanager
    def _failures(self, request: ModelRequest) -> Iterator[None]:
        import httpx2  # `_connected` brought it in

        seconds = request.timeout_ms / 1000 or self._timeout_s
        try:
            with trio.move_on_after(seconds) as scope:
                yield
        except WireError as error:
            raise self._failed(error.code, error.text) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed(*_network_failure(error, self._base_url)) from None
        if scope.cancelled_caught:
            raise self._failed(Code.TIMEOUT, f"no complete answer within {seconds:g} s")

    def _failed(self, code: Code, text: str) -> SyscallError:
        login = _split(self._base_url)
        password = (login.password if login else None) or ""
        return SyscallError(code, f"{self.provider}: {one_line(text, self._key(), password)}")


def _new_client(base_url: str) -> "httpx2.AsyncClient":
    import httpx2

    return httpx2.AsyncClient(
        # One deadline covers the whole call; only a server that never takes the connection is found sooner.
        timeout=httpx2.Timeout(None, connect=limits.MODEL_CONNECT_SECONDS),
        # A proxy of the environment is no way to a server on this machine.
        trust_env=not _is_loopback(base_url),
    )


def _network_failure(error: Exception, base_url: str) -> tuple[Code, str]:
    """What a failure of the HTTP library means."""
    import httpx2

    where = _without_login(base_url)
    if isinstance(error, httpx2.ConnectTimeout):
        seconds = f"{limits.MODEL_CONNECT_SECONDS:g} s"
        return Code.SERVICE_UNAVAILABLE, f"{where} does not take connections (waited {seconds})"
    if isinstance(error, httpx2.ConnectError):
        return _connect_failure(error, where)
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.WriteError):
        return Code.DRIVER, f"the connection to {where} broke before the answer was complete: {error}"
    return Code.DRIVER, f"the exchange with {where} failed: {str(error) or type(error).__name__}"


def _connect_failure(error: Exception, where: str) -> tuple[Code, str]:
    cause = _root_cause(error)
    if isinstance(cause, ssl.SSLError):
        return Code.DRIVER, f"no secure connection to {where}: {cause}"
    if isinstance(cause, socket.gaierror):
        return Code.SERVICE_UNAVAILABLE, f"the host name in {where} cannot be resolved: {cause}"
    return Code.SERVICE_UNAVAILABLE, f"cannot connect to {where} ({error}); is the server running?"


def _root_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error


async def _chunks(response: "httpx2.Response") -> AsyncGenerator[bytes]:
    size = 0
    async with contextlib.aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > limits.MODEL_REPLY_MAX:
                raise too_large()
            yield chunk


async def _body(response: "httpx2.Response") -> bytes:
    async with contextlib.aclosing(_chunks(response)) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def _events(
    response: "httpx2.Response", request: ModelRequest, emit: Callable[[str], None]
) -> ModelAnswer:
    events, reader = EventReader(), wire.StreamReader()
    async with contextlib.aclosing(_chunks(response)) as chunks:
        async for chunk in chunks:
            for data in events.feed(chunk):
                if text := reader.feed(data):
                    emit(text)
                if reader.done:  # some servers keep the connection open
                    return reader.answer(request)
    return reader.answer(request)


async def _refusal(response: "httpx2.Response") -> WireError:
    """The failure that a reply of another status than 200 stands for."""
    status = response.status_code
    text = f"HTTP {status}: {body_text(await _body(response))}"
    if wait := response.headers.get("retry-after"):
        text += f"; retry after {wait}" + (" s" if wait.isdigit() else "")
    if response.has_redirect_location:
        text += f"; it points to {response.headers['location']}, so base_url may need correcting"
    return WireError(code_of_status(status), text)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at here, since it raises only then
    except ValueError:
        return None
    return parts


def _without_login(url: str) -> str:
    parts = _split(url)
    if parts is None or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _is_loopback(url: str) -> bool:
    parts = _split(url)
    host = (parts.hostname if parts else "") or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")
