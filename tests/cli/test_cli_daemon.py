"""Finding, starting and describing the daemon, with a stand-in for it that lays plain files."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60

# Says what it was called with, mounts nothing, and leaves: the files stay, as if it went on.
READY = """
import json, os, pathlib, sys
arguments = sys.argv[1:]
where = pathlib.Path(arguments[arguments.index("--mount") + 1])
with open(STARTS, "a") as starts:
    start = {"arguments": arguments, "sid": os.getsid(0) == os.getpid(), "cwd": os.getcwd()}
    starts.write(json.dumps(start) + "\\n")
(where / "sys").mkdir(parents=True)
(where / "proc").mkdir()
(where / "sys/version").write_text("0.0.1")
(where / "proc/processes").write_text("")
os.write(int(arguments[arguments.index("--ready-fd") + 1]), b"ready\\n")
"""
FAILS = """
import os, sys
os.write(int(sys.argv[sys.argv.index("--ready-fd") + 1]), b"error: /dev/fuse is missing; load the module\\n")
"""
DIES = """
import sys
print("no room on this host", file=sys.stderr)
sys.exit(1)
"""


TELLS = """
import json, os, pathlib, sys
where = pathlib.Path(sys.argv[sys.argv.index("--mount") + 1])
(where / "sys").mkdir(parents=True)
(where / "proc").mkdir()
(where / "sys/version").write_text("0.0.1")
(where / "proc/processes").write_text("")
fd = int(sys.argv[sys.argv.index("--ready-fd") + 1])
os.write(fd, b"notice: the log was damaged; 3 of 4 processes were saved\\nnotice: 2 processes ar")
os.write(fd, b"e suspended\\n")
os.write(fd, LAST)
"""


class Host:
    """A host on which `rnixfs.boot` is a stand-in."""

    def __init__(self, folder, boot):
        self.folder = folder
        self.mount = folder / "mnt"
        self.starts_file = folder / "starts"
        package = folder / "packages" / "rnixfs"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "boot.py").write_text(f"STARTS = {str(self.starts_file)!r}\n" + boot)
        self.env = os.environ | {
            "RNIX_MOUNT": str(self.mount),
            "XDG_RUNTIME_DIR": str(folder),
            "PYTHONPATH": os.pathsep.join([str(folder / "packages"), str(ROOT / "cli")]),
        }

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "rnixfs_cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.folder,
        )

    def __call__(self, *words):
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, out, err

    def starts(self):
        if not self.starts_file.exists():
            return []
        return [json.loads(line) for line in self.starts_file.read_text().splitlines()]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, READY)


def test_the_first_command_starts_the_daemon(host):
    """A command that finds no daemon starts one that leaves when idle, in a session of its own."""
    status, out, err = host("ps")
    assert (status, err) == (0, "")
    assert out.lstrip().startswith("PID")
    (start,) = host.starts()
    arguments = start["arguments"]
    assert arguments[arguments.index("--mount") + 1] == str(host.mount)
    assert "--idle-exit" in arguments
    assert "--fs-write" not in arguments
    assert start["sid"]
    assert start["cwd"] == str(host.folder)


def test_a_running_daemon_is_used(host):
    """The second command starts nothing."""
    assert host("ps")[0] == 0
    assert host("ps")[0] == 0
    assert len(host.starts()) == 1


def test_racing_commands_start_one_daemon(host):
    """However many commands find no daemon at once, one is started."""
    racing = [host.start("ps") for _ in range(4)]
    for process in racing:
        process.communicate(timeout=SECONDS)
    assert [process.returncode for process in racing] == [0] * 4
    assert len(host.starts()) == 1


def test_mount_hands_its_options_on(host):
    """`rnix mount` starts a daemon that stays, with the roots and rights it is given."""
    (host.folder / "data").mkdir()
    status, out, _ = host("mount", "mnt", "--root", "data", "--fs-write")
    assert (status, out) == (0, f"[kernel] mounted at {host.mount}\n")
    (start,) = host.starts()
    assert start["arguments"][4:] == ["--root", str(host.folder / "data"), "--fs-write"]
    assert host("mount") == (0, f"[kernel] already mounted at {host.mount}\n", "")
    status, _, err = host("mount", "--fs-write")
    assert status == 1
    assert "would have no effect" in err


def test_mount_in_the_foreground_ends_with_the_daemon(host):
    """--foreground stays in this session until the daemon ends, with its status."""
    assert host("mount", "--foreground")[0] == 0
    (start,) = host.starts()
    assert "--foreground" in start["arguments"]
    assert not start["sid"]


@pytest.mark.parametrize(
    ("root", "said"), [("mnt/x", "inside the mountpoint"), ("nowhere", "folder that exists")]
)
def test_roots_that_cannot_be(host, root, said):
    """A root inside the mountpoint, or one that is missing, is refused before anything starts."""
    status, _, err = host("mount", "--root", root)
    assert status == 1
    assert said in err
    assert host.starts() == []


def test_a_daemon_that_cannot_mount_says_why(tmp_path):
    """The daemon's own sentence is what the command shows."""
    status, out, err = Host(tmp_path, FAILS)("ps")
    assert (status, out) == (1, "")
    assert err == f"[SERVICE_UNAVAILABLE] Mount: {tmp_path / 'mnt'} (/dev/fuse is missing; load the module)\n"


def test_a_daemon_that_dies_leaves_its_last_words(tmp_path):
    """A daemon that dies without a word for us is quoted from its log, which nobody else may read."""
    status, _, err = Host(tmp_path, DIES)("ps")
    assert status == 1
    assert "the daemon ended before it had mounted; it said: no room on this host" in err
    assert (tmp_path / "rnix").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "rnix/daemon.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("last", "status", "words"),
    [
        ('b"ready\\n"', 0, ""),
        ('b"error: no room\\n"', 1, "(no room)\n"),
        ('b""', 1, "(the daemon ended before it had mounted)\n"),
    ],
)
def test_what_the_daemon_says_of_its_state_is_told(tmp_path, last, status, words):
    """Notices come before the last word; each is a warning on stderr, whatever comes after them."""
    found, out, err = Host(tmp_path, f"LAST = {last}\n" + TELLS)("ps", "--json")
    assert (found, out[:1]) == (status, "[" if status == 0 else "{")
    lines = err.splitlines(keepends=True)
    assert lines[:2] == [
        "[kernel] warning: the log was damaged; 3 of 4 processes were saved\n",
        "[kernel] warning: 2 processes are suspended\n",
    ]
    assert "".join(lines[2:]).endswith(words)


@pytest.mark.parametrize(
    ("given", "passed"), [("none", "none"), ("state", "FOLDER/state"), ("./none", "FOLDER/none")]
)
def test_mount_hands_the_folder_of_the_state_on(host, given, passed):
    """A folder goes as an absolute path, `none` as it is; a running daemon has its state already."""
    assert host("mount", "--state", given)[0] == 0
    (start,) = host.starts()
    assert start["arguments"][-2:] == ["--state", passed.replace("FOLDER", str(host.folder))]
    status, _, err = host("mount", "--state", given)
    assert status == 1
    assert "would have no effect" in err


@pytest.mark.parametrize(
    ("given", "status", "said"), [("", 2, "it is empty"), ("mnt/state", 1, "inside the mountpoint")]
)
def test_a_state_folder_that_cannot_be(host, given, status, said):
    """Refused before anything starts."""
    found, _, err = host("mount", "--state", given)
    assert found == status
    assert said in err
    assert host.starts() == []


def test_without_a_wish_the_daemon_chooses_its_state(host):
    """A command that starts the daemon by itself names no folder."""
    host("ps")
    assert "--state" not in host.starts()[0]["arguments"]


@pytest.mark.parametrize(
    ("processes", "log", "said"),
    [
        ([], "/x/log.db", []),
        ([{"pid": 7}], "/x/log.db", ["[kernel] 1 process suspended; to go on: rnix resume 7"]),
        (
            [{"pid": 1}, {"pid": 2, "ppid": 1}, {"pid": 4, "ppid": 3}, {"pid": 5, "suspended": "why"}],
            "/x/log.db",
            ["[kernel] 3 processes suspended; to go on: rnix resume 1 4"],
        ),
        (
            [{"pid": pid} for pid in range(1, 8)],
            "/x/log.db",
            ["[kernel] 7 processes suspended; to go on: rnix resume PID (see: rnix ps)"],
        ),
        ([{"pid": 7}], "", ["[kernel] 1 process ended with it: the log was in memory only"]),
    ],
)
def test_who_was_at_work_when_the_daemon_left(tmp_path, processes, log, said):
    """Told with what to type: those whose parents do not wake them, and nobody who slept already."""
    import io

    from rnixfs_cli import leaving, screen

    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc/processes").write_text("".join(json.dumps(one) + "\n" for one in processes))
    (tmp_path / "sys/config").write_text(json.dumps({"log": log}))
    paper = io.StringIO()
    found = leaving.look(str(tmp_path))
    leaving.tell(found, screen.Screen(paper, False))
    assert paper.getvalue().splitlines() == said
    running = [one["pid"] for one in processes if not one.get("suspended")]
    assert found.as_dict() == {"suspended": running if log else []}
    assert leaving.look(str(tmp_path / "nowhere")) == leaving.NOBODY


def test_files_are_not_hidden(host):
    """A folder with files in it is not mounted on."""
    host.mount.mkdir()
    (host.mount / "thesis.txt").write_text("x")
    status, _, err = host("ps")
    assert status == 1
    assert err.startswith("[NOT_EMPTY] Mount:")
    assert host.starts() == []


def test_nobody_stands_in_the_mountpoint(host):
    """A command that stands where the daemon would mount is refused."""
    host.mount.mkdir()
    program = [sys.executable, "-m", "rnixfs_cli", "ps"]
    done = subprocess.run(
        program,
        env=host.env,
        cwd=host.mount,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "cd out of it" in done.stderr


def test_modules_of_the_current_folder_are_not_the_daemons(host):
    """A file of the current folder never passes for a module of the daemon."""
    (host.folder / "rnixfs").mkdir()
    (host.folder / "rnixfs/__init__.py").write_text("raise SystemExit('taken over')")
    assert host("ps")[0] == 0


def test_status_does_not_start_the_daemon(host):
    """`daemon status` says that nothing runs, with status 3, and starts nothing; `stop` is content."""
    status, out, _ = host("daemon", "status")
    assert status == 3
    assert "not running" in out
    assert json.loads(host("daemon", "status", "--json")[1])["state"] == "not running"
    assert host("daemon", "stop") == (0, "[kernel] daemon not running\n", "")
    assert host.starts() == []


def test_status_of_a_running_daemon(host):
    """What the daemon says of itself is shown, its numbers beside the others."""
    host("ps")
    (host.mount / "sys/uptime").write_text("12.5\n")
    (host.mount / "sys/stats").write_text('{"processes": 2}\n')
    status, out, _ = host("daemon", "status")
    assert status == 0
    words = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert words == {
        "state:": "running",
        "mount:": str(host.mount),
        "version:": "0.0.1",
        "uptime:": "12.5",
        "processes:": "2",
    }


def test_only_our_mounts_are_unmounted(host):
    """What is not mounted, or not ours, is left alone."""
    status, _, err = host("umount")
    assert (status, err) == (1, f"[INVALID] Umount: {host.mount} (not mounted)\n")
    status, _, err = host("umount", "/proc")
    assert status == 1
    assert "not a tree of rnix" in err


def test_runtime_folder_of_another_is_refused(host):
    """A run-time folder that is a link, as another user might lay it, is not used."""
    (host.folder / "elsewhere").mkdir()
    (host.folder / "rnix").symlink_to("elsewhere")
    status, _, err = host("ps")
    assert status == 1
    assert "must be a folder of yours" in err


def test_a_look_that_hangs_is_given_up(tmp_path):
    """A read that never ends is ended by its time limit, and errors come through with their number."""
    os.mkfifo(tmp_path / "never")
    program = textwrap.dedent(f"""
        import errno
        from rnixfs_cli import bounded, mountpoint
        for path in ({str(tmp_path / "never")!r}, {str(tmp_path / "missing")!r}):
            try:
                bounded.read_file(path, 0.2)
            except OSError as error:
                print(errno.errorcode[error.errno])
        print(len(bounded.bounded(lambda: b"x" * 300_000, 60)))
    """)
    env = os.environ | {"PYTHONPATH": str(ROOT / "cli")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.split() == ["ETIMEDOUT", "ENOENT", "300000"]


def test_doctor_looks_at_the_host(tmp_path):
    """Each check says what it found and what to do; one that is needed and missing makes the status 1."""
    status, out, _ = Host(tmp_path, FAILS)("doctor", "--json")
    findings = {one["name"]: one for one in json.loads(out)}
    assert status == 1
    assert findings["python"]["ok"]
    assert findings["mount"]["ok"] is False
    assert "/dev/fuse is missing" in findings["mount"]["detail"]
    assert not findings["claude"]["needed"]


def test_doctor_finds_what_is_wrong(tmp_path):
    """A missing device and a time limit for requests are found, each with its remedy."""
    from rnixfs_cli import doctor

    assert "modprobe" in doctor.device(str(tmp_path / "fuse")).remedy
    (tmp_path / "max_request_timeout").write_text("10\n")
    (finding,) = doctor.timeouts(str(tmp_path))
    assert (finding.ok, finding.needed) == (False, True)
    assert "sysctl -w fs.fuse.max_request_timeout=0" in finding.remedy
