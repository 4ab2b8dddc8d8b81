"""An operator's script for cron: which clients are behind, and why?

TOKEN=… python behind.py API_URL MESSAGES

It prints a line for each client and bridge for which more than MESSAGES messages wait, the longest
queue first, twenty at most: how many, the likeliest reason, and what to do. It changes nothing, and
needs no more than the role viewer. The exit code is 0 if nobody is behind, 1 if somebody is, and 2
if that is not known: a broker that does not answer never looks like good news.
"""

import http.client
import json
import os
import sys
import urllib.parse
import urllib.request
from typing import Any

SHOWN_MAX = 20  # one request each; the API answers 40 in a burst
UNKNOWN = (OSError, http.client.HTTPException, LookupError, ValueError)


def get(url: str, **parameters: object) -> Any:
    """What the API answers. The token comes from the environment: `ps` shows arguments to all."""
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    request = urllib.request.Request(f"{url}?{urllib.parse.urlencode(parameters)}", None, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def line_of(text: str) -> str:
    """The text in one line: names are the clients' own, and may have line feeds in them."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def main(api: str, messages: int) -> int:
    ranking = get(f"{api}/sessions/ranked", measure="queue", limit=SHOWN_MAX)
    behind = [session for session in ranking["entries"] if session["queue"] > messages]
    for session in behind:
        name, waiting = session["client_id"], session["queue"]
        why = get(f"{api}/why", client_id=name)
        print(line_of(f"{name} {waiting}: {why['reason']}; {why['remedy']}"))
    return 1 if behind else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], int(sys.argv[2])))
    except UNKNOWN as error:
        print(f"nobody knows who is behind: {error!r}", file=sys.stderr)
        sys.exit(2)
