"""The file store: RocksDB, one atomic synced write for each commit.

``store.database`` lists the column families and their keys; ``store.identity`` identifies the log
in a directory, and refuses a store that lost acknowledged data.

When a write fails, RocksDB refuses all writes until the database is opened again. ``RocksStore``
reopens it while the broker serves on; reads run beside that, and wait only for the opening itself::

      writing ── a write fails ─▶ failing, still readable ── probe succeeds ─▶ reopened ─▶ writing
                                    ▲                                            │ data missing
                                    ╰── opened read-only ◀── cannot be opened    ▼
                                                                     HistoryMismatch: the end

After reopening, the failed batch is in the store completely or not at all, because RocksDB's log
ends with a complete record. Writing the same batch again is correct in both cases: it has the same
keys and values, and the size of the log is counted in memory, not read from the store. The store
must have all that was acknowledged and at most the one failed batch more; otherwise it is refused,
because another process may have changed it while it was closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, final

import pyarrow as pa

from penstock.config.stream import StreamDefinition
from penstock.engine.api import Commit
from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import append_run
from penstock.engine.values.records import RecoveredState, SessionState
from penstock.engine.values.steady_clock import Leads
from penstock.errors import HistoryMismatch, StoreError, StoreFormatError, StoreUnavailable
from penstock.store import records
from penstock.store.archiving import Archives, ChunkRemoval
from penstock.store.backup import back_up
from penstock.store.batch import StoreBatch
from penstock.store.chain import NO_DIGEST, Digester, encode_link
from penstock.store.chunk import (
    ChunkSummary,
    chunk_note,
    decode_chunk,
    decode_key,
    encode_key,
    summarize_chunk,
)
from penstock.store.database import (
    PRODUCERS,
    Database,
    open_for_reading,
    raise_if_unreadable,
)
from penstock.store.diagnosis import corrupt_store, damage_as_corruption
from penstock.store.faults import ReadWriteLock, with_remedy
from penstock.store.history import (
    NO_CHUNK,
    ChunkDigest,
    History,
    begin_run,
    find_digest,
    judge,
    mark_at,
)
from penstock.store.identity import (
    CLOCK,
    COMMITS,
    GIVEN_UP,
    LOG_BYTES_APPENDED,
    LOG_BYTES_REMOVED,
    begin_epoch,
    decode_given_up,
    find_begin,
    find_end,
    find_loss,
    is_unverified,
    loss_error,
    new_epoch,
    read_counter,
    read_epoch,
    read_lineage,
)
from penstock.store.large_retained import LargeRetained
from penstock.store.log import chunk_from_columns, messages_from_chunk
from penstock.store.manifest import Manifest, refuse_backup
from penstock.store.mark import Mark, Verdict
from penstock.store.opening import DatabaseOpener, StandaloneOpener
from penstock.store.pages import add_page, page_values
from penstock.store.parts import LARGE_BYTES, LargeValue, cut, new_write_id
from penstock.store.port import NOTHING_LEASED, LogExtent
from penstock.store.ranges import range_in_words, subtract_ranges
from penstock.store.stored_sessions import read_sessions, read_subscriptions
from penstock.store.watermark import WATERMARK_FILE, Watermark, WatermarkFile, read_watermark
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_STATE: Final = b"state/"  # prefix of the keys of services' state, in a cluster
_NO_OFFSET: Final = 2**64 - 1
_TRIM_CHUNKS_MAX: Final = 10_000  # chunks examined in one call of ``trim_log``


class _PreparedCommit(NamedTuple):
    """An encoded commit, ready to be written.

    Attributes:
        commit: the commit.
        batch: the batch with its changes.
        large: large values, whose heads are in ``batch``; their parts are written before it.
        log_bytes_appended: total size of all chunks ever appended, this commit included.
        arrow: the Arrow message of its chunk, in parts; empty where nothing is appended.
    """

    commit: Commit
    batch: StoreBatch
    large: list[LargeValue]
    log_bytes_appended: int
    arrow: Iterable[bytes | memoryview]


@final
class RocksStore:
    """Durable log and state of one broker.

    Args:
        data_dir: the data directory, created if missing; the database is in ``store`` in it.
        streams: the configured streams; each with a retention of its own gets an archive.
        opener: opens the database; None for a broker that is not in a cluster.

    Raises:
        StoreLocked: another process has the store open.
        StoreFormatError: the store is of another format.
        HistoryMismatch: the store holds less than was acknowledged.
        StoreCorrupt: files of the store are damaged.
        StoreError: the store cannot be opened, for example for lack of permission.
    """

    writes_columns = True
    epoch: str

    def __init__(
        self,
        data_dir: Path,
        streams: Sequence[StreamDefinition] = (),
        opener: DatabaseOpener | None = None,
    ) -> None:
        self._opener = opener or StandaloneOpener()
        self.acknowledged_when = self._opener.acknowledged_when
        refuse_backup(data_dir)
        self._opener.verify_complete(data_dir)
        self._data_dir = data_dir
        self._streams = streams
        self._usage_lock = ReadWriteLock()
        self._is_writable = True
        self._removal_failed = False  # in a cluster the replicated log may have it all the same
        self._is_closing = False
        self._prepared: _PreparedCommit | None = None
        self._next_epoch = ""  # of a fork whose write may be in the store
        self._write_id = new_write_id()  # one for all chunks: a repeated commit has the same parts
        self._large_retained = LargeRetained()
        self._digester = Digester()  # of the thread that commits
        self._adopt(self._opener.open(data_dir))
        try:
            with damage_as_corruption(data_dir):
                self._initialize()
        except BaseException:
            self._database.close()
            raise

    def _initialize(self) -> None:
        data_dir = self._data_dir
        watermark = read_watermark(data_dir)  # the store is locked: nothing moves it now
        if not self._opener.trusts_watermark:
            watermark = None
        loss = find_loss(self._database, watermark)
        if loss is not None:
            raise loss_error(data_dir, loss)
        if self._opener.trusts_watermark and is_unverified(self._database, watermark):
            logger.warning(
                "%s is missing or of another log: it is not known whether the newest messages of"
                " the store are still there",
                data_dir / WATERMARK_FILE,
            )
        self.epoch = read_epoch(self._database) or begin_epoch(self._database)
        self._end = find_end(self._database)
        self._runs = begin_run(self._database, self.epoch, self._end)
        self._lineage = read_lineage(self._database)
        self._found_digest = NO_CHUNK
        self._digest = self._find_digest(self._end) or NO_DIGEST
        self._database.remove_parts("log", encode_key(self._end), encode_key(_NO_OFFSET))
        # Sizes are counted: RocksDB's estimate shrinks only when it compacts.
        self._log_bytes_appended = read_counter(self._database, LOG_BYTES_APPENDED)
        self._log_bytes_removed = read_counter(self._database, LOG_BYTES_REMOVED)
        self._commits = read_counter(self._database, COMMITS)
        self._earliest = find_begin(self._database)
        kept = self._families["meta"].get(CLOCK)
        self._clock = None if kept is None else records.decode_clock(kept)
        self._leads = Leads([]) if self._clock is None else self._clock.leads
        self._archives = Archives(self._database, self._streams, self._earliest, self._end)
        for archive in self._archives.closed_archives():
            logger.warning(
                "the store keeps %d messages of a stream %s, %d bytes, that no stream reads: it is"
                " not kept longer than the log any more, or has other topic filters, or they lie"
                " before a hole; 'penstock store forget %s' removes them",
                archive.messages,
                archive.stream,
                archive.size_bytes,
                archive.stream,
            )
        self._watermark = WatermarkFile(
            data_dir, Watermark(self._end, self._earliest, self._commits, self.epoch)
        )

    def _adopt(self, database: Database) -> None:
        self._database = database
        self._families = database.families
        self._handles = database.handles

    # -- recovery ----------------------------------------------------------------------

    def recover(self, subscriptions: bool = True) -> RecoveredState:
        """Return everything that was committed; see ``Store.recover``."""
        with damage_as_corruption(self._data_dir):
            return self._recover(subscriptions)

    def _recover(self, subscriptions: bool) -> RecoveredState:
        recovered = RecoveredState(self.epoch, self._end)
        recovered.sessions = list(read_sessions(self._database))
        if subscriptions:
            recovered.subscriptions = list(read_subscriptions(self._database))
        for key, value in self._database.items("progress"):
            number = decode_key(key[:8])
            if len(key) == 8:
                recovered.progress[number] = records.decode_progress(number, value)
                continue
            if number not in recovered.progress:
                raise corrupt_store(self._data_dir, f"the progress of session {number} is missing")
            add_page(recovered.progress[number], key, value)
        for key, value in self._database.items("queue"):
            number = decode_key(key[:8])
            first = decode_key(key[8:])
            runs = recovered.queues.setdefault(number, [])
            append_run(runs, records.decode_segment(value))
            recovered.segments.setdefault(number, []).append(first)
        recovered.retained = self._large_retained.recover(self._database)
        for key, value in self._database.items("wills"):
            recovered.wills[key.decode()] = records.decode_will(value)
        for key, value in self._database.items("meta", PRODUCERS):
            name = key[len(PRODUCERS) :].decode()
            recovered.producers.append(records.decode_producer(name, value))
        recovered.clock = self._clock
        return recovered

    # -- writing -----------------------------------------------------------------------

    def prepare(self, commit: Commit) -> None:
        """Encode ``commit`` before it is written; see ``Store.prepare``."""
        self._prepared = self._encode(commit)

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step; see ``Store.commit``."""
        if not self._is_writable:
            raise StoreUnavailable("the store is open for reading only")
        if commit.appended_count:  # a commit whose write failed is written again
            assert self._end in (commit.base_offset, commit.next_offset), "the log has no holes"
        prepared = self._prepared
        self._prepared = None
        if prepared is None or prepared.commit is not commit:
            prepared = self._encode(commit)
        for large in prepared.large:
            self._database.write_parts(large)
        self._database.write(prepared.batch)
        self._large_retained.mark_written()
        self._log_bytes_appended = prepared.log_bytes_appended
        self._commits += 1
        self._end = max(self._end, commit.next_offset)
        if commit.appended_count:
            self._digest = self._digester.digest_of_parts(
                commit.base_offset, self._digest, prepared.arrow
            )
        if commit.clock is not None:
            self._leads = commit.clock.leads
        self._watermark.record_commit(self._end, self._commits)

    def _encode(self, commit: Commit) -> _PreparedCommit:
        batch = self._database.new_batch()
        handles = self._handles
        large: list[LargeValue] = []
        appended = self._log_bytes_appended
        arrow: Iterable[bytes | memoryview] = ()
        if commit.appended_count:
            columns = commit.columns or columns_of(commit.messages)
            key, pieces = encode_key(commit.base_offset), chunk_from_columns(columns)
            arrow, link = cut(pieces), encode_link(self._digest)
            if columns.size_bytes < LARGE_BYTES:
                chunk = b"".join([*pieces, link])
                arrow = (memoryview(chunk)[: -len(link)],)
                appended += len(chunk)
            else:
                note = chunk_note(columns.count, columns.newest_us())
                large.append(LargeValue("log", key, [*pieces, link], self._write_id, note))
                appended += large[-1].size_bytes
                chunk = large[-1].head
            batch.put(key, chunk, handles["log"])
            batch.put(LOG_BYTES_APPENDED, encode_key(appended), handles["meta"])
        self._write_sessions(batch, commit)
        for progress in commit.progress:
            self._write_progress(batch, progress)
        for topic, message in commit.retained:
            if message is None:
                self._large_retained.remove(batch, self._database, topic.encode())
                continue
            parts = self._large_retained.put(batch, self._database, topic.encode(), message)
            if parts is not None:
                large.append(parts)
        for client_id, will in commit.wills:
            if will is None:
                batch.delete(client_id.encode(), handles["wills"])
            else:
                batch.put(client_id.encode(), records.encode_will(will), handles["wills"])
        for name, record in commit.producers:
            if record is None:
                batch.delete(PRODUCERS + name.encode(), handles["meta"])
            else:
                value = records.encode_producer(record)
                batch.put(PRODUCERS + name.encode(), value, handles["meta"])
        if commit.clock is not None:
            batch.put(CLOCK, records.encode_clock(commit.clock), handles["meta"])
        batch.put(COMMITS, encode_key(self._commits + 1), handles["meta"])
        return _PreparedCommit(commit, batch, large, appended, arrow)

    def reopen(self) -> None:
        """Open the database again after a failed write; see ``Store.reopen``."""
        self._opener.probe(self._data_dir)
        with self._usage_lock.exclusive():
            self._is_writable = False
            self._prepared = None  # its batch belongs to the closed database
            self._database.close()
            try:
                self._opener.verify_complete(self._data_dir)
                self._adopt(self._opener.open(self._data_dir))
                self._refuse_foreign_writes()
                self._refresh_after_reopening()
            except (HistoryMismatch, StoreFormatError):
                self._database.close()
                raise
            except (StoreError, OSError) as error:
                self._database.close()
                with contextlib.suppress(
                    StoreError, OSError
                ):  # acknowledged messages stay readable
                    self._adopt(open_for_reading(self._data_dir))
                raise StoreUnavailable(
                    f"the store cannot write: {with_remedy(error, self._data_dir)}"
                ) from None
            self._is_writable = True

    def _refresh_after_reopening(self) -> None:
        """Read the start of the log again, and open a new watermark file.

        The last removal by retention may not have been synced, and the data directory may be on
        another file system now.
        """
        self._found_digest = NO_CHUNK
        self._reload_bounds()
        self._removal_failed = False
        self._lineage = read_lineage(self._database)
        former = self._watermark
        committed = Watermark(self._end, self._earliest, self._commits, self.epoch)
        self._watermark = WatermarkFile(self._data_dir, committed)
        former.close()

    def _refuse_foreign_writes(self) -> None:
        """Raise if another process wrote to the database while it was closed."""
        found = read_epoch(self._database)
        if found == self._next_epoch:
            self.epoch = self._next_epoch
        loss = find_loss(
            self._database, Watermark(self._end, self._earliest, self._commits, self.epoch)
        )
        if loss is not None:
            raise loss_error(self._data_dir, loss)
        is_ours = found == self.epoch
        if not is_ours or read_counter(self._database, COMMITS) > self._commits + 1:
            raise HistoryMismatch(
                f"another process wrote to the store in {self._data_dir} while the broker could"
                " not: let only one of them use it, and start the broker again"
            )

    def _write_sessions(self, batch: StoreBatch, commit: Commit) -> None:
        handles = self._handles
        for client_id, number in commit.ended:
            batch.delete(client_id.encode(), handles["sessions"])
            begin, end = encode_key(number), encode_key(number + 1)
            batch.delete_range(begin, end, handles["progress"])
            batch.delete_range(begin, end, handles["subscriptions"])
            batch.delete_range(begin, end, handles["queue"])
        for session in commit.sessions:
            batch.put(
                session.client_id.encode(), records.encode_session(session), handles["sessions"]
            )
        for kept in commit.subscriptions:
            key = encode_key(kept.number) + kept.topic_filter.encode()
            if kept.subscription is None:
                batch.delete(key, handles["subscriptions"])
            else:
                value = records.encode_subscription(kept.subscription, kept.identifier)
                batch.put(key, value, handles["subscriptions"])

    def _write_progress(self, batch: StoreBatch, progress: SessionState) -> None:
        handles = self._handles
        number = encode_key(progress.number)
        batch.put(number, records.encode_progress(progress), handles["progress"])
        for key, value in page_values(progress):
            if value is None:
                batch.delete(key, handles["progress"])
            else:
                batch.put(key, value, handles["progress"])
        for first in progress.finished_segments:
            batch.delete(number + encode_key(first), handles["queue"])
        for segment in progress.segments:
            key = number + encode_key(segment.first)
            batch.put(key, records.encode_segment(segment), handles["queue"])

    def write_state(self, name: str, content: bytes) -> None:
        """Replace the state of the service ``name``; return when it is durable. Safe from any
        thread.

        Raises:
            StoreUnavailable: the state could not be written.
        """
        with self._usage_lock.shared():
            if not self._is_writable:
                raise StoreUnavailable("the store is open for reading only")
            batch = self._database.new_batch()
            batch.put(_STATE + name.encode(), content, self._handles["meta"])
            self._database.write(batch)

    def remove_states(self, prefix: str) -> None:
        """Remove the states whose names begin with ``prefix``; return when that is durable. Safe
        from any thread.

        Raises:
            StoreUnavailable: the removal could not be written.
        """
        with self._usage_lock.shared():
            if not self._is_writable:
                raise StoreUnavailable("the store is open for reading only")
            batch = self._database.new_batch()
            begin = _STATE + prefix.encode()
            batch.delete_range(begin, begin + b"\xff", self._handles["meta"])
            self._database.write(batch)

    # -- reading -----------------------------------------------------------------------

    def read_states(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield the states whose names begin with ``prefix``, ordered by name, as (name, content).

        Raises:
            StoreUnavailable: not all states can be read.
        """
        begin = seek = _STATE + prefix.encode()
        while True:
            with self._usage_lock.shared():  # not during ``yield``: the caller may never resume
                entries = self._families["meta"].iter()
                entries.seek(seek)
                if not entries.valid():
                    raise_if_unreadable(entries)
                    return
                key, value = entries.key(), entries.value()
                del entries
            if not key.startswith(begin):
                return
            yield key[len(_STATE) :].decode(), value
            seek = key + b"\x00"

    def read_state(self, name: str) -> bytes | None:
        """Return the content that ``write_state`` wrote last for ``name``; None if there is
        none."""
        with self._usage_lock.shared():
            content: bytes | None = self._families["meta"].get(_STATE + name.encode())
            return content

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """Return messages by offset; see ``Store.read``."""
        with self._usage_lock.shared():
            return self._read(offsets)

    def _read(self, offsets: Iterable[int]) -> dict[int, Message]:
        found: dict[int, Message] = {}
        ordered = sorted(set(offsets))
        chunks = self._families["log"].iter()
        at = 0
        while at < len(ordered):
            chunks.seek_for_prev(encode_key(ordered[at]))
            if not chunks.valid():
                raise_if_unreadable(chunks)
                at += 1
                continue
            key, value = chunks.key(), chunks.value()
            base = decode_key(key)
            summary = summarize_chunk(value)
            end = base + summary.rows
            rows: list[int] = []
            while at < len(ordered) and ordered[at] < end:
                rows.append(ordered[at] - base)
                at += 1
            if not rows:
                at += 1
                continue
            try:
                batch = self._read_chunk(key, value, summary)
            except StoreFormatError:
                if self._families["log"].get(key) is None:
                    continue  # retention has removed it meanwhile
                raise
            for message in messages_from_chunk(batch, base, rows, self._leads):
                found[message.offset] = message
        return found

    def _read_chunk(self, key: bytes, value: bytes, summary: ChunkSummary) -> pa.RecordBatch:
        """Return the rows of the chunk under ``key``; ``value`` is the value stored there, and
        ``summary`` its summary."""
        if summary.batch is not None:
            return summary.batch
        return decode_chunk(self._database.full_value("log", key, value))

    def trim_log(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        leased_from: int = NOTHING_LEASED,
        leased_bytes_max: int = 0,
    ) -> int:
        """Remove old chunks; see ``Store.trim_log``."""
        with self._usage_lock.shared():
            if not self._is_writable:
                return self._earliest
            with self._tracking_failure():
                return self._trim_chunks(
                    older_than_us, bytes_max, keep_from, leased_from, leased_bytes_max
                )

    @contextlib.contextmanager
    def _tracking_failure(self) -> Iterator[None]:
        """Record whether the removal in the ``with`` block fails; before it, read the bounds of log
        and archives again if the last removal failed.

        In a cluster a removal without an answer may be in the replicated log, and the next write
        applies it to this database.
        """
        if self._removal_failed:
            self._database.settle()
            self._reload_bounds()
            self._watermark.set_begin(self._earliest)
            self._removal_failed = False
        try:
            yield
        except StoreError:
            self._removal_failed = True
            raise

    def _reload_bounds(self) -> None:
        """Read the beginning of the log, the size of all removed chunks and the archives again."""
        self._log_bytes_removed = read_counter(self._database, LOG_BYTES_REMOVED)
        self._earliest = find_begin(self._database)
        self._archives = Archives(self._database, self._streams, self._earliest, self._end)

    def _trim_chunks(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        leased_from: int,
        leased_bytes_max: int,
    ) -> int:
        log = self._families["log"]
        chunks = log.iter()
        chunks.seek_to_first()
        if not chunks.valid():
            raise_if_unreadable(chunks)
        removed = self._log_bytes_removed
        size_bytes = self._log_bytes_appended - removed
        earliest = decode_key(chunks.key()) if chunks.valid() else self._end
        removal = self._archives.begin_removal()
        for _ in range(_TRIM_CHUNKS_MAX):
            if self._is_closing or not chunks.valid():
                break
            key, value = chunks.key(), chunks.value()
            base, summary = decode_key(key), summarize_chunk(value)
            chunks.next()  # the last chunk stays, because it determines where the log ends
            too_old = summary.newest_us - self._leads.at(base) < older_than_us
            if not chunks.valid():
                raise_if_unreadable(chunks)
                break
            end = base + summary.rows
            if end > keep_from or not (too_old or size_bytes > bytes_max):
                break
            if end > leased_from and size_bytes <= leased_bytes_max:
                break
            if self._archives.is_any_open:
                removal.add(base, self._read_chunk(key, value, summary), summary.size_bytes)
            earliest = decode_key(chunks.key())
            if earliest > end:
                self._log_hole(end, earliest)
                removal.add_hole(end, earliest)
            size_bytes -= summary.size_bytes
            removed += summary.size_bytes
            if removal.is_large:
                self._remove_chunks(removal, earliest, removed)
                removal = self._archives.begin_removal()
        self._remove_chunks(removal, earliest, removed)
        self._watermark.sync()
        return self._earliest

    def _log_hole(self, begin: int, end: int) -> None:
        """Log an error for each range of missing offsets that no repair has given up."""
        kept: bytes | None = self._families["meta"].get(GIVEN_UP)
        for hole in subtract_ranges(begin, end, [] if kept is None else decode_given_up(kept)):
            logger.error(
                "the log has lost the %s: see with 'penstock store check --data-dir %s'",
                range_in_words(*hole),
                self._data_dir,
            )

    def _remove_chunks(self, removal: ChunkRemoval, earliest: int, removed: int) -> None:
        """Write a removal of chunks.

        Args:
            removal: the rows for the archives.
            earliest: offset at which the log begins afterwards.
            removed: total size of all chunks ever removed, this removal included.
        """
        if earliest > self._earliest:
            assert earliest <= self._end, "the log begins where it ends, at the latest"
            self._watermark.set_begin(earliest)  # first, so that no reader sees half of it gone
            batch = self._database.new_batch()
            first, end = encode_key(self._earliest), encode_key(earliest)
            self._database.delete_range(batch, "log", first, end)
            batch.put(LOG_BYTES_REMOVED, encode_key(removed), self._handles["meta"])
            removal.write_to(batch, earliest)
            self._database.write(batch, sync=self._archives.is_any_open)
            removal.mark_written()
            self._log_bytes_removed = removed
        self._earliest = earliest

    def archive_sizes(self) -> dict[str, tuple[int, int]]:
        """Return by stream name how many messages and bytes its archives have. Reads memory only;
        safe from any thread."""
        return self._archives.sizes()

    def trim_archives(self, now_us: int) -> None:
        """Remove archived messages that are too old or too many; see ``Store.trim_archives``."""
        with self._usage_lock.shared():
            if self._is_writable:
                with self._tracking_failure():
                    self._archives.trim(now_us, self._leads)

    def backup(self, destination: Path) -> Manifest:
        """Write a backup to ``destination``; other threads may use the store meanwhile
        (``store.backup``).

        Raises:
            StoreError: ``destination`` exists, or the backup could not be written.
        """
        with self._usage_lock.shared():
            database = self._database
        return back_up(database, destination)  # without the lock: ``reopen`` does not wait for it

    def mark_at(self, offset: int) -> Mark:
        """Return the mark of an offset; see ``Store.mark_at``."""
        with self._usage_lock.shared():
            return mark_at(self._history(), self._find_digest, offset)

    def judge(self, epoch: str, offset: int, mark: Mark) -> Verdict:
        """Return whether a position belongs to the log; see ``Store.judge``."""
        with self._usage_lock.shared():
            return judge(self._history(), self._find_digest, epoch, offset, mark)

    def fork(self, at: int) -> str:
        """Go on under a new epoch from an offset on; see ``Store.fork``."""
        with self._usage_lock.shared():
            if not self._is_writable:
                raise StoreUnavailable("the store is open for reading only")
            # It is in the store if the write's outcome is unknown.
            self._next_epoch = new_epoch([self.epoch, *(one for one, _ in self._lineage)])
            self.epoch = begin_epoch(self._database, at, self._next_epoch)
            self._lineage = read_lineage(self._database)
            self._watermark.set_epoch(self.epoch)
            self._watermark.sync()
        return self.epoch

    def _history(self) -> History:
        return History(self.epoch, self._lineage, self._runs, self._end)

    def _find_digest(self, offset: int) -> bytes | None:
        found: ChunkDigest | None = self._found_digest
        if found is None or not found.begin < offset <= found.end:
            whole = partial(self._database.full_value, "log")
            found = find_digest(self._families["log"], whole, offset)
        if found is None:
            return None
        self._found_digest = found  # many receipts ask about the messages of one chunk
        return found.digest

    def log_extent(self) -> LogExtent:
        """Return the extent of the log; see ``Store.log_extent``."""
        size_bytes = self._log_bytes_appended - self._log_bytes_removed
        return LogExtent(self._earliest, self._end, size_bytes)

    def close(self) -> None:
        """Close the database and the watermark, after running reads and removals have ended.

        An iterator that outlived the closing would keep the database open and locked.
        """
        self._is_closing = True
        with self._usage_lock.exclusive():
            self._is_writable = False
            self._watermark.close()
            self._database.close()
