"""`python -m rnixfs.gateway`: the gateway as a program."""

import argparse
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from typing import NamedTuple, NoReturn, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import ASGIFramework

from rnixfs.errors import Code, SyscallError
from rnixfs.gateway import keys
from rnixfs.gateway.app import Gateway
from rnixfs.gateway.client import Client
from rnixfs.gateway.refusal import RefusedError

log = logging.getLogger("rnixfs.gateway")

GRACE_SECONDS = 5.0  # for requests that run when it is told to end, as in the reference
LEAVE_SECONDS = 5.0  # after that, for killing agents; then it goes whatever waits
KEEP_ALIVE_SECONDS = 60  # how long a connection without requests is kept
CHECK_SECONDS = 10.0  # for the daemon to answer at the start; a loaded machine takes milliseconds
BACKLOG = 1024  # connections that may wait to be taken
FILES_WANTED = 65_536  # open files


class Options(NamedTuple):
    """How it was started.

    Args:
        mount: absolute path of the mountpoint.
        host: the address to listen on.
        port: the port; 0 for one that is free.
        key_env: the variable with the key; "" for the key in the state folder.
        default: the model that stands for names that nobody knows; "" for none.
        as_json: whether what it says at its start is JSON.
    """

    mount: str
    host: str
    port: int
    key_env: str
    default: str
    as_json: bool


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="rnixfs.gateway", description="Offers models by HTTP.")
    parser.add_argument("--mount", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--key-env", default="")
    parser.add_argument("--default", default="")
    parser.add_argument("--json", action="store_true", dest="as_json")
    found = parser.parse_args(arguments)
    return Options(**vars(found))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        SyscallError: the address cannot be had.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        right = "name a free port with --port, or 0 for any; and an address of this machine with --host"
        words = ((isinstance(error, OSError) and error.strerror) or str(error)).lower()
        raise SyscallError(Code.SERVICE_UNAVAILABLE, f"{words}; {right}", device=f"{host}:{port}") from None
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def url_of(listening: socket.socket) -> str:
    """The address that a socket listens on."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def run(options: Options, key: keys.Key, listening: socket.socket) -> None:
    """Serve until a signal.

    Raises:
        SyscallError: there is no tree, or no such default.
    """
    mount = Client(options.mount, options.default)
    await _check(mount, options)
    gateway = Gateway(mount, key, is_loopback(listening))
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        _announce(options, key, listening)
        application, told = cast(ASGIFramework, gateway.application()), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, told, nursery.cancel_scope)
            await serve(
                application,
                server_config(listening, "rnixfs.gateway.server", GRACE_SECONDS),
                shutdown_trigger=told.wait,
                mode="asgi",
            )
            nursery.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[int], told: trio.Event, everything: trio.CancelScope) -> None:
    """End in peace at the first signal, at once at the next."""
    async for number in signals:
        name = signal.Signals(number).name
        if told.is_set():
            log.info("%s: ends now", name)
            everything.cancel()
            return
        log.info("%s: ends within %g s", name, GRACE_SECONDS)
        _leave_soon()
        told.set()


async def _check(mount: Client, options: Options) -> None:
    try:
        await mount.check(CHECK_SECONDS)
        catalog = await mount.catalog()
        if options.default:
            catalog.find("")
    except RefusedError as refusal:
        code = Code.NOT_FOUND if refusal.status == 404 else Code.SERVICE_UNAVAILABLE
        raise SyscallError(code, refusal.reason, device=options.default or options.mount) from None


def server_config(listening: socket.socket, log_name: str, grace: float) -> Config:
    """How a server of HTTP on the mount is set up.

    Args:
        listening: the socket that it takes over.
        log_name: where what is wrong with it goes.
        grace: seconds for requests that run when it is told to end.
    """
    config = Config()
    # Given away: once the server has closed it, nobody waits in vain to be taken.
    config.bind = [f"fd://{listening.detach()}"]
    config.graceful_timeout = grace
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger(log_name)
    config.errorlog.setLevel(logging.WARNING)
    return config


def _announce(options: Options, key: keys.Key, listening: socket.socket) -> None:
    url = url_of(listening)
    if options.as_json:
        print(json.dumps({"url": url, "key": key.origin, "mount": options.mount}), flush=True)
        return
    print(f"[serve] {url}/v1 offers the models of {options.mount}; key: {key.origin}", flush=True)
    if not is_loopback(listening):
        print(f"[serve] warning: other machines can reach {url}, and nothing is encrypted", flush=True)


def _leave_soon() -> None:
    """See that the end comes: a call of a mount whose daemon hangs waits for ever, in a thread."""
    timer = threading.Timer(GRACE_SECONDS + LEAVE_SECONDS, _go)
    timer.daemon = True
    timer.start()


def _go() -> NoReturn:
    log.error("a call of the mount does not come back; leaving without it")
    os._exit(1)


def _raise_file_limit() -> None:
    """Be allowed as many open files as may be: each request has two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(arguments: list[str] | None = None) -> int:
    """Run the gateway; returns its exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    _raise_file_limit()
    try:
        key = _key(options)
        with listen(options.host, options.port) as listening:
            trio.run(run, options, key, listening)
    except SyscallError as error:
        return _fail(options, error.at(syscall="Serve", device=options.mount))
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells report it: it had not begun
    return 0


def _key(options: Options) -> keys.Key:
    if options.key_env:
        return keys.from_environment(options.key_env, os.environ)
    return keys.from_file(keys.folder_of(os.environ))


def _fail(options: Options, error: SyscallError) -> int:
    if options.as_json:
        print(json.dumps({"error": error.as_dict()}), flush=True)
    print(error, file=sys.stderr, flush=True)
    return 1


def leave() -> NoReturn:
    """Run the gateway and end with its exit status."""
    sys.exit(main())
