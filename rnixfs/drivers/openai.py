"""Models behind OpenAI-compatible HTTP: OpenAI, Groq, DeepSeek, OpenRouter, Ollama, llama.cpp and others."""

import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import ModelAnswer, ModelRequest
from rnixfs.model import Model
from rnixfs.providers import OPENAI_COMPAT, is_loopback
from rnixfs.wire import openai as wire
from rnixfs.wire.failure import WireError, body_text, code_of_status, one_line, too_large
from rnixfs.wire.sse import EventReader

if TYPE_CHECKING:
    import httpx2

    _Read = Callable[[httpx2.Response], Awaitable[ModelAnswer]]


class OpenAICompatible(Model):
    """One provider that speaks chat completions.

    Args:
        provider: its name under `dev/llm/`.
        base_url: address up to and without `/chat/completions`, such as `http://127.0.0.1:11434/v1`;
            it holds no password, since it is shown.
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
        timeout_s: float = limits.PROVIDER_TIMEOUT_MS / 1000,
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
        if self._api_key_env and not self._key():
            return f"the environment variable {self._api_key_env} is not set; it must hold the API key"
        return ""

    def details(self) -> dict[str, object]:
        return {
            "driver": OPENAI_COMPAT,
            "base_url": self._base_url,
            "default_model": self._default_model,
            "api_key_env": self._api_key_env,
            "timeout_ms": round(self._timeout_s * 1000),
        }

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        async def read(response: "httpx2.Response") -> ModelAnswer:
            return wire.read_answer(await _body(response), request)

        return await self._exchange(request, False, read)

    async def stream(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelAnswer:
        async def read(response: "httpx2.Response") -> ModelAnswer:
            if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                return await _events(response, request, emit)
            answer = wire.read_answer(await _body(response), request)
            emit(answer.content)
            return answer

        return await self._exchange(request, True, read)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, request: ModelRequest, stream: bool, read: "_Read") -> ModelAnswer:
        """Send a request and read its reply; every failure of it is a SyscallError."""
        model = self._model(request)
        content = wire.encode_request(request, model, stream)
        headers = self._headers(stream)
        client = await self._connected()
        import httpx2  # brought in by the line above

        seconds = request.timeout_ms / 1000 or self._timeout_s
        url = f"{self._base_url}/chat/completions"
        try:
            with trio.fail_after(seconds):
                async with client.stream("POST", url, content=content, headers=headers) as response:
                    if response.status_code != 200:
                        raise await _refusal(response)
                    answer = await read(response)
        except trio.TooSlowError:
            raise self._failed(Code.TIMEOUT, f"no complete answer within {seconds:g} s") from None
        except WireError as error:
            raise self._failed(error.code, error.text) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed(*_network_failure(error, self._base_url)) from None
        answer.model = answer.model or model
        return answer

    def _model(self, request: ModelRequest) -> str:
        model = request.model or self._default_model
        if reason := self.unavailable():
            raise SyscallError(Code.PERMISSION, f"{self.provider}: {reason}")
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

    def _failed(self, code: Code, text: str) -> SyscallError:
        return SyscallError(code, f"{self.provider}: {one_line(text, self._key())}")


def _new_client(base_url: str) -> "httpx2.AsyncClient":
    import httpx2

    # One deadline covers the whole call; only a server that never takes the connection is found sooner.
    timeout = httpx2.Timeout(None, connect=limits.MODEL_CONNECT_SECONDS)
    if not is_loopback(base_url):
        return httpx2.AsyncClient(timeout=timeout)
    # A proxy of the environment is no way to a server on this machine. Reading all certificates, 0.1 s, is
    # left out where none is looked at; without them, no TLS connection could come about.
    plain = base_url.startswith("http:")
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
    return httpx2.AsyncClient(timeout=timeout, trust_env=False, verify=verify)


def _network_failure(error: Exception, where: str) -> tuple[Code, str]:
    """What a failure of the HTTP library means."""
    import httpx2

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


async def _events(
    response: "httpx2.Response", request: ModelRequest, emit: Callable[[str], None]
) -> ModelAnswer:
    events, reader, size = EventReader(), wire.StreamReader(), 0

    def take(chunk: bytes) -> bool:
        nonlocal size
        size += len(chunk)
        if size > limits.MODEL_REPLY_MAX:
            raise too_large()
        for data in events.feed(chunk):
            if text := reader.feed(data):
                emit(text)
        return reader.done

    await _receive(response, take)
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
