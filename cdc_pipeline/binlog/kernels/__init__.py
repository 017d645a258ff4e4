"""Compiled loops of the row decoder on numpy arrays. Each has a slow twin in tests/binlog.

Rules:
- `walk_rows` is the only kernel that reads unchecked bytes: it proves that every value is inside
  its event. Later kernels trust its offsets and check only what the walk cannot know (digits,
  dates, text, JSON offsets).
- A kernel never raises for bad input: it returns a code and a position, and Python raises the
  error.
- Bytes are read through `byte_at`, whose unsigned index spares the compiler negative-index
  arithmetic.
- The same source runs uncompiled (NUMBA_DISABLE_JIT=1): every byte is widened before it is shifted.
"""
