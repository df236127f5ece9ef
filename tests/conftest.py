"""What holds for every test: a bounded time, a home of its own, no money, no proxies."""

import os
import pathlib
import shutil
import tempfile

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "ci",
    # A loaded machine is slow, not wrong; and the same examples every time, so that a failure repeats.
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Variables that would make a test reach, spend at, or be steered by something outside of it.
FOREIGN_PREFIXES = ("RNIX_", "ANTHROPIC_", "CLAUDE_", "OPENAI_", "GEMINI_", "CURSOR_", "GIT_")
FOREIGN_SUFFIXES = ("_API_KEY", "_AUTH_TOKEN")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

HOME = pytest.StashKey[pathlib.Path]()


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN_PREFIXES) or name.endswith(FOREIGN_SUFFIXES) or name.lower() in PROXIES


def pytest_configure(config: pytest.Config) -> None:
    """Give the whole run a home of its own, so that nothing of the user's is read or written."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="rnixfs-home-"))
    config.stash[HOME] = home
    for name in filter(_is_foreign, list(os.environ)):
        del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["XDG_CONFIG_HOME"] = str(home / ".config")
    os.environ["XDG_DATA_HOME"] = str(home / ".local" / "share")
    os.environ["XDG_RUNTIME_DIR"] = str(home / "run")
    (home / "run").mkdir(mode=0o700)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that home, unless something is still mounted in it: then removing could reach beyond it."""
    home = config.stash[HOME]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    if f" {home}/" not in mounts:
        shutil.rmtree(home, ignore_errors=True)
