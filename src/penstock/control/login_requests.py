"""The requests of the admin process about operators that log in by name and password.

The broker checks an operator's password as it checks those of clients: in the same threads, with
the same delays and bans. A login results in a role, and in a fingerprint of the password line, by
which the broker knows later whether it would let the same operator in again.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

WRONG_LOGIN: Final = "wrong"
BANNED: Final = "banned"
TOO_OFTEN: Final = "too_often"
UNAVAILABLE: Final = "unavailable"
NO_ROLE: Final = "no_role"
"""The reasons why an operator is not let in."""

LoginText = Annotated[str, msgspec.Meta(max_length=65_535)]
ShortText = Annotated[str, msgspec.Meta(max_length=200)]


class LogIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="log_in", tag_field="do"):
    """Check the password of an operator; ``done`` is ``LoginOutcome``.

    Attributes:
        user: the user name; empty where the password is a JSON Web Token, which says it.
        password: the password.
        address: the address that the operator comes from.
        via: how the operator logs in, for the event: "page" or "API".
    """

    user: LoginText
    password: LoginText
    address: ShortText
    via: ShortText

    def __repr__(self) -> str:
        """Return a representation without the password."""
        return f"LogIn({self.user!r}, {self.address!r})"


class LoginOutcome(msgspec.Struct, frozen=True):
    """The outcome of a login.

    Attributes:
        refused: why the operator is not let in, one of the reasons above; empty: let in.
        user: the user name.
        role: the role in admin.users.
        password_fingerprint: a text for ``ConfirmLogin``, which differs once the password changes.
        lasts_s: how long the login may last, in seconds; 0: without limit.
    """

    refused: str = ""
    user: str = ""
    role: str = ""
    password_fingerprint: str = ""
    lasts_s: float = 0.0


class ConfirmLogin(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="confirm_login", tag_field="do"
):
    """Return the present role of an operator that logged in earlier; ``done`` is the role, empty
    for an operator that would not be let in again: removed, banned, without a role or with another
    password."""

    user: LoginText
    password_fingerprint: ShortText
    address: ShortText


LoginRequest = LogIn | ConfirmLogin
