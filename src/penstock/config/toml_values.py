"""Values in TOML's notation, for `penstock config` and `penstock tables infer`.

JSON writes text, numbers, truth and lists of them as TOML does, with two exceptions: TOML refuses
U+007F unless it is escaped, and it has no surrogate pairs, so characters beyond U+FFFF must stand
as they are. `tests/unit/config/test_toml_values.py` reads any text back with `tomllib`.

`docs/dependencies.md` says why this is not `tomli-w`.
"""

from __future__ import annotations

import json


def toml_value(value: object) -> str:
    """Return text, a number, a truth value or a list of these as TOML, on one line.

    A quoted key is written like text.

    Raises:
        TypeError: the value is of another kind.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
