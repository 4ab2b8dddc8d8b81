"""A broker's certificates are judged while it runs."""

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import Settings
from penstock.services.certificates import CHECK_S, CertificateWatch, certificate_uses
from penstock.transport.fitness import Use, read
from tests.support.dial import Authority

DAY_S = 86_400.0


def test_a_certificate_that_comes_to_its_end_is_told_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = Authority(tmp_path).issue("server", "localhost")
    ends_s = read(Use("listener", "main", "server", certificate)).ends_s
    now_s = ends_s - 40 * DAY_S
    watch = CertificateWatch(lambda: now_s)
    listener = {"kind": "tls", "certificate": certificate, "key": key}
    watch.use(Settings.model_validate({"listener": listener}), at_start=True)
    assert not caplog.records
    labels = ("listener", "main", certificate)
    assert set(watch.samples()) == {
        ("certificate_expires_seconds", labels, 40 * DAY_S),
        ("certificate_works", labels, True),
    }
    for hour in range(42 * 24):
        now_s = ends_s - 40 * DAY_S + hour * 3600
        watch.tick()
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING] * 30 + [logging.ERROR] * 2
    assert ("certificate_works", labels, False) in set(watch.samples())


def test_the_end_of_a_certificate_is_told_when_it_comes(tmp_path: Path) -> None:
    """Up to an hour later the log still had no word of it."""
    certificate, key = Authority(tmp_path).issue("server", "localhost")
    ends_s = read(Use("listener", "main", "server", certificate)).ends_s
    now_s = ends_s - 2 * DAY_S
    watch = CertificateWatch(lambda: now_s)
    assert watch.next_check_s() == CHECK_S
    listener = {"kind": "tls", "certificate": certificate, "key": key}
    watch.use(Settings.model_validate({"listener": listener}), at_start=True)
    assert watch.next_check_s() == CHECK_S
    now_s = ends_s - 90.0
    assert watch.next_check_s() == 90.0
    now_s = ends_s
    assert watch.next_check_s() == CHECK_S


def test_all_parts_with_certificates_are_watched() -> None:
    files = {"certificate": "/c.pem", "key": "/k.pem"}
    remote = {
        "name": "site",
        "addresses": ["mqtts://site.example"],
        "forwards": [{"topic_filters": ["a/#"]}],
        **files,
    }
    settings = Settings.model_validate(
        {
            "listener": {"kind": "tls", "client_ca": "/ca.pem", "crl": "/crl.pem", **files},
            "bridge": {"remotes": [remote]},
            "cluster": {"log": ["tls://a.example:4222"], **files},
            "admin": {"bind": "127.0.0.1:0", **files},
            "stream": files,
            "opentelemetry": {"endpoint": "https://collector.example", **files},
        }
    )
    found = [(use.part, use.kind) for use in certificate_uses(settings)]
    assert found == [
        ("listener", "server"),
        ("listener", "authorities"),
        ("listener", "revocations"),
        ("bridge", "client"),
        ("cluster", "client"),
        ("admin", "server"),
        ("stream", "server"),
        ("opentelemetry", "client"),
    ]


def test_a_renewed_certificate_counts_for_those_that_have_read_it(tmp_path: Path) -> None:
    """A listener, the admin process and a bridge have one file, and read it at different times."""
    authority = Authority(tmp_path)
    old, key = authority.issue("old", "localhost", expired=True)
    renewed, _ = authority.issue("renewed", "localhost")
    files = {"certificate": old, "key": key}
    remote = {"name": "site", "addresses": ["mqtts://site.example"], **files}
    settings = Settings.model_validate(
        {
            "listener": {"kind": "tls", **files},
            "admin": {"bind": "127.0.0.1:0", **files},
            "bridge": {"remotes": [remote | {"forwards": [{"topic_filters": ["a/#"]}]}]},
            "cluster": {"log": ["tls://a.example:4222"], **files},
        }
    )
    watch = CertificateWatch(lambda: 1_800_000_000.0)
    watch.use(settings, at_start=True)

    def expired() -> list[str]:
        samples = watch.samples()
        return [labels[0] for name, labels, value in samples if "works" in name and not value]

    assert sorted(expired()) == ["admin", "bridge", "cluster", "listener"]
    Path(renewed).replace(old)
    watch.use_listener("main")
    assert sorted(expired()) == ["admin", "bridge", "cluster"]
    watch.use(settings)
    assert sorted(expired()) == ["bridge", "cluster"]  # they read it at the next start
    watch.use(settings, at_start=True)
    assert not expired()


def test_each_listener_is_reached_by_the_advertised_host_unless_sni_has_it() -> None:
    """Clients are referred from a standby to the same host, whichever listener they came to."""
    files = {"certificate": "/c.pem", "key": "/k.pem"}
    tls: dict[str, Any] = {"kind": "tls", "bind": "127.0.0.1:0", **files}
    others = [tls | {"name": "plain"}, tls | {"name": "sni", "sni": {"A.example": files}}]
    settings = Settings.model_validate(
        {
            "listener": {"others": others},
            "cluster": {"log": ["tls://l.example:4222"], "advertise": "a.example:1883"},
        }
    )
    found = [(use.name, use.hosts) for use in certificate_uses(settings) if use.kind == "server"]
    assert found == [("plain", ("a.example",)), ("sni", ()), ("sni", ("A.example",))]
