"""The login method that asks an HTTP service: one request for each login, with a cache and a time
limit.

::

      POST {"clientid", "username", "password", "peerhost"}
        200  {"result": "allow" | "deny" | "ignore", "acl": [RULE …], "expire_at": seconds}
        204  allow                     401, 403, 404  deny          other: "server unavailable"

      RULE = {"permission": "allow" | "deny", "action": "publish" | "subscribe" | "all",
              "topic": FILTER}         with %c and %u (or ${clientid}, ${username}) in it

The format is EMQX's, so that a service written for EMQX can be used. Without ``acl`` the access
list of the broker applies. If the service does not answer in time, or answers in another form, the
client is refused with "server unavailable". Answers are cached for ``cache_s`` by a keyed hash.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Final, final

from penstock.auth.acl import DENY, READ, READWRITE, WRITE, LoginRules, Rule
from penstock.auth.external import Answer
from penstock.auth.web_requests import REQUESTS_MAX, Reply, WebFailure, WebService
from penstock.engine.values.access import Credentials
from penstock.engine.values.addresses import ip_of
from penstock.engine.values.topics import is_topic_filter
from penstock.protocol import reasons
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)

RULES_MAX: Final = 1000
RULES_CHARACTERS_MAX: Final = 32_768
CACHED_MAX: Final = 10_000
EXPIRE_AT_S_MAX: Final = 1e15  # seconds of Unix time

_LEVELS_MAX: Final = 1000
_ACTIONS: Final = {"publish": WRITE, "subscribe": READ, "all": READWRITE}
_UNAVAILABLE: Final = Answer(reasons.SERVER_UNAVAILABLE, detail="http_login.url could not say")
_WRONG: Final = Answer(reasons.BAD_USER_NAME_OR_PASSWORD, detail="http_login.url says so")


@final
class HttpMethod:
    """Authenticates clients by requests to one service.

    Args:
        url: the URL of the service.
        timeout_s: the time limit of a whole request, in seconds.
        cache_s: seconds for which an answer is cached; 0 = not at all.
        ca_file: file of the authorities for the service's certificate; empty for the system's.
        token: the token that is sent to the service (``Authorization: Bearer``); empty for none.
        requests_max: the largest number of requests at the same time.

    Raises:
        OSError: ``ca_file`` cannot be read, or has no certificates.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        cache_s: float,
        ca_file: str = "",
        token: str = "",
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._url = url
        self._cache_s = cache_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._service = WebService(url, timeout_s, ca_file, requests_max)
        self._key = secrets.token_bytes(32)
        self._cache: OrderedDict[bytes, tuple[float, Answer]] = OrderedDict()
        self._lock = threading.Lock()
        self._limiter = RepeatLimiter()

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether there is a user name: the service authenticates every such client."""
        return credentials.username is not None

    def check(self, credentials: Credentials) -> Answer:
        """Return the service's answer, from the cache if it answered the same request recently."""
        fields = {
            "clientid": credentials.client_id,
            "username": credentials.username,
            "password": (credentials.password or b"").decode(errors="replace"),
            "peerhost": str(ip_of(credentials.address) or ""),
        }
        body = json.dumps(fields).encode()
        exact = body + b"\0" + (credentials.password or b"")
        key = hashlib.blake2b(exact, key=self._key, digest_size=32).digest()
        cached = self._find_cached(key)
        if cached is not None:
            return cached
        try:
            reply = self._service.request("POST", body=body, headers=self._headers)
            answer = _answer_in(reply, credentials.username)
        except (WebFailure, ValueError, RecursionError) as error:
            self._log_failure(error)
            return _UNAVAILABLE
        self._cache_answer(key, answer)
        return answer

    def close(self) -> None:
        """Cut all requests that are under way: their clients are not let in."""
        self._service.close()

    def _log_failure(self, error: Exception) -> None:
        """Log why the service cannot be used; rate-limited, because every login asks it."""
        with self._lock:
            warn_limited(
                logger,
                self._limiter,
                time.monotonic(),
                type(error).__name__,
                "http_login.url %s could not authenticate a client: %s",
                self._url,
                error,
            )

    def _find_cached(self, key: bytes) -> Answer | None:
        with self._lock:
            found = self._cache.get(key)
            if found is None or found[0] <= time.monotonic():
                return None
            return found[1]

    def _cache_answer(self, key: bytes, answer: Answer) -> None:
        if self._cache_s <= 0 or answer.lasts_s > 0:  # ``lasts_s`` counts from each login
            return
        with self._lock:
            self._cache[key] = (time.monotonic() + self._cache_s, answer)
            self._cache.move_to_end(key)
            if len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)


def _answer_in(reply: Reply, username: str | None) -> Answer:
    """Return the answer for ``username`` that a service gave.

    Raises:
        ValueError: the answer has another form.
    """
    if reply.status == HTTPStatus.NO_CONTENT:
        return Answer(reasons.SUCCESS, username)
    if reply.status in (401, 403, 404):
        return _WRONG
    if reply.status != HTTPStatus.OK:
        raise ValueError(f"it answers {reply.status}")
    try:
        content = json.loads(reply.body)
    except ValueError:
        raise ValueError("its answer is no JSON") from None
    return parse_answer(content, username)


def parse_answer(content: object, username: str | None) -> Answer:
    """Return the answer for ``username`` in a decoded JSON body.

    Raises:
        ValueError: the body is no answer; the message is one sentence.
    """
    if not isinstance(content, dict):
        raise ValueError("its answer is no JSON object")
    result = content.get("result")
    if result in ("deny", "ignore"):
        return _WRONG
    if result != "allow":
        raise ValueError('its answer has no "result" that is allow, deny or ignore')
    lasts_s = 0.0
    expire_at = content.get("expire_at")
    if expire_at is not None:
        if not isinstance(expire_at, int | float) or isinstance(expire_at, bool):
            raise ValueError('"expire_at" is no number')
        if not abs(expire_at) <= EXPIRE_AT_S_MAX:  # also infinity, and what is no number
            raise ValueError('"expire_at" is no time')
        lasts_s = expire_at - time.time()
        if not lasts_s > 0:
            return _WRONG
    acl = content.get("acl")
    rules = None if acl is None else parse_rules(acl)
    return Answer(reasons.SUCCESS, username, rules, lasts_s)


def parse_rules(acl: object) -> LoginRules:
    """Return the rules of an access list in decoded JSON.

    Raises:
        ValueError: the list is too long, or an item is no rule; the whole list is refused.
    """
    if not isinstance(acl, list) or len(acl) > RULES_MAX:
        raise ValueError(f'"acl" is no list of at most {RULES_MAX} rules')
    rules = tuple(_rule(entry) for entry in acl)
    if sum(len(rule.topic_filter) for rule in rules) > RULES_CHARACTERS_MAX:
        raise ValueError(f'the topics of "acl" have more than {RULES_CHARACTERS_MAX} characters')
    return LoginRules(rules)


def _rule(entry: object) -> Rule:
    if not isinstance(entry, dict):
        raise ValueError("a rule is no JSON object")
    permission, topic = entry.get("permission"), entry.get("topic")
    action = _ACTIONS.get(str(entry.get("action", "all")))
    if permission not in ("allow", "deny") or action is None or not isinstance(topic, str):
        raise ValueError("a rule has no permission (allow, deny), action or topic that is known")
    topic = topic.replace("${clientid}", "%c").replace("${username}", "%u")
    plain = topic.replace("%c", "c").replace("%u", "u")
    if not is_topic_filter(plain, _LEVELS_MAX):
        raise ValueError("a rule's topic is no MQTT topic filter")
    return Rule(DENY if permission == "deny" else action, topic)
