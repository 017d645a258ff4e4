"""Compiled loops of the row decoder. Each takes and gives numpy arrays; each has a slow twin in tests/binlog.

Rules:
- `walk_rows` is the only kernel that meets unchecked bytes: it proves that every value lies inside its event. The
  kernels after it trust its offsets, and check only what the walk cannot know (digits, dates, text, JSON offsets).
- A kernel never raises for bad input: it reports a code and a place, and Python makes the error.
- Bytes are read through `byte_at`, whose unsigned index keeps the compiler from adding negative-index arithmetic.
- The same source runs uncompiled (NUMBA_DISABLE_JIT=1): every byte is widened before it is shifted.
"""
