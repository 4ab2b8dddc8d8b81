"""Passwords in text that quotes a setting: in errors, log lines and `penstock config`.

::

      https://user:secret@host/            ─▶  https://user:********@host/
      wss://host/mqtt?X-Amz-Signature=1f3c ─▶  wss://host/mqtt?X-Amz-Signature=********
      jdbc:postgresql://host;password=p    ─▶  jdbc:postgresql://host;password=********

It looks at the form of the text, because a setting that is wrong is quoted as it was written.

The text may be hostile, and long. So each search begins only where a word does, and reads it once:
the time grows with the text, and not with its square.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"

_ENDINGS: Final = (
    r"[\w.-]*(?:password|passwd|pwd|secret|token|signature|credential|api[_-]?key|access[_-]?key)"
    r"|sig"
)
_NAME: Final = re.compile(_ENDINGS, re.IGNORECASE)
_UP_TO_AT: Final = re.compile(r"(?<![^\s'\"])[^\s'\"]*@")
_IN_URL: Final = re.compile(r"(://[^\s'\"/:@]*:)(?!\d{1,5}/).*@", re.DOTALL)
_PAIR: Final = re.compile(rf"(?<![\w.-])({_ENDINGS})=[^\s&;,#'\"]+", re.IGNORECASE)
_QUOTED: Final = re.compile(
    rf"((?:['\"](?:{_ENDINGS})['\"]: ?)|(?<![\w.-])(?:{_ENDINGS})=)(?:'[^']*'|\"[^\"]*\"|\d+)",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Return whether a setting of this name is a password, a token or a key; a file with one is
    not."""
    return _NAME.fullmatch(name) is not None


def masked(text: str) -> str:
    """Return `text` without passwords in URLs and behind names (``password=``, ``'token':``)."""
    if "@" in text:
        text = _UP_TO_AT.sub(_without_password, text)
    if "=" in text:
        text = _PAIR.sub(rf"\1={MASK}", text)
    if "'" in text or '"' in text:
        text = _QUOTED.sub(rf"\1'{MASK}'", text)
    return text


def _without_password(found: re.Match[str]) -> str:
    return _IN_URL.sub(rf"\1{MASK}@", found[0])
