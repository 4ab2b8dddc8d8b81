"""The requests of the admin process about operators that log in by name and password.

The broker checks the password, as it checks those of clients: in the same threads, with the same
delays and bans. A login results in a role, and in a fingerprint of the password line, by which the
broker knows later whether it would let the same operator in again.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

WRONG: Final = "wrong"
BANNED: Final = "banned"
TOO_OFTEN: Final = "too_often"
UNAVAILABLE: Final = "unavailable"
NO_ROLE: Final = "no_role"
"""The reasons why an operator is not let in."""

Text = Annotated[str, msgspec.Meta(max_length=65_535)]
Short = Annotated[str, msgspec.Meta(max_length=200)]


class LogIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="log_in", tag_field="do"):
    """Check the password of an operator; ``done`` is ``Login``.

    Attributes:
        user: the user name; empty where the password is a JSON Web Token, which says it.
        password: the password.
        address: the address that the operator comes from.
        via: the way it came, for the event: "page" or "API".
    """

    user: Text
    password: Text
    address: Short
    via: Short

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"LogIn({self.user!r}, {self.address!r})"


class Login(msgspec.Struct, frozen=True):
    """The outcome of a login.

    Attributes:
        refused: why not, one of the reasons above; empty: the operator is let in.
        user: the user name.
        role: the role in admin.users.
        password_fingerprint: a text for ``ConfirmLogin``, another one once the password changed.
        lasts_s: how long it may last, seconds; 0 = without limit.
    """

    refused: str = ""
    user: str = ""
    role: str = ""
    password_fingerprint: str = ""
    lasts_s: float = 0.0


class ConfirmLogin(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="confirm_login", tag_field="do"
):
    """Say the role of an operator that logged in earlier; ``done`` is text, empty for one that
    would not be let in again: removed, banned, without a role or with another password."""

    user: Text
    password_fingerprint: Short
    address: Short


LoginRequest = LogIn | ConfirmLogin
