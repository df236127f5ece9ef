"""Can this user mount a FUSE file system here? Tries it; exit status 1 and one sentence where not.

Needs nothing but Python: it runs before anything is installed.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile

DEVICE = "/dev/fuse"
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2  # <sys/mount.h>
IN_A_CONTAINER = (
    "in a container, start that with "
    "'--device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined'"
)


class RefusedError(Exception):
    """Mounting is impossible; the text is the sentence to show."""


def open_device() -> int:
    """A descriptor of /dev/fuse, opened as a file system's daemon does."""
    try:
        return os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RefusedError(
            f"this machine has no {DEVICE}, so nothing can be mounted: run 'modprobe fuse' as root, "
            f"or, {IN_A_CONTAINER}."
        ) from None
    except OSError as error:
        raise RefusedError(
            f"{DEVICE} cannot be opened ({error.strerror}): run this as root, or let every user open it "
            f"by 'chmod 666 {DEVICE}' as root, or, {IN_A_CONTAINER}."
        ) from None


def mount_as_root(device: int, folder: str) -> None:
    """mount(2) without a helper, as libfuse does for root."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"rnixfs-check", folder.encode(), b"fuse", MS_NOSUID | MS_NODEV, options):
        reason = os.strerror(ctypes.get_errno())
        raise RefusedError(
            f"root may not mount a FUSE file system here ({reason}): {IN_A_CONTAINER}, "
            "or use a machine where root may mount."
        )
    # The descriptor goes first: then the kernel asks nobody anything while it unmounts.
    os.close(device)
    libc.umount2(folder.encode(), MNT_DETACH)


def mount_as_user(folder: str) -> None:
    """Mount through fusermount3, the helper for those who are not root."""
    helper = shutil.which("fusermount3")
    if helper is None:
        raise RefusedError("the command fusermount3 is missing: install the package fuse3 as root.")
    ours, its = socket.socketpair()
    with ours, its:
        # fusermount3 takes this descriptor from the environment and sends the one of /dev/fuse through it.
        done = subprocess.run(
            [helper, "-o", "fsname=rnixfs-check", "--", folder],
            env=os.environ | {"_FUSE_COMMFD": str(its.fileno())},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise RefusedError(
                f"this user may not mount a FUSE file system here ({reason[0]}): run this as root, "
                f"or, {IN_A_CONTAINER}."
            )
        for descriptor in socket.recv_fds(ours, 1, 1)[1]:
            os.close(descriptor)
    subprocess.run([helper, "-u", "-z", "--", folder], stdin=subprocess.DEVNULL, capture_output=True)


def check() -> None:
    """Mount and unmount once.

    Raises:
        RefusedError: it cannot be done.
    """
    device = open_device()
    folder = tempfile.mkdtemp(prefix="rnixfs-check-")
    try:
        if os.geteuid() == 0:
            mount_as_root(device, folder)
        else:
            os.close(device)
            mount_as_user(folder)
    finally:
        os.rmdir(folder)


if __name__ == "__main__":
    try:
        check()
    except RefusedError as refusal:
        sys.exit(f"rnixfs: {refusal}")
    print("rnixfs: FUSE: mounting works")
