"""What holds for every test: a bounded time, a home of its own, no money, no proxies."""

import os
import pathlib
import resource
import shutil
import signal
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

FILES_WANTED = 4096  # open files: a test with 300 programs holds three pipes of each

HOME = pytest.StashKey[pathlib.Path]()


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN_PREFIXES) or name.endswith(FOREIGN_SUFFIXES) or name.lower() in PROXIES


def _usual_surroundings() -> None:
    """Be started as from a terminal. Whoever runs the tests may ignore or block signals (a shell does, for
    what it starts in the background), and programs that the tests start would inherit that."""
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def pytest_configure(config: pytest.Config) -> None:
    """Give the whole run a home of its own, so that nothing of the user's is read or written."""
    _usual_surroundings()
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
