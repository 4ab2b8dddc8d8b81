"""An operator's script: who is away with a long queue, and shall the sessions end?

python long_queues.py API_URL TOKEN MESSAGES [--remove]

Without --remove nothing is changed.
"""

import json
import sys
import urllib.parse
import urllib.request
from typing import Any


def call(url: str, token: str, body: object = None, **parameters: object) -> Any:
    """GET with these parameters, or POST of this body."""
    if parameters:
        url += f"?{urllib.parse.urlencode(parameters)}"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def main(api: str, token: str, messages: int, removes: bool) -> None:
    cursor = ""
    while True:  # page by page
        page = call(f"{api}/sessions", token, connected="false", limit=100, cursor=cursor)
        for session in page["entries"]:
            waiting = session["queue"]
            if waiting < messages:
                continue
            print(session["client_id"], waiting)
            if removes:
                chosen = {"client_id": session["client_id"]}
                call(f"{api}/sessions/remove", token, {"filter": chosen})
        cursor = page["cursor"]
        if not cursor:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), "--remove" in sys.argv[4:])
