"""The certificates of authorities in a directory of Mosquitto's (``capath``, ``bridge_capath``),
without anything else in its files.

People keep the key of an authority or of the broker beside its certificate, and often in the same
file. The bundle made of them is a new file, which the broker reads for as long as it runs and which
is copied to other machines, so only the blocks between the marks of a certificate are copied into
it: no key, no text.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

FILE_CHARS_MAX: Final = 4 << 20
"""A longer file is refused; the bundle of a system's authorities has some 250,000 characters."""

_FILE_NAME: Final = re.compile(r".+\.(pem|crt|cer|[0-9]+)")  # digits: names of OpenSSL's `rehash`
_CERTIFICATE: Final = re.compile(
    r"^-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----\n[A-Za-z0-9+/=\s]+^-----END \1-----$",
    re.MULTILINE,
)


def certificates_in(directory: Path) -> list[str]:
    """Return the certificates of ``directory`` in PEM, each once, by the names of their files.

    Raises:
        OSError: the directory cannot be read, or a file with the name of a certificate cannot be
            read or is too long.
    """
    found: dict[str, None] = {}
    for path in sorted(directory.iterdir()):
        if _FILE_NAME.fullmatch(path.name) and path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                text = file.read(FILE_CHARS_MAX + 1)
            if len(text) > FILE_CHARS_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
            for block in _CERTIFICATE.finditer(text):
                found[f"{block[0]}\n"] = None
    return list(found)
