"""Secrets of a configuration or a process in a text, replaced by what may be shown (K26).

Rules:
- This is the only place that does it. The longest comes first and a text is read once: of two
  secrets of which one contains the other no rest stays, and what was put in is not read again.
- A secret is also found as Python shows it in quotes (`repr`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

NOT_SHOWN: Final = "***"


def hide(text: str, secrets: Iterable[str] | Mapping[str, str]) -> str:
    """Return `text` with each secret replaced by `NOT_SHOWN`, or by its value in a mapping. Empty
    secrets are none."""
    shown = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, NOT_SHOWN)
    forms = {
        form: shown[secret] for secret in shown for form in (repr(secret)[1:-1], secret) if form
    }
    if not forms:
        return text
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: forms[found[0]], text)
