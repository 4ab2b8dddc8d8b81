"""Users with their hashes, the access list, and who is let in without a name."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from argon2 import PasswordHasher

from penstock.auth.passwords import verify
from penstock.mosquitto.configuration import read_configuration
from penstock.mosquitto.findings import DIFFERS, MISSING
from penstock.mosquitto.translation import Translation


def translate(directory: Path, text: str) -> Translation:
    path = directory / "mosquitto.conf"
    path.write_text(text.replace("DIR", str(directory)))
    return Translation(read_configuration(path), frozenset(), directory)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_each_kind_of_hash_is_good_for_the_same_password(tmp_path: Path) -> None:
    salt = b"sixty-four bytes of salt are what Mosquitto 2.1 takes, and not 12"
    pbkdf2 = hashlib.pbkdf2_hmac("sha512", b"wonder", salt, 1000)
    sha512 = hashlib.sha512(b"wonder" + salt).digest()
    lines = {
        "new": f"$7$1000${encoded(salt)}${encoded(pbkdf2)}",
        "old": f"$6${encoded(salt)}${encoded(sha512)}",
        "argon": PasswordHasher(1, 8192, 1).hash("wonder"),
    }
    text = "".join(f"{name}:{line}\n" for name, line in lines.items())
    (tmp_path / "pw").write_text(f"# users\n{text}plain:wonder\nnew:$6$x$y\n:$6$\n")
    found = translate(tmp_path, "listener 1883\npassword_file DIR/pw\n")
    assert found.access.users == lines
    assert all(verify(line, b"wonder") and not verify(line, b"other") for line in lines.values())
    left = [one for one in found.findings.all if one.kind == MISSING]
    assert [one.place for one in left] == [f"{tmp_path}/pw:{number}" for number in (5, 6, 7)]
    assert not any("wonder" in one.text + one.explanation for one in left)


def test_the_access_list_comes_over_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(
        "# everyone\ntopic read public/#\n\nuser alice smith\ntopic  readwrite  a b/#\n"
        "topic deny a b/secret\nuser \nuser bad:name\ntopic write dropped/#\n"
        "user bob\ntopic deny\tsecret/#\ntopic x/%c\npattern write dev/%c/#\n"
        "pattern deny dev/%c/secret\n"
    )
    found = translate(tmp_path, "listener 1883\nacl_file DIR/acl\nallow_anonymous true\n")
    assert found.access.rules is not None
    assert [line for line in found.access.rules if line and line[0] != "#"] == [
        "topic read public/#",
        "user alice smith",
        "topic readwrite  a b/#",
        "topic deny a b/secret",
        "user bob",
        "topic deny\tsecret/#",  # as it was meant
        "pattern write dev/%c/#",
        "pattern deny dev/%c/secret",
    ]
    left = [one.place.rpartition(":")[2] for one in found.findings.all if one.kind == MISSING]
    assert left == ["7", "8", "9", "12"]
    differs = [one for one in found.findings.all if one.kind == DIFFERS]
    assert [one.place.rpartition(":")[2] for one in differs if "acl:" in one.place] == ["11", "14"]


def test_nobody_is_let_in_who_was_not(tmp_path: Path) -> None:
    plugin = translate(tmp_path, "listener 1883\nplugin auth.so\n")
    assert plugin.access.users == {}
    assert plugin.access.rules is not None  # and nothing is allowed
    assert [line for line in plugin.access.rules if not line.startswith("#")] == []
    harmless = translate(tmp_path, "listener 1883\nplugin /x/mosquitto_persist_sqlite.so\n")
    assert harmless.access.rules is None
    assert "allow_anonymous" not in plugin.toml()
    pre_shared = translate(tmp_path, "listener 8883\npsk_hint hint\n")
    assert pre_shared.access.users == {}
    alone = translate(tmp_path, "sys_interval 5\n")
    assert alone.access.users is None
    assert "allow_anonymous = true" in alone.toml()


def test_listeners_with_files_of_their_own_share_the_users_and_the_first_list(
    tmp_path: Path,
) -> None:
    digest = encoded(hashlib.sha512(b"ab").digest())
    for name, users in (("one", "alice carol"), ("two", "bob carol")):
        text = "".join(f"{user}:$6${encoded(name.encode())}${digest}\n" for user in users.split())
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.acl").write_text(f"topic read {name}/#\n")
    found = translate(
        tmp_path,
        "per_listener_settings true\nlistener 1883\npassword_file DIR/one\nacl_file DIR/one.acl\n"
        "listener 1884\npassword_file DIR/two\nacl_file DIR/two.acl\nallow_anonymous true\n"
        "listener 1885\npassword_file DIR/one\n",
    )
    assert found.access.users is not None
    assert list(found.access.users) == ["alice", "carol", "bob"]
    assert found.access.rules is not None
    assert [line for line in found.access.rules if line] == ["topic read one/#"]
    assert found.toml().count("allow_anonymous = true") == 1
    kinds = {one.place.rpartition(":")[2]: one.kind for one in found.findings.all}
    assert (kinds["7"], kinds["10"]) == (MISSING, "same")
