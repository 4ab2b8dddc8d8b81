"""What the admin process takes to tell a right token from a wrong one: the same.

    python -m benchmarks.admin_tokens [--requests 2000]

It asks a running pair of broker and admin process in turn with a right token, with one whose last
character differs, and with one that differs from the first on, and prints the medians. The answer
to a right token is a refusal as well (a viewer's, to an act), so that the broker is not asked.
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
    parser.add_argument("--requests", type=int, default=2000, help="of each kind")
    count = parser.parse_args().requests
    rights = [f"right-{number:04}-0123456789abcdef" for number in range(TOKENS_MAX)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / "tokens"
        file.write_text("\n".join(rights))
        file.chmod(0o600)
        settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
        with running_broker(directory, settings) as broker:
            get(broker, "/healthz")
            url = urlsplit(broker.admin_url)
            connection = http.client.HTTPConnection(str(url.hostname), url.port)
            took_us: dict[str, list[float]] = {"right": [], "last differs": [], "all differ": []}
            for number in range(count):
                right = rights[number % TOKENS_MAX]
                shown = {
                    "right": right,
                    "last differs": right[:-1] + "X",
                    "all differ": right[::-1],
                }
                for kind, token in shown.items():
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
