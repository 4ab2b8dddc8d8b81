"""Ask the broker in this container how it is: exit code 0, or 1 and a sentence.

    python -I -S health.py            does it answer? The answer comes from its event loop
    python -I -S health.py --ready    and does it let clients in? One that is drained does not. In a
                                      cluster: is it the primary, or a standby that knows it?

It asks over the control socket in the data directory, as `penstock clients` does, and needs nothing
but Python's own modules: a probe every few seconds must cost next to nothing.
"""

import json
import os
import socket
import sys
from pathlib import Path

DATA_DIR = "PENSTOCK_DURABILITY__DATA_DIR"
ANSWER_S_MAX = 4.0


def main() -> str:
    """Return what is wrong; empty if nothing is."""
    data_dir = os.environ.get(DATA_DIR)
    if data_dir is None:
        return f"{DATA_DIR} is not set"
    try:
        answer = asked(Path(data_dir), {"do": "health"})
    except (OSError, ValueError) as error:
        return f"the broker in {data_dir} does not answer: {error}"
    if "done" not in answer:
        return str(answer.get("error"))
    if "--ready" not in sys.argv[1:]:
        return ""
    health = answer["done"]
    if health.get("starting"):
        return f"the broker has not started: {health['store_failure']}"
    if health["draining"]:
        return "the broker is being drained"
    if health["role"] not in ("", "primary") and not (
        health["role"] == "standby" and health["primary"]
    ):
        return f"the role of this member is {health['role']}; the primary is {health['primary']!r}"
    return ""


def asked(data_dir: Path, request: dict[str, str]) -> dict[str, dict[str, object]]:
    """Return the broker's answer; OSError or ValueError where there is none."""
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S_MAX)
            connection.connect(f"/proc/self/fd/{directory}/control")  # however long its path is
            connection.sendall(json.dumps(request).encode() + b"\n")
            lines = connection.makefile("rb")  # empty ones are signs of life
            line = next((line for line in lines if line.strip()), b"")
            answer: dict[str, dict[str, object]] = json.loads(line)
            return answer
    finally:
        os.close(directory)


if __name__ == "__main__":
    wrong = main()
    if wrong:
        print(wrong, file=sys.stderr)
    sys.exit(1 if wrong else 0)
