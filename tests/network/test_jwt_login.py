"""JSON Web Tokens as passwords: a real broker, keys from a file and from a server on loopback."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, final

import pytest

from penstock.engine.values.access import Credentials
from penstock.errors import ConfigError
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect
from tests.support.deadline import wait_for
from tests.support.fixtures import NEWEST_FIRST, Clients, running_broker
from tests.support.operators import Visit
from tests.support.raw_client import RawClient

jwt = pytest.importorskip("jwt")

from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402

from penstock.auth.json_web_tokens import LEEWAY_S, KeySet, TokenMethod  # noqa: E402

ACL: Final = [{"permission": "allow", "action": "all", "topic": "devices/%u/%c/#"}]
RSA_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
STRANGER: Final = ec.generate_private_key(ec.SECP256R1())


def key_set() -> dict[str, Any]:
    """The public keys, as a JWKS."""
    keys = []
    for key_id, key, algorithm in (("r", RSA_KEY, "RS256"), ("e", EC_KEY, "ES256")):
        public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
        keys.append({**public, "kid": key_id, "alg": algorithm, "use": "sig"})
    return {"keys": keys}


def token(
    key: Any = EC_KEY, algorithm: str = "ES256", kid: str | None = "e", **claims: object
) -> bytes:
    """A token for dave that lasts ten minutes, unless ``claims`` say otherwise."""
    said: dict[str, object] = {"sub": "dave", "exp": time.time() + 600, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return str(jwt.encode(said, key, algorithm=algorithm, headers=headers)).encode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(key_set()))
    return path


def code_of(method: TokenMethod, password: bytes, username: str | None = None) -> int:
    credentials = Credentials("c", username, password)
    assert method.concerns(credentials)
    return method.check(credentials).reason_code


def method(keys: Path, **options: str) -> TokenMethod:
    return TokenMethod(KeySet(str(keys), 60.0), ("RS256", "ES256"), **options)


def test_a_token_that_ends_beyond_all_times_is_refused(keys: Path) -> None:
    assert code_of(method(keys), token(exp=10**400)) == reasons.BAD_USER_NAME_OR_PASSWORD
    assert code_of(method(keys), token(exp=math.inf)) == reasons.BAD_USER_NAME_OR_PASSWORD


def test_a_client_with_a_token_is_let_in(keys: Path) -> None:
    asked = method(keys)
    assert code_of(asked, token()) == reasons.SUCCESS
    assert code_of(asked, token(), "dave") == reasons.SUCCESS
    assert code_of(asked, token(RSA_KEY, "RS256", "r")) == reasons.SUCCESS
    answer = asked.check(Credentials("c", None, token()))
    assert 600 <= answer.lasts_s <= 600 + LEEWAY_S


def test_a_token_is_bounded_in_bytes_before_it_is_looked_at(keys: Path) -> None:
    """Each is decoded and verified, whoever sends it."""
    rules = [{"permission": "allow", "topic": f"plant/{number}/#"} for number in range(300)]
    answer = method(keys).check(Credentials("c", "dave", token(acl=rules)))
    assert answer.detail == "its token (it is too long)"


def test_only_algorithms_that_are_allowed_and_are_their_keys_own_are_taken(keys: Path) -> None:
    """The token names one, and believing it would let it choose (RFC 8725 §3.1)."""
    narrow = TokenMethod(KeySet(str(keys), 60.0), ("RS256",))
    assert code_of(narrow, token(RSA_KEY, "RS256", "r")) == reasons.SUCCESS
    assert code_of(narrow, token()) == reasons.BAD_USER_NAME_OR_PASSWORD
    other = TokenMethod(KeySet(str(keys), 60.0), ("RS256", "RS512"))
    assert code_of(other, token(RSA_KEY, "RS512", "r")) == reasons.BAD_USER_NAME_OR_PASSWORD


def test_a_key_that_is_for_something_else_signs_nothing(keys: Path) -> None:
    said = key_set()
    said["keys"][1]["use"] = "enc"
    keys.write_text(json.dumps(said))
    assert code_of(method(keys), token()) == reasons.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize(
    "made",
    [
        lambda: token(STRANGER),
        lambda: token(kid="unknown"),
        lambda: token(kid=None),
        lambda: token(kid="r"),
        lambda: token(exp=time.time() - 60),
        lambda: token(exp=None),
        lambda: token(nbf=time.time() + 60),
        lambda: token(sub=None),
        lambda: token(sub="a\nb"),
        lambda: token(acl="all"),
        lambda: token(acl=[{"permission": "allow"}]),
        lambda: token(EC_KEY.public_key().public_numbers().x.to_bytes(32, "big"), "HS256", "e"),
        lambda: token("", "none", "e"),
        lambda: token()[:-2],
        lambda: b"eyJ.." + b"x" * 100,
        lambda: b"eyJ" + b"x" * 70_000 + b"..",
    ],
    ids=[
        "stranger",
        "unknown key",
        "no key",
        "other key",
        "expired",
        "no expiry",
        "not yet",
        "no subject",
        "control character",
        "acl is a word",
        "acl without topic",
        "public key as secret",
        "no algorithm",
        "cut short",
        "no parts",
        "too long",
    ],
)
def test_everything_else_is_refused(keys: Path, made: Callable[[], bytes]) -> None:
    """Also a token that names a weaker algorithm, or none (RFC 8725 §3.1)."""
    assert code_of(method(keys), made()) == reasons.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: token(exp=time.time() - 60), "its token (Signature has expired)"),
        (lambda: token(STRANGER), "its token (Signature verification failed)"),
        (lambda: token(kid="unknown"), "its token (no key for it, or another algorithm)"),
        (lambda: token(aud="x"), "its token (Audience doesn't match)"),
    ],
)
def test_the_operator_is_told_what_is_wrong_with_a_token(
    keys: Path, made: Callable[[], bytes], said: str
) -> None:
    found = method(keys, audience="broker" if "Audience" in said else "").check(
        Credentials("c", "dave", made())
    )
    assert found.detail == said


def test_a_token_is_for_one_user_one_audience_and_of_one_issuer(keys: Path) -> None:
    wrong = reasons.BAD_USER_NAME_OR_PASSWORD
    assert code_of(method(keys), token(), "alice") == wrong
    asked = method(keys, audience="broker", issuer="us")
    assert code_of(asked, token(aud="broker", iss="us")) == reasons.SUCCESS
    assert code_of(asked, token(aud=["x", "broker"], iss="us")) == reasons.SUCCESS
    for claims in ({"aud": "x", "iss": "us"}, {"iss": "us"}, {"aud": "broker", "iss": "x"}, {}):
        assert code_of(asked, token(**claims)) == wrong
    assert code_of(method(keys, user_claim="name"), token(name="erin"), "erin") == reasons.SUCCESS


def test_a_password_that_is_no_token_is_for_others(keys: Path) -> None:
    for password in (None, b"", b"secret", b"eyJ", b"a.b.c"):
        assert not method(keys).concerns(Credentials("c", "dave", password))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "x"}]}'])
def test_a_file_that_is_no_key_set(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match="is no JSON Web Key Set"):
        KeySet(str(tmp_path / "keys"), 60.0)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        KeySet(str(tmp_path / "nothing"), 60.0)


def test_a_file_that_has_changed_is_read_again(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rotated key counts at once; a damaged file, or none, changes nothing and is said once."""
    asked = method(keys)

    def put(text: str) -> None:
        unfinished = keys.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.rename(keys)

    both = json.dumps(key_set())
    put(json.dumps({"keys": key_set()["keys"][:1]}))
    assert code_of(asked, token(RSA_KEY, "RS256", "r")) == reasons.SUCCESS
    assert code_of(asked, token()) == reasons.BAD_USER_NAME_OR_PASSWORD
    put(both)
    assert code_of(asked, token()) == reasons.SUCCESS
    caplog.clear()
    put("damaged")
    for _ in range(3):
        assert code_of(asked, token()) == reasons.SUCCESS
    keys.unlink()
    for _ in range(3):
        assert code_of(asked, token()) == reasons.SUCCESS
    assert len(caplog.records) == 2
    put(both)
    assert code_of(asked, token()) == reasons.SUCCESS


@final
class KeyServer:
    """Serves a key set, and counts."""

    def __init__(self) -> None:
        self.served = 0
        self.text = json.dumps(key_set()).encode()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.served += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(server.text)))
                self.end_headers()
                self.wfile.write(server.text)

            def log_message(self, *told: object) -> None:
                del told

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[KeyServer]:
    running = KeyServer()
    try:
        yield running
    finally:
        running.close()


def test_keys_from_a_url_are_read_once_whatever_is_sent(server: KeyServer) -> None:
    asked = TokenMethod(KeySet(server.url, 60.0), ("ES256",))
    for _ in range(3):
        assert code_of(asked, token()) == reasons.SUCCESS
        assert code_of(asked, token(kid="unknown")) == reasons.BAD_USER_NAME_OR_PASSWORD
    assert server.served == 1


def test_without_keys_nobody_is_let_in(server: KeyServer) -> None:
    server.text = b"nonsense"
    asked = TokenMethod(KeySet(server.url, 60.0), ("ES256",))
    assert code_of(asked, token()) == reasons.SERVER_UNAVAILABLE
    assert code_of(asked, token()) == reasons.SERVER_UNAVAILABLE
    assert server.served == 1


def log_in(client: RawClient, password: bytes) -> int:
    client.client_id = "c7"
    client.send(Connect("c7", client.version, True, 0, None, "dave", password))
    return client.expect(Connack).reason_code


@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_a_broker_with_tokens(tmp_path: Path, keys: Path, clients: Clients, version: int) -> None:
    """The claims are the access list, and the connection ends with the token."""
    with running_broker(tmp_path, {"jwt_login.keys": keys}) as broker:
        client = clients.open(broker, version)
        assert log_in(client, token(acl=ACL)) == reasons.SUCCESS
        assert client.subscribe("devices/dave/c7/#", qos=0) == [0]
        assert client.publish("devices/dave/c7/x", b"1", 1) == 0
        assert client.take().payload == b"1"
        if version == 5:
            assert client.publish("devices/dave/c8/x", b"1", 1) == reasons.NOT_AUTHORIZED
            assert client.subscribe("#", qos=0) == [reasons.NOT_AUTHORIZED]
        ending = clients.open(broker, version)
        assert log_in(ending, token(exp=time.time() - 3.5)) == reasons.SUCCESS
        if version == 5:
            ending.expect_disconnect(reasons.MAXIMUM_CONNECT_TIME)
        else:
            ending.expect_end()
        assert log_in(clients.open(broker, version), token(STRANGER)) != reasons.SUCCESS


def test_an_operator_logs_in_with_a_token_whose_end_ends_the_session(
    tmp_path: Path, keys: Path
) -> None:
    pytest.importorskip("starlette", reason="the extra admin is not installed")
    pytest.importorskip("uvicorn", reason="the extra admin is not installed")
    pytest.importorskip("prometheus_client", reason="the extra admin is not installed")
    settings = {
        "admin.bind": "127.0.0.1:0",
        "admin.users": '{"dave": "operator"}',
        "jwt_login.keys": keys,
    }
    with running_broker(tmp_path, settings) as broker:
        assert Visit(broker, "", token(STRANGER).decode()).answer.status == 401
        assert Visit(broker, "", token(sub="eve").decode()).answer.status == 403, "without a role"
        lasting = Visit(broker, "", token().decode())
        assert (lasting.answer.json["user"], lasting.answer.json["role"]) == ("dave", "operator")
        ending = Visit(broker, "", token(exp=time.time() + 3 - LEEWAY_S).decode())
        assert ending.answer.status == 200
        wait_for("its end", lambda: ending.ask("/api/v1/sessions").status == 401)
        wait_for("the other one", lambda: lasting.ask("/api/v1/sessions").status == 200)
