"""Read and write deletion vectors: the numbers of deleted rows that Delta keeps beside its data
files, without a loop over rows.

Rules:
- Reading is strict: a bitmap that is not exactly as the formats say is an error, never a shorter or
  another list of rows.
- A vector's checksum is compared before its bitmap is used.

Source: Delta's protocol, "Deletion Vectors", "Deletion Vector Files", "Z85"; the portable
serialization of Roaring bitmaps, with its 64-bit extension.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.failures import OF_LOST_FILES

_MAGIC: Final = 1681511377
_NO_RUNS: Final = 12346
_RUNS: Final = 12347
_RUNS_WITH_OFFSETS_MIN: Final = 4  # containers; fewer have no offsets if there are runs
_ARRAY_ROWS_MAX: Final = 4096  # above it a container is 65,536 bits
_BITS_BYTES: Final = 8192
_FILE_VERSION: Final = b"\x01"
_UUID_CHARACTERS: Final = 20
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_B85: Final = (
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_TO_B85: Final = str.maketrans(_Z85, _B85)
_FROM_B85: Final = str.maketrans(_B85, _Z85)


def is_readable(vector: Mapping[str, Any] | None) -> bool:
    """There is none, or it is in the log or in a file of the table's own folder."""
    return vector is None or vector["storageType"] in ("i", "u")


def rows_of_vector(table: Path, vector: Mapping[str, Any]) -> NDArray[np.int64]:
    """The rows, ascending, that it marks. LakeStateError: its file is missing or damaged."""
    text, size_bytes = vector["pathOrInlineDv"], int(vector["sizeInBytes"])
    where = "the log"
    try:
        if vector["storageType"] == "i":
            content = _z85_bytes(text)[:size_bytes]
        else:
            file = vector_path(table, text)
            where = str(file)
            content = _in_file(file.read_bytes(), int(vector["offset"]), size_bytes)
        rows = bitmap_rows(content)
        if len(rows) != vector["cardinality"]:
            raise ValueError(f"{len(rows)} rows instead of {vector['cardinality']}")
    except (OSError, ValueError, struct.error) as error:
        raise LakeStateError(
            f"a deletion vector of a Delta table cannot be read: {where}",
            expected=f"a bitmap of {vector['cardinality']} rows in {size_bytes} bytes",
            got=f"{type(error).__name__}: {error}",
            next_step=OF_LOST_FILES,
        ) from None
    return rows


def vector_path(table: Path, text: str) -> Path:
    """Storage type ``u``: a prefix of folders, then a UUID in Z85."""
    identity = uuid.UUID(bytes=_z85_bytes(text[-_UUID_CHARACTERS:]))
    return table / text[:-_UUID_CHARACTERS] / f"deletion_vector_{identity}.bin"


def write_vectors(table: Path, bitmaps: Sequence[bytes]) -> list[dict[str, Any]]:
    """One new file; descriptors lack their cardinality. Raises SinkError: the disk refuses it."""
    identity = uuid.uuid4()
    text = base64.b85encode(identity.bytes).decode("ascii").translate(_FROM_B85)
    parts, described, offset = [_FILE_VERSION], [], len(_FILE_VERSION)
    for bitmap in bitmaps:
        described.append(
            {
                "storageType": "u",
                "pathOrInlineDv": text,
                "offset": offset,
                "sizeInBytes": len(bitmap),
            }
        )
        parts += [struct.pack(">I", len(bitmap)), bitmap, struct.pack(">I", zlib.crc32(bitmap))]
        offset += len(bitmap) + 8
    path = vector_path(table, text)
    storage = storage_of(path)
    with storage.create(path) as stream:
        stream.write(b"".join(parts))
        storage.finish(stream)
    return described


def _z85_bytes(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))


def _in_file(content: bytes, offset: int, size_bytes: int) -> bytes:
    if content[:1] != _FILE_VERSION:
        raise ValueError("a file of another version")
    (length,) = struct.unpack_from(">I", content, offset)
    begin = offset + 4
    bitmap = content[begin : begin + size_bytes]
    (checksum,) = struct.unpack_from(">I", content, begin + size_bytes)
    if length != size_bytes or zlib.crc32(bitmap) != checksum:
        raise ValueError("another length or checksum than recorded")
    return bitmap


def bitmap_rows(content: bytes) -> NDArray[np.int64]:
    """Ascending; of a portable 64-bit bitmap array. Raises ValueError, struct.error: it is none."""
    magic, count = struct.unpack_from("<IQ", content)
    if magic != _MAGIC:
        raise ValueError(f"magic number {magic}")
    at, parts, highest = 12, [np.zeros(0, np.int64)], -1
    for _ in range(count):
        (key,) = struct.unpack_from("<I", content, at)
        if key <= highest:
            raise ValueError("bitmaps out of order")
        highest = key
        rows, at = _roaring_rows(content, at + 4)
        parts.append(rows + (key << 32))
    if at != len(content):
        raise ValueError(f"{len(content) - at} bytes after the last bitmap")
    return np.concatenate(parts)


def _roaring_rows(content: bytes, at: int) -> tuple[NDArray[np.int64], int]:
    """The values of the 32-bit bitmap at `at`, and where it ends."""
    (cookie,) = struct.unpack_from("<I", content, at)
    at += 4
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        has_runs = np.unpackbits(_array(content, at, size, "u1"), bitorder="little")[:count]
        at += size
        has_offsets = count >= _RUNS_WITH_OFFSETS_MIN
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", content, at)
        at += 4
        has_runs, has_offsets = None, True
    else:
        raise ValueError(f"cookie {cookie}")
    described = _array(content, at, 2 * count, "<u2").astype(np.int64).reshape(count, 2)
    keys = described[:, 0]
    if (np.diff(keys) <= 0).any():
        raise ValueError("containers out of order")
    at += 4 * count + (4 * count if has_offsets else 0)
    rows = [np.zeros(0, np.int64)]
    for number, (key, last) in enumerate(described.tolist()):
        is_runs = has_runs is not None and bool(has_runs[number])
        low, at = _container_rows(content, at, last + 1, is_runs=is_runs)
        rows.append(low + (key << 16))
    return np.concatenate(rows), at


def _container_rows(
    content: bytes, at: int, size: int, *, is_runs: bool
) -> tuple[NDArray[np.int64], int]:
    if is_runs:
        (count,) = struct.unpack_from("<H", content, at)
        runs = _array(content, at + 2, 2 * count, "<u2").astype(np.int64).reshape(count, 2)
        lengths = runs[:, 1] + 1
        first = np.repeat(runs[:, 0] - np.cumsum(lengths) + lengths, lengths)
        low, at = first + np.arange(len(first)), at + 2 + 4 * count
    elif size <= _ARRAY_ROWS_MAX:
        low, at = _array(content, at, size, "<u2").astype(np.int64), at + 2 * size
    else:
        bits = np.unpackbits(_array(content, at, _BITS_BYTES, "u1"), bitorder="little")
        low, at = np.flatnonzero(bits), at + _BITS_BYTES
    if len(low) != size or (np.diff(low) <= 0).any() or low[-1] > 0xFFFF:
        raise ValueError("a container is not as described")
    return low, at


def _array(content: bytes, at: int, count: int, kind: str) -> NDArray[Any]:
    return np.frombuffer(content, np.dtype(kind), count, at)


def bitmap_bytes(rows: NDArray[np.int64]) -> bytes:
    """The 64-bit bitmap array of row numbers in any order, any number of times."""
    values = np.unique(rows)
    high, first = np.unique(values >> 32, return_index=True)
    stop = np.append(first[1:], len(values))
    parts = [struct.pack("<IQ", _MAGIC, len(high))]
    for key, begin, end in zip(high.tolist(), first.tolist(), stop.tolist(), strict=True):
        parts += [struct.pack("<I", key), _roaring(values[begin:end] & 0xFFFFFFFF)]
    return b"".join(parts)


def _roaring(values: NDArray[np.int64]) -> bytes:
    low = (values & 0xFFFF).astype("<u2")
    keys, first = np.unique(values >> 16, return_index=True)
    sizes = np.diff(np.append(first, len(values)))
    described = np.stack([keys, sizes - 1], axis=1).astype("<u2").tobytes()
    bodies = [
        _container(low[begin : begin + size])
        for begin, size in zip(first.tolist(), sizes.tolist(), strict=True)
    ]
    begins = 8 + 8 * len(keys) + np.cumsum([0, *map(len, bodies[:-1])])
    return (
        struct.pack("<II", _NO_RUNS, len(keys))
        + described
        + begins.astype("<u4").tobytes()
        + b"".join(bodies)
    )


def _container(low: NDArray[np.uint16]) -> bytes:
    if len(low) <= _ARRAY_ROWS_MAX:
        return low.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()
