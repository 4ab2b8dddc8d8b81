"""Replaces passwords in text that quotes a setting: errors, log lines and `penstock config`.

::

      https://user:secret@host/            ─▶  https://user:********@host/
      wss://host/mqtt?X-Amz-Signature=1f3c ─▶  wss://host/mqtt?X-Amz-Signature=********
      jdbc:postgresql://host;password=p    ─▶  jdbc:postgresql://host;password=********

Secrets are found by patterns in the text, not by parsing it: an error quotes a setting that could
not be parsed.

The text may be hostile and long. So each pattern matches only from the start of a word, and the
time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"

_ENDINGS: Final = (
    r"[\w.-]*(?:password|passwd|pwd|secret|token|signature|credential|api[_-]?key|access[_-]?key)"
    r"|sig|psk"
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
    """Return whether a setting of this name holds a password, a token or a key.

    The path of a file with a password is no secret: the name `password_file` is not.
    """
    return _NAME.fullmatch(name) is not None


def mask_secrets(text: str) -> str:
    """Return `text` with `MASK` in place of secrets.

    Secrets are passwords in URLs, and values after secret names (``password=``, ``'token':``).
    """
    if "@" in text:
        text = _UP_TO_AT.sub(_without_password, text)
    if "=" in text:
        text = _PAIR.sub(rf"\1={MASK}", text)
    if "'" in text or '"' in text:
        text = _QUOTED.sub(rf"\1'{MASK}'", text)
    return text


def _without_password(found: re.Match[str]) -> str:
    return _IN_URL.sub(rf"\1{MASK}@", found[0])
