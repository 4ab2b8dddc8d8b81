"""A broker's certificates are judged while it runs."""

import logging
from pathlib import Path

import pytest

from penstock.config.settings import Settings
from penstock.services.certificates import CertificateWatch, certificate_uses
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
