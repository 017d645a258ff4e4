"""Read and write objects of one bucket (S3, ADLS, GCS) with `obstore`, without a JVM.

Rules:
- A file is replaced only if it is still as this process has read it (`replace_seen`): a process
  that was paused and has lost the lock meanwhile reverts nothing.
- Put-if-absent and replace-if-unchanged are conditions of the store itself (If-None-Match,
  If-Match, a generation), so that of several writers on any machines exactly one wins (K16).
- If the answer to a put is lost, the library tries again and then finds its own object: the content
  is compared, and equal content counts as written. Every record names its writer or its time.
- Hadoop creates objects for folders, empty ones named after the folder and a slash. They are not
  files of that folder; the library sees them without the slash and cannot delete them
  (Spark's connector can: `storage`).
- `FileNotFoundError` and `FileExistsError` are about objects. All other failures (bucket,
  credentials, rights, network) raise a `CdcError` with the setting; secrets are removed from the
  store's message.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import IO, Any, Final, NamedTuple

from cdc_pipeline.config.storage_config import StorageConfig
from cdc_pipeline.errors import CdcError, LakeUnreachableError, LockError, RuntimeSetupError
from cdc_pipeline.lake.storage.fences import Fences
from cdc_pipeline.lake.storage.newest_kept import NewestKept
from cdc_pipeline.lake.storage.storage_settings import (
    ANSWER_S,
    CONNECT_S,
    endpoint_of,
    library_settings,
)
from cdc_pipeline.lake.storage.store_answers import answer_of, refusal
from cdc_pipeline.text.hide import hide

_BUFFER_BYTES: Final = 1 << 20
_PART_BYTES: Final = 8 << 20
_PAUSE_S: Final = 0.1
# The addresses that supply a machine's own identity, when no credentials are set.
_NO_CREDENTIALS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_REFUSALS: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "redential")

STATE_FOLDER: Final = "_cdc"
_RETRIES_MAX: Final = 1_000_000
_WRITTEN_MAX: Final = 10_000
_SMALL_BYTES_MAX: Final = 32 << 20
_NEVER_AGAIN: Final = re.compile(
    rf"/{STATE_FOLDER}/[^/]+/staging/\d+/[^/]+\.parquet$|/part-\d{{5}}-[0-9a-f-]{{36}}[^/]*\.parquet$"
)
_NUMBERED: Final = re.compile(r"\d{20}")

Tag = Mapping[str, str]  # identifies a version of an object; its content is the store's own


class Listed(NamedTuple):
    """An object: `tag` identifies its version; `written_s` is since the epoch."""

    tag: str
    size_bytes: int
    written_s: float


class ObjectStorage:
    """One bucket, by scheme and authority of a `LakeUri`. Thread-safe. `fences`: the leases that
    are checked before each request that changes something, other than the parts of a large
    new file; `retry_s`: how long a failing request is tried again; `answer_s`: how long an
    answer is awaited.
    """

    def __init__(
        self,
        scheme: str,
        authority: str,
        config: StorageConfig,
        *,
        retry_s: float | None = None,
        answer_s: float | None = None,
    ) -> None:
        self.config = config
        self._root = f"{scheme}://{authority}"
        self._retry_s = retry_s or config.retry_s
        self._store: Any = _open(
            scheme, authority, config, self._retry_s, min(ANSWER_S, answer_s or ANSWER_S)
        )
        import obstore  # which only object stores need, and `_open` has found

        self._obstore: Any = obstore
        self.fences = Fences()
        # Of those whose names are never given twice: staged files and data files.
        self._small: NewestKept[bytes] = NewestKept(_SMALL_BYTES_MAX, len)
        self._written: dict[str, str] = {}
        # of files that are replaced: few; None: there was none
        self._seen: dict[str, Tag | None] = {}

    # -- whole objects -----------------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        """Raises FileNotFoundError."""
        return self.read_with_tag(key)[0]

    def read_with_tag(self, key: str) -> tuple[bytes, Tag]:
        """Raises FileNotFoundError."""
        try:
            with self._errors(key):
                answer = self._obstore.get(self._store, key)
                content, tag = bytes(answer.bytes()), _tag(answer.meta)
        except FileNotFoundError:
            self._see(key, None)
            raise
        self._see(key, tag)
        return content, tag

    def _see(self, key: str, tag: Tag | None) -> None:
        if _is_replaced(key):
            self._seen[key] = tag

    def size(self, key: str) -> int | None:
        """The bytes of an object; None if there is none."""
        head = self._head(key)
        return None if head is None else int(head["size"])

    def modified_at(self, key: str) -> datetime | None:
        """When an object was written, by the store's clock; None if there is none."""
        head = self._head(key)
        return None if head is None else head["last_modified"]

    def _head(self, key: str) -> Any:
        try:
            with self._errors(key):
                return self._obstore.head(self._store, key)
        except FileNotFoundError:
            self._see(key, None)
            return None

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Write a new object; return False if there is one with other content."""

        def put() -> bool | None:
            try:
                with self._errors(key):
                    made = self._obstore.put(
                        self._store, key, content, mode="create", use_multipart=False
                    )
                self._written[key] = str(made["e_tag"] or made["version"])
                if len(self._written) > _WRITTEN_MAX:
                    self._written.pop(next(iter(self._written)))
            except FileExistsError:
                try:
                    return self.read(key) == content
                except FileNotFoundError:
                    return None
            return True

        return self._settled(key, put)

    def tag_written(self, key: str) -> str:
        """As `listed_after` has it, of a new object that this process wrote lately; else ""."""
        return self._written.get(key, "")

    def create(self, key: str, content: bytes) -> Tag | None:
        """Write a new object; return its tag, or None if there is one."""
        try:
            with self._errors(key):
                return _tag(
                    self._obstore.put(self._store, key, content, mode="create", use_multipart=False)
                )
        except FileExistsError:
            return None

    def _settled(self, key: str, put: Callable[[], bool | None]) -> bool:
        """What `put` returns, called again while that is None: the store has refused a condition
        that holds. S3 answers 409 while another write of the object has not ended, which may
        be the first try of the same put. Raises LakeUnreachableError: it does so for all the
        time of retries.
        """
        end_s = time.monotonic() + self._retry_s
        pause_s = _PAUSE_S
        while True:
            self.fences.check([key])
            done = put()
            if done is not None:
                return done
            if time.monotonic() + pause_s > end_s:
                raise LakeUnreachableError(
                    "the object store refuses to write an object as if it existed, and it does "
                    f"not: {self._root}/{key}",
                    setting="sink.storage.endpoint" if self.config.endpoint else "sink.lake_path",
                    expected="a refusal with 409 or 412 only while another write of it goes on",
                    got=f"refused for {self._retry_s:g} s",
                    next_step="start the run again; if it recurs, use a store, or a version of it, "
                    "whose conditional writes work",
                )
            time.sleep(pause_s)
            pause_s = min(1.0, 2 * pause_s)

    def update(self, key: str, content: bytes, *, tag: Tag) -> Tag | None:
        """The new tag of an object that has `tag`; None if it has changed."""
        version: Any = dict(tag)
        try:
            with self._errors(key):
                return _tag(
                    self._obstore.put(self._store, key, content, mode=version, use_multipart=False)
                )
        except (FileExistsError, FileNotFoundError):
            return None

    def replace(self, key: str, content: bytes) -> None:
        """Raises LockError: the lease of its lake is lost."""
        self.fences.check([key])
        with self._errors(key):
            self._obstore.put(self._store, key, content)

    def replace_seen(self, key: str, content: bytes) -> None:
        """Replace the version of an object that this process has read or written last. If it has
        seen none since `forget_seen`, replace the present one. Raises LockError: another process
        has written the object since.
        """
        seen = self._seen[key] if key in self._seen else self._present_tag(key)

        def put() -> bool | None:
            there: bytes | None = None
            tag = self.create(key, content) if seen is None else self.update(key, content, tag=seen)
            if tag is None:
                with suppress(FileNotFoundError):
                    there, tag = self.read_with_tag(key)
                if there != content:
                    self._see(key, seen)
                    return None if tag == seen else False
            self._see(key, tag)
            return True

        if not self._settled(key, put):
            raise LockError(
                "another process has written a file that only the holder of the lock writes: "
                f"{self._root}/{key}",
                expected="the version that this process has read",
                next_step="make sure that only one run at a time writes to this source's "
                "lake, then start the run again",
            )

    def forget_seen(self, folder: str) -> None:
        """Forget the versions seen in a folder, because its lock has changed hands."""
        for key in [key for key in self._seen if key.startswith(f"{folder}/")]:
            self._seen.pop(key, None)

    def _present_tag(self, key: str) -> Tag | None:
        found = self._head(key)
        return None if found is None else _tag(found)

    def rename(self, key: str, target: str) -> None:
        """Copy in the store, then delete. Raises FileNotFoundError."""
        self.fences.check([key, target])
        with self._errors(key):
            self._obstore.rename(self._store, key, target)

    def copy(self, key: str, target: str) -> None:
        """Copy in the store, over any existing object. Raises FileNotFoundError."""
        self.fences.check([target])
        with self._errors(key):
            self._obstore.copy(self._store, key, target)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are absent count as deleted."""
        if not keys:
            return
        self.fences.check(keys)
        for key in keys:
            self._see(key, None)
            self._small.forget(key)
        try:
            with self._errors(keys[0]):
                self._obstore.delete(self._store, list(keys))
        except FileNotFoundError:
            return

    def digest(self, key: str) -> tuple[int, str]:
        """Bytes and sha256 of an object, read in one request. Raises FileNotFoundError."""
        content = self._small.get(key)
        if content is not None:
            return len(content), hashlib.sha256(content).hexdigest()
        found, size = hashlib.sha256(), 0
        with self._errors(key):
            for piece in self._obstore.get(self._store, key).stream(min_chunk_size=_BUFFER_BYTES):
                found.update(piece)
                size += len(piece)
        return size, found.hexdigest()

    # -- listings ----------------------------------------------------------------------------------

    def has_any(self, folder: str) -> bool:
        with self._errors(folder, is_listing=True):
            return any(
                True
                for _ in self._listed(
                    self._obstore.list(self._store, _prefix(folder), chunk_size=1)
                )
            )

    def names(self, folder: str) -> list[str]:
        """Names right below a folder, of objects and of folders, sorted."""
        with self._errors(folder, is_listing=True):
            listing = self._obstore.list_with_delimiter(self._store, _prefix(folder))
            keys = [str(key) for key in listing["common_prefixes"]] + [
                str(item["path"]) for item in listing["objects"]
            ]
        return sorted({key.rstrip("/").rpartition("/")[2] for key in keys if key != folder})

    def sizes(self, folder: str) -> dict[str, int]:
        """Every object below a folder, with its bytes."""
        with self._errors(folder, is_listing=True):
            listed = self._listed(self._obstore.list(self._store, _prefix(folder)))
            return {str(item["path"]): int(item["size"]) for item in listed}

    def listed_after(self, folder: str, name: str) -> dict[str, Listed]:
        """Every object below a folder whose name comes after `name`."""
        with self._errors(folder, is_listing=True):
            pieces = self._obstore.list(self._store, _prefix(folder), offset=f"{folder}/{name}")
            listed = self._listed(pieces)
            return {
                str(item["path"]).removeprefix(f"{folder}/"): Listed(
                    str(item["e_tag"] or item["version"]),
                    int(item["size"]),
                    item["last_modified"].timestamp(),
                )
                for item in listed
            }

    @staticmethod
    def _listed(pieces: Any) -> Iterator[Any]:
        for piece in pieces:
            yield from piece

    def _keep(self, key: str, content: bytes) -> None:
        if len(content) <= _BUFFER_BYTES and _NEVER_AGAIN.search(key):
            self._small.put(key, content)

    # -- streams -----------------------------------------------------------------------------------

    def open_input(self, key: str) -> IO[bytes]:
        """Open a seekable stream, for footers and row groups: of a small object by one request.
        Raises FileNotFoundError.
        """
        content = self._small.get(key)
        if content is None and key.endswith(".parquet"):
            try:
                with self._errors(key):
                    answer = self._obstore.get(
                        self._store, key, options={"range": (0, _BUFFER_BYTES)}
                    )
                    begin, size_bytes = bytes(answer.bytes()), int(answer.meta["size"])
            except LakeUnreachableError:
                if self.size(key) != 0:  # of an empty object no range can be had
                    raise
                begin, size_bytes = b"", 0
            content = begin if len(begin) == size_bytes else None
        if content is not None:
            self._keep(key, content)
            return io.BytesIO(content)
        with self._errors(key):
            opened = self._obstore.open_reader(self._store, key, buffer_size=_BUFFER_BYTES)
        return io.BufferedReader(_Input(opened, lambda: self._errors(key)), _BUFFER_BYTES)

    def open_output(self, key: str, *, is_new: bool) -> IO[bytes]:
        """Open a stream whose object appears when it is closed, which raises FileExistsError if
        `is_new` and one exists.
        """

        def open_large() -> Any:
            if is_new and self.size(key) is not None:
                raise FileExistsError(17, "the object exists", f"{self._root}/{key}")
            return self._obstore.open_writer(
                self._store, key, buffer_size=_PART_BYTES, max_concurrency=2
            )

        def put(content: bytes) -> None:
            if not is_new:
                self.replace(key, content)
            elif not self.put_if_absent(key, content):
                raise FileExistsError(17, "the object exists", f"{self._root}/{key}")
            self._keep(key, content)

        return _Output(open_large, put, lambda: self._errors(key))  # type: ignore[return-value]

    @contextmanager
    def _errors(self, key: str, *, is_listing: bool = False) -> Iterator[None]:
        from obstore import exceptions as said

        at = f"{self._root}/{key}"
        try:
            yield
        except (said.AlreadyExistsError, said.PreconditionError):
            raise FileExistsError(17, "the object exists in another version", at) from None
        except (said.NotFoundError, FileNotFoundError) as error:
            if is_listing or "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise self._no_bucket() from None
            raise FileNotFoundError(2, "no such object", at) from None
        except (said.PermissionDeniedError, said.UnauthenticatedError) as error:
            raise self._refused(at, error) from None
        except (said.BaseError, OSError) as error:  # streams raise OSError, without a number
            if isinstance(error, OSError) and error.errno is not None:
                raise
            text = str(error)
            if "NoSuchBucket" in text or "specified bucket does not exist" in text:
                raise self._no_bucket() from None
            if any(sign in text for sign in _REFUSALS):
                raise self._refused(at, error) from None
            if any(sign in text for sign in _NO_CREDENTIALS):
                raise RuntimeSetupError(
                    f"no credentials for the object store were found: {at}",
                    setting="sink.storage",
                    expected="credentials in sink.storage, in the environment, or from the "
                    "machine's own identity",
                    got=self._answer(error),
                    next_step="set them in sink.storage from the environment, or give the machine "
                    "an identity that may use the bucket",
                ) from None
            raise LakeUnreachableError(
                f"the object store does not answer as expected: {at}",
                setting="sink.storage.endpoint" if self.config.endpoint else "sink.lake_path",
                got=f"{self.config.endpoint or 'the store'}: {self._answer(error)}",
                next_step="check the network and sink.storage.endpoint, then start the run again",
            ) from None

    def _no_bucket(self) -> CdcError:
        return RuntimeSetupError(
            f"the lake's bucket does not exist: {self._root}",
            setting="sink.lake_path",
            next_step="create it, or correct the URL; sink.storage.endpoint and region "
            "determine where the bucket is looked up",
        )

    def _refused(self, at: str, error: Exception) -> CdcError:
        setting, next_step = refusal(str(error))
        return RuntimeSetupError(
            f"the object store refuses access: {at}",
            setting=setting,
            expected="credentials that may list, read, write and delete below the lake",
            got=self._answer(error),
            next_step=next_step,
        )

    def _answer(self, error: Exception) -> str:
        return answer_of(hide(str(error), self.config.secrets))


class _Input(io.RawIOBase):
    """A reader of the library as a standard Python stream."""

    def __init__(self, opened: Any, errors: Callable[[], Any]) -> None:
        self._opened = opened
        self._errors = errors

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        return int(self._opened.tell())

    def readinto(self, buffer: Any, /) -> int:
        with self._errors():
            piece = self._opened.read(len(buffer))
        buffer[: len(piece)] = memoryview(piece)
        return len(piece)


class _Output(io.RawIOBase):
    """A writer of the library as a standard Python stream.

    Only `close` creates the object: a writer that is forgotten, or whose process dies, leaves
    none. What is smaller than a part is one request.
    """

    def __init__(
        self, open_large: Callable[[], Any], put: Callable[[bytes], None], errors: Callable[[], Any]
    ) -> None:
        self._open_large = open_large
        self._put = put
        self._errors = errors
        self._waiting = bytearray()
        self._opened: Any = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._opened is not None:
            with self._errors():
                self._opened.write(bytes(data))
        else:
            self._waiting += data
            if len(self._waiting) >= _PART_BYTES:
                with self._errors():
                    self._opened = self._open_large()
                    self._opened.write(bytes(self._waiting))
                self._waiting.clear()
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            try:
                with self._errors():
                    if self._opened is None:
                        self._put(bytes(self._waiting))
                    else:
                        self._opened.close()
            finally:
                super().close()

    def __del__(self) -> None:
        """Unlike standard streams, it is not closed when it is garbage-collected."""


@lru_cache(maxsize=64)
def storage_for(scheme: str, authority: str, config: StorageConfig) -> ObjectStorage:
    """The storage of a bucket, shared by all users of the same settings in the process."""
    return ObjectStorage(scheme, authority, config)


def _is_replaced(key: str) -> bool:
    """Whether a key may be that of a replaced file: a state file without a number."""
    return f"/{STATE_FOLDER}/" in f"/{key}" and not _NUMBERED.match(key.rpartition("/")[2])


def _tag(result: Any) -> Tag:
    return {
        name: str(result[name]) for name in ("e_tag", "version") if result.get(name) is not None
    }


def _prefix(folder: str) -> str | None:
    return f"{folder}/" if folder else None


_EXTRAS: Final = {"s3a": "s3", "abfss": "azure", "gs": "gcs"}


def _open(
    scheme: str, authority: str, config: StorageConfig, retry_s: float, answer_s: float
) -> Any:
    try:
        from obstore import store
    except ModuleNotFoundError as error:
        raise RuntimeSetupError(
            "the package that reads and writes object stores is not installed",
            setting="sink.lake_path",
            expected="the package obstore",
            got=f"{scheme}://{authority}",
            next_step=f"pip install 'cdc-pipeline[{_EXTRAS[scheme]}]'",
        ) from error

    kind: Any = {"s3a": store.S3Store, "abfss": store.AzureStore, "gs": store.GCSStore}[scheme]
    options = {
        "timeout": timedelta(seconds=answer_s),
        "connect_timeout": timedelta(seconds=min(CONNECT_S, answer_s)),
    }
    settings = library_settings(scheme, authority, config)
    is_plain = (endpoint_of(scheme, config) or "").startswith("http://")
    return kind(
        config=settings,
        client_options={**options, "allow_http": True} if is_plain else options,
        retry_config={
            "max_retries": _RETRIES_MAX,  # the time alone decides
            "retry_timeout": timedelta(seconds=retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=min(1.0, retry_s / 3)),
                "base": 2,
            },
        },
    )
