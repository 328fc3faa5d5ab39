"""Model folders in an object store: readers and runs work on a local copy, and a run uploads its changes.

Files are uploaded in the order of their names and removed in the reverse order, so a checkpoint's `state.json`, without
which it doesn't count, is the last to appear and the first to go. The next upload removes incomplete ones.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

from webtext.base.storage import Folder


class ModelCopy:
    """A local copy, in `path`, of the model folder at a URL; it is removed when its process ends."""

    def __init__(self, url: str) -> None:
        self._folder = Folder(url)
        self._temporary = tempfile.TemporaryDirectory(prefix="webtext-model-", ignore_cleanup_errors=True)
        self.path = Path(self._temporary.name)
        names = self._folder.names_within()
        kept = [name for name in names if name.startswith("checkpoints/")]
        half = [name for name in kept if f"{name.rpartition('/')[0]}/state.json" not in names]
        for name in sorted(set(names) - set(half)):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            with self._folder.open(name) as file, open(self.path / name, "wb") as copy:
                shutil.copyfileobj(file, copy)
        self._stored = self._files() | dict.fromkeys(half, (-1, -1))

    def upload(self) -> None:
        """Make the folder at the URL equal to the copy."""
        files = self._files()
        for name in sorted(files):
            if self._stored.get(name) != files[name]:
                with self._folder.scratch(name) as path:
                    shutil.copyfile(self.path / name, path)
        for name in sorted(self._stored.keys() - files.keys(), reverse=True):
            self._folder.remove(name)
        self._stored = files

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return path -> (size, time of change) of the finished files."""
        found = {}
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if path.is_file() and not any(each.startswith(".") for each in name.split("/")):
                found[name] = path.stat().st_size, path.stat().st_mtime_ns
        return found


def local_model(place: str | os.PathLike[str]) -> Path:
    """Return the local path of a model folder; one at a URL is copied once per process."""
    folder = Folder(place)
    return folder.local_path() if folder.is_local else _copy(folder.url).path


_copy = functools.cache(ModelCopy)
