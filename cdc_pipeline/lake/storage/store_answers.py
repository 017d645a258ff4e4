"""What an object store answered, in a few words, and the setting that its refusal is about.

Rules:
- The library's own text, with its addresses, times and XML, is not shown: only the store's code and
  sentence, or what kept the request from being answered.
- What a store says is data: it is cut off, and shown as text only.
"""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_SENTENCE: Final = re.compile(r"<Message>\s*([^<]+)")
_STATUS: Final = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_CHARACTERS_MAX: Final = 200
# The codes of stores that speak S3 -> the setting at fault, and what to do.
_REFUSALS: Final = {
    "InvalidAccessKeyId": (
        "sink.storage.access_key_id",
        "correct the key: the store does not know it; check the environment variable that holds "
        "it, and that sink.storage.endpoint is the store that it belongs to",
    ),
    "SignatureDoesNotMatch": (
        "sink.storage.secret_access_key",
        "correct the secret: it is not that of the access key; check the environment variable "
        "that holds it",
    ),
}
_PERMISSIONS: Final = (
    "sink.storage",
    "let the account list, read, write and delete objects below the lake, or use another account",
)


def answer_of(text: str) -> str:
    """Its code and sentence, else the HTTP status, else the last part of the library's text."""
    text = " ".join(_COLOURS.sub("", text).split("Debug source:")[0].split())
    code, sentence, status = (
        match[1].strip() if (match := pattern.search(text)) else ""
        for pattern in (_CODE, _SENTENCE, _STATUS)
    )
    said = ": ".join(filter(None, (code, sentence if sentence != code else "")))
    said = said or status or text.rpartition(" - ")[2]
    return said if len(said) <= _CHARACTERS_MAX else f"{said[: _CHARACTERS_MAX - 3]}..."


def refusal(text: str) -> tuple[str, str]:
    """The setting that a refusal is about, and what to do about it."""
    found = _CODE.search(text)
    return _REFUSALS.get(found[1] if found else "", _PERMISSIONS)
