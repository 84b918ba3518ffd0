"""Copy of an exported directory by libnfs, an NFS client that shares no code with the kernel's client.

The harness copies this file into machines: standard library only. Run as ``libnfs_copy.py ADDRESS VERSION SOURCE
TARGET``: it copies the directory SOURCE of the server's name space to the new local directory TARGET, by NFS VERSION 3
or 4 (libnfs has NFSv4.0), and prints the version of the library. Names, modes, sizes, hard links, symbolic links and
data are copied, of large files the last data; extended attributes are not. Exit status 2: the machine has no libnfs
with a known interface.

Structures and functions: include/nfsc/libnfs.h of libnfs.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64, c_void_p
from typing import Any

LIBRARIES = ("libnfs.so.14", "libnfs.so.13")
"""The libraries with the interface of this file: libnfs 5 and 4. libnfs 6 has another order of arguments."""
NO_LIBRARY = 2
PIECE = 1 << 18
"""Bytes of one read."""
LARGE, LAST = 1 << 27, 1 << 20
"""Size of a file, in bytes, from which on it counts as sparse; number of its last bytes that are copied.

NFSv3 and NFSv4.0 cannot ask for the holes of a file, and the ledger has files of 1 TiB with a few bytes at the end.
"""
LONGEST_TARGET = 4096


class Status(ctypes.Structure):
    """The attributes of a file (struct nfs_stat_64)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
            *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used"),
        )
    ]


class Entry(ctypes.Structure):
    """The beginning of an entry of a directory (struct nfsdirent)."""

    _fields_ = [("next", c_void_p), ("name", c_char_p)]


class Refused(Exception):
    """The server or libnfs refused a call."""


class Export:
    """A directory of a server that libnfs has mounted; paths are below this directory and begin with a slash."""

    def __init__(self, library: ctypes.CDLL, address: str, version: int, source: str) -> None:
        self._library = library
        for name in ("nfs_init_context", "nfs_readdir"):
            getattr(library, name).restype = c_void_p
        library.nfs_get_error.restype = c_char_p
        self._context = c_void_p(library.nfs_init_context())
        self._call("nfs_set_version", c_int(version))
        self._call("nfs_mount", address.encode(), source.encode())

    def status(self, path: str) -> Status:
        """Return the attributes of a file, without following a symbolic link."""
        found = Status()
        self._call("nfs_lstat64", os.fsencode(path), byref(found))
        return found

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, without ``.`` and ``..``."""
        directory = c_void_p()
        self._call("nfs_opendir", os.fsencode(path), byref(directory))
        found = []
        while entry := self._library.nfs_readdir(self._context, directory):
            name = ctypes.cast(entry, POINTER(Entry)).contents.name
            found.append(os.fsdecode(name))
        self._library.nfs_closedir(self._context, directory)
        return sorted({*found} - {".", ".."})

    def target(self, path: str) -> str:
        """Return the target of a symbolic link."""
        buffer = ctypes.create_string_buffer(LONGEST_TARGET)
        self._call("nfs_readlink", os.fsencode(path), buffer, c_int(LONGEST_TARGET))
        return os.fsdecode(buffer.value)

    def data(self, path: str, begin: int) -> Iterator[bytes]:
        """Yield the data of a regular file from byte ``begin`` on, piece by piece."""
        file = c_void_p()
        self._call("nfs_open", os.fsencode(path), c_int(os.O_RDONLY), byref(file))
        buffer, at = ctypes.create_string_buffer(PIECE), begin
        while count := self._call("nfs_pread", file, c_uint64(at), c_uint64(PIECE), buffer):
            yield buffer.raw[:count]
            at += count
        self._call("nfs_close", file)

    def _call(self, name: str, *arguments: Any) -> int:
        result = int(getattr(self._library, name)(self._context, *arguments))
        if result < 0:
            error = (self._library.nfs_get_error(self._context) or b"").decode(errors="replace")
            raise Refused("%s: %s: %s" % (name, os.strerror(-result), error))
        return result


class Copy:
    """The copy of the files of an export in the new local directory ``target``.

    The source may have nothing but directories, regular files, pipes and symbolic links.
    """

    def __init__(self, export: Any, target: str) -> None:
        self._export = export
        self._target = target
        self._copies: dict[int, str] = {}
        """The path of the copy of each file, by inode number."""
        self._modes: list[tuple[str, int]] = []

    def make(self) -> None:
        """Copy all files.

        Raises:
            Refused: the server refused a call.
            OSError: the copy cannot be written, a file ends early, or a name has another kind.
        """
        self._directory("")
        # At the end, so that no mode prevents a later step.
        for path, mode in reversed(self._modes):
            os.chmod(path, mode)

    def _directory(self, path: str) -> None:
        os.mkdir(self._target + path)
        for name in self._export.names(path or "/"):
            one = path + "/" + name
            status = self._export.status(one)
            if status.ino in self._copies:
                os.link(self._copies[status.ino], self._target + one, follow_symlinks=False)
            else:
                self._entry(one, status)

    def _entry(self, path: str, status: Any) -> None:
        target = self._target + path
        kind = stat.S_IFMT(status.mode)
        if kind == stat.S_IFDIR:
            self._directory(path)
        elif kind == stat.S_IFLNK:
            os.symlink(self._export.target(path), target)
        elif kind == stat.S_IFIFO:
            os.mkfifo(target)
        elif kind == stat.S_IFREG:
            with open(target, "wb") as file:
                begin = status.size - LAST if status.size > LARGE else 0
                file.seek(begin)
                file.writelines(self._export.data(path, begin))
                if file.tell() != status.size:
                    raise OSError("%s has %d bytes instead of %d" % (path, file.tell(), status.size))
        else:
            raise OSError("%s has the kind 0%o" % (path, kind))
        if kind != stat.S_IFDIR:
            self._copies[status.ino] = target
        if kind != stat.S_IFLNK:
            self._modes.append((target, stat.S_IMODE(status.mode)))


def library() -> tuple[str, ctypes.CDLL] | None:
    """Return the name of the machine's libnfs, and the library; None without any."""
    for name in LIBRARIES:
        try:
            return name, ctypes.CDLL(name)
        except OSError:
            continue
    return None


if __name__ == "__main__":
    loaded = library()
    if loaded is None:
        sys.exit(NO_LIBRARY)
    address, version, source, target = sys.argv[1:]
    Copy(Export(loaded[1], address, int(version), source), target).make()
    print(loaded[0])
