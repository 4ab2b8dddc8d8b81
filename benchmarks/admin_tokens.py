"""Measures whether the admin process checks a wrong token in the same time as a right one.

    python -m benchmarks.admin_tokens [--requests 2000]

It sends requests to an admin process with a right token, with a token whose last character is
wrong, and with one whose characters are all wrong, in turn, and prints the medians. The right token
is a viewer's and the request an administrator's: it is refused too, without a call to the broker.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from penstock.admin.operations import PREFIX
from tests.support.admin_http import get
from tests.support.fixtures import running_broker

TOKENS_MAX = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=2000, help="requests with each kind of token"
    )
    count = parser.parse_args().requests
    valid_tokens = [f"right-{number:04}-0123456789abcdef" for number in range(TOKENS_MAX)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / "tokens"
        file.write_text("\n".join(valid_tokens))
        file.chmod(0o600)
        settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
        with running_broker(directory, settings) as broker:
            get(broker, "/healthz")
            url = urlsplit(broker.admin_url)
            connection = http.client.HTTPConnection(str(url.hostname), url.port)
            took_us: dict[str, list[float]] = {"right": [], "last differs": [], "all differ": []}
            for number in range(count):
                valid_token = valid_tokens[number % TOKENS_MAX]
                tokens = {
                    "right": valid_token,
                    "last differs": valid_token[:-1] + "X",
                    "all differ": valid_token[::-1],
                }
                for kind, token in tokens.items():
                    began_s = time.perf_counter()
                    headers = {"Authorization": f"Bearer {token}"}
                    connection.request("POST", f"{PREFIX}/reload", b"{}", headers)
                    answer = connection.getresponse()
                    answer.read()
                    assert answer.status in (401, 403), answer.status
                    took_us[kind].append((time.perf_counter() - began_s) * 1e6)
            connection.close()
    for kind, values in took_us.items():
        low, *_, high = statistics.quantiles(values, n=10)
        median = statistics.median(values)
        print(f"{kind:>13}: median {median:.1f} us, eight in ten {low:.1f} to {high:.1f} us")


if __name__ == "__main__":
    main()
