"""Part sets, the files that stages exchange: a folder of numbered, immutable parts and one `manifest.json`.

    DIR/part-00000.parquet          records of one kind (base/parts/schemas.py), with attachments beside it (.warc.gz, .tok)
    DIR/part-00000.failures.jsonl   also an attachment: the records that failed, if there are any (`FailedRecord`)
    DIR/_parts/00000.json           the part's entry: it exists if and only if the part is done
    DIR/manifest.json               collects the entries and seals the set; replaced atomically
    DIR/run.json                    times, hosts, workers: not covered by any hash

Readers pin the manifest that they opened and reject a set that is unsealed, altered or of another kind.
`base/parts/partwriter.py` writes one part, `base/parts/stage.py` sets.

A set's parts name their parents' parts by digest (`SourcePart`). Its `run.json` has the parents' locations relative to the
set, so that a build can be moved as a whole. A URL there is opened only if it is in a store that the user named;
otherwise a set could make its readers connect to any host.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.recipe import Recipe, without_check
from webtext.base.run import Run
from webtext.base.storage import Folder, check_version, decode_json, file_sha256, pretty_json
from webtext.base.workers.attempt import Attempt

if TYPE_CHECKING:  # pyarrow is loaded with the first rows, so a machine without it can read token files
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
RUN = "run.json"
ENTRIES = "_parts"
PARENTS = "parents"  # in RUN
FAILURES = ".failures.jsonl"
QUARANTINE = "quarantine.json"
FILE = "file"  # a source's set, if its part is a file that a user named
MOST = 1 << 62  # of anything that is counted
PARTS_A_TASK = 16  # that a worker verifies: workers are replaced after 64 tasks


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part of a parent set from which records were made."""

    set: str  # kind of the set, or `file` for a file that a user named
    part: str  # name of the part or file
    record_digest: str  # of the part, or an id of the file's content
    generation: int = 1  # of the part


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that belongs to a part: a WARC, its index, a token shard.

    `about` is metadata that readers of this kind need before they open the file (e.g. a token shard's header), so that
    opening a set doesn't read its files.
    """

    name: str  # file name
    bytes: int  # size
    sha256: str  # digest
    about: Mapping[str, Any] = field(default_factory=dict)  # object?: `n_tokens` and `n_documents` of a `.tok`

    def to_json(self) -> dict[str, Any]:
        entry = {"name": self.name, "bytes": self.bytes, "sha256": self.sha256}
        return entry | {"about": self.about} if self.about else entry


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One record that couldn't be processed; `reason` is the counted key, `cause` is for people."""

    id: str
    reason: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part, as described by its entry. `key` hashes what it was made from: recipe, sources and dependencies."""

    name: str  # `part-`, at least five digits, `.parquet`
    generation: int  # from 1; each part of a crawl has a new one
    records: int  # number of rows
    bytes: int  # size of the Parquet file
    sha256: str  # of the Parquet file
    record_digest: str  # digest of the values, see below
    key: str  # SHA-256 of the canonical JSON of `[recipe_hash, [[set, part, record_digest], ...], other dependencies]`
    sources: tuple[SourcePart, ...] = ()  # parts and files that it was made from
    counts: Counts = field(default_factory=Counts)  # number of records by outcome
    attachments: tuple[Attachment, ...] = ()  # its other files

    def __post_init__(self) -> None:
        if any("/" in name or name.startswith(".") for name, _, _ in self.files) or self.name != part_name(self.index):
            raise ValueError(f"'{self.name}' is not a valid part name")
        counts, n_bytes = self.counts, (size for _, size, _ in self.files)
        numbers = (self.records, *n_bytes, counts.kept, *counts.dropped.values(), *counts.failed.values())
        if not counts.balanced or min(numbers) < 0 or max(counts.records_in, *numbers) > MOST:
            raise ValueError(f"the numbers of '{self.name}' can't be counts")

    @property
    def index(self) -> int:
        return int(self.name.removeprefix("part-").removesuffix(".parquet"))

    @property
    def files(self) -> tuple[tuple[str, int, str], ...]:
        """Name, size and SHA-256 of the Parquet file and of each attachment."""
        return (self.name, self.bytes, self.sha256), *((a.name, a.bytes, a.sha256) for a in self.attachments)

    def to_json(self) -> dict[str, Any]:
        entry = {each.name: getattr(self, each.name) for each in fields(self)}  # asdict would copy all that is in it
        entry["sources"] = [asdict(source) for source in self.sources]
        entry["counts"] = self.counts.to_json()
        entry["attachments"] = [attachment.to_json() for attachment in self.attachments]
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """The fields of a manifest that readers use."""

    kind: str
    generation: int
    recipe: Recipe
    parts: tuple[Part, ...]
    reproducible: bool = True
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The fields of `run.json` that readers use."""

    parents: tuple[str, ...] = ()
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= (self.peak_bytes or 0) <= MOST:
            raise ValueError("peak_bytes is out of range")


def bounded_batches(file: pq.ParquetFile, columns: Sequence[str] | None, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file in batches of at most `max_rows` rows and about BATCH_BYTES; small row groups share a batch.

    The size is estimated from the mean row size of each row group.
    """
    from webtext.base.parts.untrusted_parquet import BATCH_BYTES

    groups, n_batches = [], 0.0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        about = [group.column(i) for i in range(group.num_columns)]
        read = [each for each in about if columns is None or each.path_in_schema.partition(".")[0] in columns]
        mean = sum(each.total_uncompressed_size for each in read) // max(1, group.num_rows)
        n_rows = max(1, min(max_rows, BATCH_BYTES // max(1, mean)))
        groups.append((int(n_batches), number, n_rows))
        n_batches += group.num_rows / n_rows
    for _, some in itertools.groupby(groups, key=lambda each: each[0]):
        _, numbers, sizes = zip(*some, strict=True)
        yield from file.iter_batches(min(sizes), list(numbers), columns, use_threads=False)


def part_name(index: int) -> str:
    """Return the file name of part `index`.

    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{index:05d}.parquet"


def entry_name(index: int) -> str:
    """Return the name of part `index`'s entry in the set's folder."""
    return f"{ENTRIES}/{index:05d}.json"


def read_run(folder: Folder) -> RunFacts:
    """Return the contents of `run.json`; nothing if it is damaged, because it can't change a record."""
    try:
        return folder.read_json(RUN, RunFacts)
    except (InputError, NotADirectoryError):
        return RunFacts()


def remove_set(folder: Folder) -> None:
    """Remove a set, manifest and entries first, so that not even a power cut leaves an entry without its part."""
    folder.child(ENTRIES).remove_all()
    folder.remove(MANIFEST)  # and syncs the folder
    folder.remove_all()


class PartSet:
    """A sealed part set, open for reading. The manifest is read once, and files that differ from it are rejected."""

    _verified: ClassVar[set[tuple[str, str, str]]] = set()  # (location, version, sha256) verified in this process

    def __init__(self, folder: Folder, manifest_bytes: bytes) -> None:
        self.folder = folder
        self.hash = hashlib.sha256(manifest_bytes).hexdigest()
        self.manifest: dict[str, Any] = _parse_manifest(folder, manifest_bytes)
        try:
            without_check(self.manifest)
        except ValueError as error:
            raise InputError(f"'{folder.location(MANIFEST)}' is damaged: {error}", _MEND) from None
        typed = decode_json(manifest_bytes, _Manifest, folder.location(MANIFEST), _MEND)
        self.kind, self.parts = typed.kind, typed.parts
        self.recipe: dict[str, Any] = self.manifest["recipe"]

    @classmethod
    def open(cls, url: str, kind: str | tuple[str, ...] = (), *, checks_sizes: bool = True) -> PartSet:
        """Open the set at `url`, which must contain records of `kind` (of any kind if `kind` is empty).

        Without `checks_sizes` only the manifest is read, for readers that check each file when they open it.
        Raises InputError if the set doesn't exist, or is unsealed, damaged, incomplete or of another kind.
        """
        folder = Folder(url)
        try:
            manifest = folder.read_bytes(MANIFEST)
        except (InputError, NotADirectoryError):
            if folder.exists(MANIFEST):
                raise
            raise _no_set(folder) from None
        opened = cls(folder, manifest)
        kinds = (kind,) if isinstance(kind, str) else kind
        if kinds and opened.kind not in kinds:
            raise InputError(
                f"'{folder.url}' contains {opened.kind}, not {' or '.join(kinds)}",
                f"name a part set of {' or '.join(kinds)}",
            )
        if checks_sizes:
            opened._check_sizes()
        return opened

    def __reduce__(self) -> tuple[Any, ...]:
        return PartSet, (self.folder, pretty_json(self.manifest))

    @property
    def complete(self) -> bool:
        """Whether the set is finished; False while its run will add more parts, e.g. during a crawl of weeks."""
        return bool(self.manifest.get("complete", True))

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def counts(self) -> Counts:
        return sum((part.counts for part in self.parts), Counts())

    def part(self, part: Part | int) -> Part:
        """Return `part` itself, or the part at that index of `parts`."""
        return self.parts[part] if isinstance(part, int) else part

    def source(self, part: Part | int) -> SourcePart:
        """Return the `SourcePart` by which a child's part refers to this set's part."""
        part = self.part(part)
        return SourcePart(self.kind, part.name, part.record_digest, part.generation)

    def table(self, part: Part | int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one part as a table; before the first read in this process, its bytes are checked by SHA-256."""
        part = self.part(part)
        with self._parquet(part) as file:
            return file.read(columns, use_threads=False)

    def batches(
        self, part: Part | int, columns: Sequence[str] | None = None, batch_size: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield one part in batches of at most `batch_size` rows (see `bounded_batches`); verified like `table`."""
        part = self.part(part)
        with self._parquet(part) as file:
            yield from bounded_batches(file, columns, batch_size)

    def attachment(self, part: Part | int, suffix: str) -> str:
        """Verify the part's attachment that ends in `suffix` and return its name; raises KeyError if it has none."""
        part = self.part(part)
        for attachment in part.attachments:
            if attachment.name.endswith(suffix):
                self._verify_file(attachment.name, attachment.bytes, attachment.sha256)
                return attachment.name
        raise KeyError(f"{part.name} of '{self.folder.url}' has no attachment '*{suffix}'")

    def failures(self, *parts: Part | int) -> Iterator[FailedRecord]:
        """Yield the records that failed in these parts, or in all parts; streamed from verified files."""
        for part in map(self.part, parts or self.parts):
            if any(each.name.endswith(FAILURES) for each in part.attachments):
                name = self.attachment(part, FAILURES)
                with self.folder.open(name) as lines:
                    try:  # not by msgspec, which rejects half a surrogate pair
                        yield from (FailedRecord(**json.loads(line)) for line in lines)
                    except (ValueError, TypeError, RecursionError) as error:
                        raise InputError(f"'{self.folder.location(name)}' is damaged: {error}", REMAKE) from None

    def check_names(self, names: Iterable[str]) -> None:
        """Raise InputError if one of these files is missing from the (local) folder; lists the folder only once."""
        there = set(os.listdir(self.folder.local_path()))
        for name in names:
            if name not in there:
                raise InputError(f"'{self.folder.location(name)}' is missing", _MEND)

    def verify(self, run: Run | None = None) -> None:
        """Read every byte of every file of the set, in the workers of `run`; InputError names a file that differs."""
        if run is not None:
            tasks = [(SetName.of(self), i) for i in range(0, len(self.parts), PARTS_A_TASK)]
            run.map(_verify_parts, tasks, f"verifying '{self.folder.url}'", unit="task")
            return
        for part in self.parts:
            self._verify_part(part)

    def _verify_part(self, part: Part) -> None:
        for name, n_bytes, sha256 in part.files:
            self._verify_file(name, n_bytes, sha256)

    @contextlib.contextmanager
    def _parquet(self, part: Part) -> Iterator[pq.ParquetFile]:
        import pyarrow.parquet as pq

        from webtext.base.parts.schemas import SCHEMAS, WIDER
        from webtext.base.parts.untrusted_parquet import BUFFER_BYTES

        self._verify_file(part.name, part.bytes, part.sha256)
        with self.folder.open(part.name) as opened:
            # Read it with use_threads=False: one of Arrow's threads that frees `opened` while Python ends aborts the process.
            file = pq.ParquetFile(opened, pre_buffer=False, buffer_size=BUFFER_BYTES)
            known = [each[self.kind] for each in (SCHEMAS, WIDER) if self.kind in each]
            if known and not any(file.schema_arrow.equals(each) for each in known):
                raise InputError(
                    f"'{self.folder.location(part.name)}' does not have the columns of {self.kind}",
                    "it was made by another version of webtext: rerun the command that made the set",
                )
            yield file

    def _check_sizes(self) -> None:
        there = self.folder.files()
        for part in self.parts:
            for name, n_bytes, _ in part.files:
                if there.get(name) != n_bytes:
                    self._check_size(name, n_bytes)

    def _check_size(self, name: str, n_bytes: int) -> str:
        """Return the version of a file; InputError if it is missing or has another size."""
        try:
            found, version = self.folder.status(name)
        except FileNotFoundError:
            raise InputError(f"'{self.folder.location(name)}' is missing", _MEND) from None
        if found != n_bytes:
            raise InputError(
                f"'{self.folder.location(name)}' was altered: {found:,} bytes, the manifest says {n_bytes:,}", _MEND
            )
        return version

    def _verify_file(self, name: str, n_bytes: int, sha256: str) -> None:
        proof = (self.folder.location(name), self._check_size(name, n_bytes), sha256)
        if proof in PartSet._verified:
            return
        with self.folder.open(name) as file:
            found = file_sha256(file)
        if found != sha256:
            raise InputError(
                f"'{self.folder.location(name)}' was altered: SHA-256 {found[:12]}…, the manifest says {sha256[:12]}…",
                REMAKE,
            )
        PartSet._verified.add(proof)


@dataclass(frozen=True, slots=True)
class SetName:
    """A reference to a part set in a task: the worker opens the set, which must not have changed since."""

    url: str
    kind: str
    hash: str

    @classmethod
    def of(cls, opened: PartSet) -> SetName:
        return cls(opened.folder.url, opened.kind, opened.hash)

    def open(self) -> PartSet:
        """Open the set; raises InputError if it has been replaced."""
        return _open(self)


def _verify_parts(attempt: Attempt, task: tuple[SetName, int]) -> None:
    opened = task[0].open()
    for part in opened.parts[task[1] : task[1] + PARTS_A_TASK]:
        attempt.idle()
        opened._verify_part(part)


@functools.lru_cache(maxsize=8)
def _open(name: SetName) -> PartSet:
    opened = PartSet.open(name.url, name.kind, checks_sizes=False)
    if opened.hash != name.hash:
        raise InputError(f"the part set '{name.url}' changed while it was read", "rerun the same command")
    return opened


def parents_of(opened: PartSet, *named: Folder) -> Iterator[PartSet]:
    """Yield the set's parents in their current state; parents that were moved or deleted are skipped.

    A parent at a URL is opened only if the set itself, or a folder that the user `named`, is in the same store.
    """
    stores = [_store(folder.url) for folder in (opened.folder, *named) if not folder.is_local]
    for place in read_run(opened.folder).parents:
        is_url = "://" in place
        if is_url and _store(place) not in stores:
            continue
        is_path = not is_url and opened.folder.is_local
        url = os.path.normpath(os.path.join(opened.folder.url, place)) if is_path else place
        try:
            yield PartSet.open(url, checks_sizes=False)
        except (InputError, ValueError):  # ValueError: a NUL in the path
            continue


def places_of(parents: Sequence[Any], folder: Folder) -> list[str]:
    """Return the parent part sets' locations relative to the folder, as stored in `run.json`."""
    return [_seen_from(folder, parent.folder) for parent in parents if isinstance(parent, PartSet)]


_MEND = "rerun the command that made the set: it makes again what is missing or has another size"
REMAKE = "remove that file, then rerun the command that made the set"


def _no_set(folder: Folder) -> InputError:
    if folder.exists(ENTRIES):
        return InputError(
            f"the part set '{folder.url}' is not sealed: the run that writes it has not finished",
            "rerun the command that writes it; it resumes where it stopped",
        )
    if not folder.exists(""):
        return InputError(f"the part set '{folder.url}' doesn't exist: no such folder", "check the path")
    return InputError(f"'{folder.url}' is not a part set: it has no {MANIFEST}", "name a folder that webtext wrote")


def _parse_manifest(folder: Folder, data: bytes) -> dict[str, Any]:
    manifest = decode_json(data, dict[str, Any], folder.location(MANIFEST), _MEND)
    if "format" not in manifest or "kind" not in manifest:
        raise InputError(
            f"'{folder.location(MANIFEST)}' is not a manifest of a part set", "name a folder that webtext wrote"
        )
    check_version(manifest["format"], FORMAT_VERSION, folder.location(MANIFEST))
    return manifest


def _store(url: str) -> list[str]:
    return url.split("/", 3)[:3]


def _seen_from(here: Folder, there: Folder) -> str:
    if not there.is_local:
        return there.url
    path = os.path.realpath(there.local_path())
    return os.path.relpath(path, os.path.realpath(here.local_path())) if here.is_local else path
