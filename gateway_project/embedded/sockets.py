"""Unix socket paths of the embedded stores: there is room for about a hundred bytes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from gateway_project.embedded.child_process import SystemUser

# macOS has room for 103 bytes, Linux for 107.
_ROOM = 103


def socket_folder(preferred: Path, socket_name: str, link: Path, owner: SystemUser | None) -> Path:
    """Return `preferred` if a socket's path fits there, else a short private folder that `link` remembers.

    A comma does not fit either: PostgreSQL's clients read it as the end of one host and the start of the next.
    """
    if len(os.fsencode(preferred / socket_name)) <= _ROOM and "," not in str(preferred):
        return preferred
    uid = owner.uid if owner else os.geteuid()
    if link.is_symlink():
        folder = link.readlink()
        if _is_private(folder, uid):
            return folder
        link.unlink()
    folder = Path(tempfile.mkdtemp(prefix="gateway-", dir=_short_temporary_folder(socket_name)))
    if owner:
        os.chown(folder, owner.uid, owner.gid)
    link.symlink_to(folder)
    return folder


def _is_private(folder: Path, uid: int) -> bool:
    """Return whether it is a real folder that only that user may enter: others can create names in a temporary one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def _short_temporary_folder(socket_name: str) -> str:
    usual = tempfile.gettempdir()
    fits = len(os.fsencode(usual)) + len("/gateway-12345678/") + len(socket_name) <= _ROOM
    return usual if fits else "/tmp"  # noqa: S108 - a private folder with a name of its own is made in it
