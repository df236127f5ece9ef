"""Addresses of models: which are taken, and which lead to this machine."""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from rnixfs.presets import ANTHROPIC, CLAUDE_CLI, GEMINI, OPENAI_COMPAT
from rnixfs.yamlread import Fields

_EXAMPLE = "an address such as http://127.0.0.1:11434/v1"
_MESSAGES = ("/v1/messages", "/v1")
# What each driver adds by itself, so that an address with it would have it twice.
_ADDED: Mapping[str, tuple[str, ...]] = {
    OPENAI_COMPAT: ("/chat/completions", "/models"),
    ANTHROPIC: _MESSAGES,
    CLAUDE_CLI: _MESSAGES,
    GEMINI: ("/v1beta/models", "/v1beta", "/v1/models", "/v1"),
}


def read_base_url(entry: Fields, driver: str) -> str:
    """The field `base_url` of a provider, without a slash at its end; "" where it is missing.

    Raises:
        ManifestError: it is no address of HTTP, holds a secret, or goes on to what the driver adds.
    """
    text = entry.text("base_url", limit=2000, right=_EXAMPLE)
    if text and (wrong := _problem(text)):
        raise entry.error("base_url", wrong, f"write {_EXAMPLE}")
    text = text.rstrip("/")
    for tail in _ADDED.get(driver, ()):
        if text.endswith(tail):
            right = f"the driver {driver} adds that; write {text.removesuffix(tail)}"
            raise entry.error("base_url", f"ends in {tail}", right)
    return text


def _problem(text: str) -> str:
    try:
        url = urlsplit(text)
        port_is_good = url.port != 0
    except ValueError:
        return "is not an address"
    if url.username is not None or url.password is not None:
        return "holds a user name or password"
    if url.query or url.fragment:
        return "goes on after the path"
    return "" if _is_http(url) and port_is_good and re.fullmatch(r"[!-~]+", text) else "is not an address"


def _is_http(url: SplitResult) -> bool:
    return url.scheme in ("http", "https") and bool(url.hostname)


def is_loopback(base_url: str) -> bool:
    """Whether an address leads to this machine by its form, without asking for names."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
