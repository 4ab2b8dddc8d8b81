"""JSON Web Tokens (RFC 7519) as passwords: a signature proves the identity of a client.

::

      password = token ─▶ key by its "kid" ─▶ signature ─▶ exp, nbf, aud, iss ─▶ user name
                             ╰─ a key set (RFC 7517)          "acl" ─▶ access list
                                from a file or URL            "exp" ─▶ end of the connection

The settings and the key decide which algorithms are accepted, never the token: a token with another
algorithm, or none, is refused. A key set in a file is read again when the file has changed. A key
set at a URL is read at the first token, and every ``refresh_s``; for a token with an unknown key it
is read again, at the earliest ``REFRESH_S_MIN`` after the last read, so that invalid tokens cause
few requests. It is read in a thread of its own, and no token whose key is there waits for it. If
the new set cannot be used, the old set stays; without any key no client is accepted.
"""

from __future__ import annotations

import json
import threading
import time
from http import HTTPStatus
from typing import Any, Final, final

import jwt

from penstock.auth.external import Answer
from penstock.auth.http_requests import parse_rules
from penstock.auth.passwords import name_mistake
from penstock.auth.web_requests import WebFailure, WebService
from penstock.engine.values.access import Credentials
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.errors import ConfigError
from penstock.protocol import reasons
from penstock.regular_file import FileVersion, file_version, read_regular
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

REFRESH_S_MIN: Final = 30.0
TIMEOUT_S: Final = 5.0
WAITING_MAX: Final = 4
KEYS_BYTES_MAX: Final = 1_048_576
TOKEN_BYTES_MAX: Final = 16_384
LEEWAY_S: Final = 5


class KeysUnavailable(Exception):
    """No key set could be read yet."""


@final
class KeySet:
    """The keys by which the signatures of tokens are verified.

    Args:
        source: the path of a JWKS file, or its https:// or http:// URL.
        refresh_s: time between two reads of a URL, in seconds.

    Raises:
        ConfigError: the file cannot be read, or is no key set.
    """

    def __init__(self, source: str, refresh_s: float) -> None:
        self._source = source
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._requested_s = float("-inf")  # when the URL was read last
        self._read_ended: threading.Event | None = None  # of the read that is under way
        self._waiting = 0
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_version: FileVersion | None = None  # of the file, at its last read
        self._service: WebService | None = None
        if source.startswith(("https://", "http://")):
            self._service = WebService(source, TIMEOUT_S, body_bytes_max=KEYS_BYTES_MAX)
            return
        try:
            self._read_version = file_version(source)
            self._keys = _parse_keys(read_regular(source, KEYS_BYTES_MAX))
        except OSError as error:
            raise ConfigError(f"The key set {source} cannot be read: {error.strerror}.") from None
        except ValueError as error:
            raise ConfigError(f"{source} is no JSON Web Key Set: {error}.") from None

    def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this identifier, or the only key for None; None if there is no such
        key.

        A key that was read before is returned at once, whatever its URL does. Only while no key was
        read at all, at most ``WAITING_MAX`` threads wait for the URL, for ``TIMEOUT_S`` each.

        Raises:
            KeysUnavailable: no key set could be read yet, or this key may be in the set that is
                being read.
        """
        with self._lock:
            if self._service is None:
                self._read_if_changed()
            else:
                self._begin_read_if_due(self._service, key_id)
            under_way = self._read_ended
            found = self._find(key_id)
            if found is not None or (under_way is None and self._keys):
                return found
            may_wait = under_way is not None and not self._keys and self._waiting < WAITING_MAX
            if under_way is None or not may_wait:
                raise KeysUnavailable(self._source)
            self._waiting += 1
        under_way.wait(TIMEOUT_S)
        with self._lock:
            self._waiting -= 1
            if not self._keys:
                raise KeysUnavailable(self._source)
            return self._find(key_id)

    def close(self) -> None:
        """End a read that is under way, and all waiting for it."""
        if self._service is not None:
            self._service.close()

    def _find(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _read_if_changed(self) -> None:
        """Read the key file again if it has changed; keep the old keys if that fails."""
        version = file_version(self._source)
        if version == self._read_version:
            return
        self._read_version = version
        try:
            self._keys = _parse_keys(read_regular(self._source, KEYS_BYTES_MAX))
        except (OSError, ValueError) as error:
            logger.warning("The key set %s stays as it was: %s.", self._source, error)
        else:
            logger.info("The key set %s was read again.", self._source)

    def _begin_read_if_due(self, service: WebService, key_id: str | None) -> None:
        """Read the URL in a thread, if that is due and not under way.

        Anybody can send a token with a key identifier that is not there: what that costs is one
        request in ``REFRESH_S_MIN``, for which nobody with a key that is there waits.
        """
        if self._read_ended is not None:
            return
        age_s = time.monotonic() - self._requested_s
        is_missing = not self._keys or (key_id is not None and key_id not in self._keys)
        if age_s < (REFRESH_S_MIN if is_missing else self._refresh_s):
            return
        self._requested_s = time.monotonic()
        self._read_ended = threading.Event()
        threading.Thread(target=self._read_url, args=(service,), daemon=True).start()

    def _read_url(self, service: WebService) -> None:
        """Read the URL; called in a thread of its own."""
        keys: dict[str | None, jwt.PyJWK] | None = None
        try:
            reply = service.request("GET")
            if reply.status != HTTPStatus.OK:
                raise ValueError(f"it answers {reply.status}")
            keys = _parse_keys(reply.body)
        except (WebFailure, ValueError) as error:
            logger.warning("the key set %s could not be read: %s", self._source, error)
        finally:
            with self._lock:
                ended, self._read_ended = self._read_ended, None
                if keys:
                    self._keys = keys
            if ended is not None:
                ended.set()


@final
class TokenMethod:
    """Authenticates clients whose password is a token.

    Args:
        keys: the keys by which signatures are verified.
        algorithms: the accepted algorithms.
        audience: the audience that a token must have; empty for any.
        issuer: the issuer that a token must have; empty for any.
        user_claim: the claim with the user name; a user name in CONNECT must be equal to it.
        acl_claim: the claim with the access list, as in ``http_requests``.
    """

    def __init__(
        self,
        keys: KeySet,
        algorithms: tuple[str, ...],
        audience: str = "",
        issuer: str = "",
        user_claim: str = "sub",
        acl_claim: str = "acl",
    ) -> None:
        self._keys = keys
        self._algorithms = algorithms
        self._audience = audience
        self._issuer = issuer
        self._user_claim = user_claim
        self._acl_claim = acl_claim

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether the password has the form of a token: three parts, the first of which
        begins with a JSON object in base64."""
        password = credentials.password
        return password is not None and password.startswith(b"eyJ") and password.count(b".") == 2

    def check(self, credentials: Credentials) -> Answer:
        """Verify the token, and return the answer."""
        token = credentials.password or b""
        if len(token) > TOKEN_BYTES_MAX:
            detail = "its token (it is too long)"
            return Answer(reasons.BAD_USER_NAME_OR_PASSWORD, detail=detail)
        try:
            claims = self._claims(token)
            return self._answer(claims, credentials)
        except KeysUnavailable:
            return Answer(reasons.SERVER_UNAVAILABLE, detail="jwt_login.keys cannot be read")
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            detail = f"its token ({str(error)[:REASON_CHARACTERS_MAX]})"
            return Answer(reasons.BAD_USER_NAME_OR_PASSWORD, detail=detail)

    def close(self) -> None:
        """End the waiting for keys."""
        self._keys.close()

    def _claims(self, token: bytes) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        key_id = header.get("kid")
        key = self._keys.key(key_id if isinstance(key_id, str) else None)
        algorithm = header.get("alg")
        if key is None or algorithm not in self._algorithms or key.algorithm_name != algorithm:
            raise ValueError("no key for it, or another algorithm")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audience or None,
            issuer=self._issuer or None,
            leeway=LEEWAY_S,
            options={"require": ["exp"], "verify_aud": bool(self._audience)},
        )
        return claims

    def _answer(self, claims: dict[str, Any], credentials: Credentials) -> Answer:
        username = claims.get(self._user_claim)
        if not isinstance(username, str) or name_mistake(username):
            raise ValueError("no user name in it")
        if credentials.username not in (None, "", username):
            raise ValueError("for another user")
        lasts_s = float(claims["exp"]) + LEEWAY_S - time.time()
        if lasts_s <= 0:
            raise ValueError("it ended")
        acl = claims.get(self._acl_claim)
        return Answer(reasons.SUCCESS, username, None if acl is None else parse_rules(acl), lasts_s)


def _parse_keys(text: bytes) -> dict[str | None, jwt.PyJWK]:
    """Return the signing keys of a key set, by identifier.

    Raises:
        ValueError: the bytes are no key set, or the set has no keys.
    """
    try:
        decoded = json.loads(text)
        found = jwt.PyJWKSet.from_dict(decoded).keys
    except (jwt.PyJWTError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return {key.key_id: key for key in found if key.public_key_use in (None, "sig")}
