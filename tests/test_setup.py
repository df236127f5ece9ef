"""The set-up: locks, the Makefile, the package, and the second try of failed tests."""

import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rnixfs import shipped

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
LOCKS = ("requirements-build.lock", "requirements.lock", "requirements-dev.lock")

# Installed for the program it bundles; its own dependencies are left out on purpose.
INCOMPLETE = {"claude-agent-sdk"}


def pins(name: str) -> dict[str, str]:
    """The versions that a lock file pins."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(project): version for project, version in (line.split("==") for line in lines)}


def targets() -> set[str]:
    """What the Makefile can make."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unmet(requirement: Requirement, pinned: dict[str, str]) -> bool:
    """Whether pins do not fulfil a requirement that holds on this machine."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return False
    version = pinned.get(canonicalize_name(requirement.name))
    return version is None or not requirement.specifier.contains(version, prereleases=True)


# --- locks ---


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_exact_versions_and_nothing_else(name):
    """Each line pins one version: no ranges, no hashes, no addresses, sorted, once."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line)] == []
    assert lines == sorted(set(lines), key=lambda line: line.partition("==")[0].lower())


@pytest.mark.parametrize("dependency", PROJECT["dependencies"])
def test_each_dependency_is_pinned_within_its_range(dependency):
    """What pyproject.toml asks for at run time is in requirements.lock, in a version that it allows."""
    assert not unmet(Requirement(dependency), pins("requirements.lock"))


@pytest.mark.parametrize("tool", PROJECT["optional-dependencies"]["dev"])
def test_each_tool_is_pinned_within_its_range(tool):
    """What pyproject.toml asks for checks and tests is in requirements-dev.lock."""
    assert not unmet(Requirement(tool), pins("requirements-dev.lock"))


def test_the_locks_agree():
    """No two locks pin different versions of one project."""
    both = [
        (name, pins(a)[name], pins(b)[name])
        for a in LOCKS
        for b in LOCKS
        for name in pins(a)
        if name in pins(b)
    ]
    assert [clash for clash in both if clash[1] != clash[2]] == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_are_complete(lock):
    """Whatever a pinned project needs is pinned as well: the set-up installs without resolving."""
    pinned = {name: version for each in LOCKS for name, version in pins(each).items()}
    runtime = pins("requirements.lock")
    for name in pins(lock).keys() - INCOMPLETE:
        needs = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        known = runtime if lock == "requirements.lock" else pinned
        assert [str(need) for need in needs if unmet(need, known)] == [], (
            f"{name} needs more than {lock} pins"
        )


def test_this_run_uses_the_pinned_versions():
    """The tests speak of what the set-up installs, where it was the set-up that installed."""
    if not (pathlib.Path(sys.prefix) / ".test").exists():
        assert sys.prefix != str(ROOT / ".venv"), "this .venv was not finished by make"
        return
    pinned = pins("requirements.lock") | pins("requirements-dev.lock")
    assert {name: importlib.metadata.version(name) for name in pinned} == pinned


# --- the Makefile and its scripts ---


def test_the_makefile_has_its_targets():
    """The commands that the documents name exist."""
    wanted = {
        "demo",
        "setup",
        "dev",
        "test",
        "check",
        "lint",
        "type",
        "unit",
        "fmt",
        "bench",
        "clean",
        "lock",
    }
    assert wanted - targets() == set()


def test_every_make_command_that_is_named_exists():
    """No lock, script or document names a target that the Makefile lacks."""
    named = []
    for pattern in ("*.md", "*.lock", ".ci/*", "docs/**/*.md"):
        for file in ROOT.glob(pattern):
            named += [
                (target, file.name) for target in re.findall(r"[`']make ([a-z][a-z-]*)", file.read_text())
            ]
    assert [(target, name) for target, name in named if target not in targets()] == []
    assert named


@pytest.mark.parametrize(
    "script", [*sorted(ROOT.glob(".ci/*.sh")), ROOT / ".ci" / "run"], ids=lambda path: path.name
)
def test_the_scripts_are_bash(script):
    """Each script parses."""
    subprocess.run(["bash", "-n", script], check=True, timeout=30)


def bare_machine(tmp_path, *commands):
    """A PATH that holds only the named commands and what every system has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for command in ("bash", "cat", "dirname", "env", "id", "mktemp", "rm", "tr", *commands):
        found = subprocess.run(
            ["bash", "-c", f"type -P {command}"], capture_output=True, text=True, check=True
        )
        (folder / command).symlink_to(found.stdout.strip())
    return {"PATH": str(folder), "HOME": str(tmp_path)}


def test_without_a_package_manager_one_sentence_says_what_is_missing(tmp_path):
    """Where nothing can be installed, the set-up stops at once and names each package that it wanted."""
    done = subprocess.run(
        ["bash", ROOT / ".ci" / "install-packages.sh", "run"],
        env=bare_machine(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert re.search(r"no apt-get.*: .*fuse3 .*pkg-config libfuse3-dev gcc ", done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_the_right_to_mount_is_tried_and_leaves_nothing(tmp_path):
    """Where mounting works the check says so, and takes away again what it mounted."""
    done = subprocess.run(
        ["bash", ROOT / ".ci" / "check-fuse.sh"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "rnixfs: FUSE: mounting works\n", "")
    assert str(tmp_path) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "words"), [("/nonexistent/fuse", "has no /nonexistent/fuse"), ("/", "cannot be opened")]
)
def test_without_the_device_one_sentence_names_the_remedy(device, words):
    """A machine that cannot mount learns why, and what to do, in one sentence."""
    source = (
        (ROOT / ".ci" / "check_fuse.py").read_text().replace('DEVICE = "/dev/fuse"', f"DEVICE = {device!r}")
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "as root" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- the second try ---


def try_tests(tmp_path, source):
    """Run .ci/unit.py on one file of tests, in a folder of its own; the ended process."""
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, ROOT / ".ci" / "unit.py", "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_run_that_passes_is_run_once(tmp_path):
    """Nothing is tried again without need, and the last line is pytest's count."""
    done = try_tests(tmp_path, "def test_a(): pass\ndef test_b(): pass")
    assert done.returncode == 0
    assert re.fullmatch(r"2 passed in [0-9.]+s", done.stdout.splitlines()[-1])


def test_what_passes_only_the_second_time_is_named(tmp_path):
    """One failure that does not repeat lets the run pass, and says loudly which test it was."""
    source = """
        import pathlib
        seen = pathlib.Path("seen")

        def test_steady(): pass

        def test_flaky():
            first = not seen.exists()
            seen.touch()
            assert not first
    """
    done = try_tests(tmp_path, source)
    assert done.returncode == 0
    loud = done.stdout.partition("passed only at the second try")[2]
    assert "test_it.py::test_flaky" in loud
    assert "test_steady" not in loud
    assert re.match(
        r"2 passed in [0-9.]+s \(1 of them only at the second try\)", done.stdout.splitlines()[-1]
    )


def test_what_fails_twice_fails(tmp_path):
    """A failure that repeats is the result of the run."""
    done = try_tests(tmp_path, "def test_a(): pass\ndef test_b(): assert False")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("1 passed, 1 failed in ")


def test_many_failures_get_no_second_try(tmp_path):
    """More than ten failures are no accident."""
    source = "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_a(n): assert False"
    done = try_tests(tmp_path, source)
    assert done.returncode == 1
    assert "11 tests failed, too many for a second try" in done.stdout


@pytest.mark.parametrize("source", ["import os\ndef test_a(): os._exit(0)", "def test_a(:", ""])
def test_a_run_that_cannot_be_trusted_fails(tmp_path, source):
    """A crash, a file that does not load and a run of no tests are failures, whatever the exit status."""
    done = try_tests(tmp_path, source)
    assert done.returncode == 1
    assert "pytest itself failed" in done.stdout


# --- the package ---


def test_every_package_is_listed():
    """Each folder of code is in the wheel."""
    folders = [file.parent for file in sorted((ROOT / "rnixfs").rglob("__init__.py"))]
    code = {".".join(folder.relative_to(ROOT).parts) for folder in folders} | {"rnixfs_cli"}
    listed = {name for name in PYPROJECT["tool"]["setuptools"]["packages"] if "._data" not in name}
    assert listed == code


def test_the_command_has_its_function():
    """The function that the command `rnix` starts exists."""
    module, _, function = PROJECT["scripts"]["rnix"].partition(":")
    source = (ROOT / "cli" / pathlib.Path(*module.split("."))).with_suffix(".py").read_text()
    defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert function in defined


@pytest.mark.parametrize("kind", ["agents", "skills"])
def test_a_checkout_uses_the_folders_at_its_top(kind):
    """From a checkout, what people edit is what runs."""
    assert shipped.folder(kind) == ROOT / kind


def test_an_installed_package_uses_its_own_folder(tmp_path):
    """An installed package never takes a folder beside it, which belongs to somebody else."""
    package = tmp_path / "rnixfs"
    (package / "_data" / "agents").mkdir(parents=True)
    (tmp_path / "agents").mkdir()
    assert shipped.folder("agents", package) == package / "_data" / "agents"


def test_a_broken_installation_says_where_it_looked(tmp_path):
    """A missing folder is an error that names the places."""
    with pytest.raises(FileNotFoundError, match=r"without its skills: looked for .*/_data/skills"):
        shipped.folder("skills", tmp_path / "rnixfs")


def test_the_wheel_holds_code_agents_and_skills(tmp_path):
    """A wheel built from the files of this repository holds every module, agent and skill."""
    # A copy, so that building leaves nothing behind here and meets nothing of an earlier build.
    copy = tmp_path / "copy"
    copy.mkdir()
    parts = ["rnixfs", "cli", "agents", "skills", "pyproject.toml", "LICENSE", "README.md"]
    subprocess.run(["cp", "-r", *(ROOT / part for part in parts), copy], check=True, timeout=60)
    build = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, tmp_path],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    wheel = tmp_path / done.stdout.splitlines()[-1]
    wanted = {str(file.relative_to(ROOT)) for file in (ROOT / "rnixfs").rglob("*.py")}
    wanted |= {str(file.relative_to(ROOT / "cli")) for file in (ROOT / "cli").rglob("*.py")}
    for kind in ("agents", "skills"):
        files = [file for file in (ROOT / kind).rglob("*") if file.is_file()]
        wanted |= {f"rnixfs/_data/{file.relative_to(ROOT)}" for file in files}
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()
