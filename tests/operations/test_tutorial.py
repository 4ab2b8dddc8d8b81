"""docs/tutorial.md as a person follows it, block by block, in a network of its own.

The blocks of `sh` are one script for bash; those of `python` are files of their titles; those of
`text` that stand below commands are what the commands must have printed, line by line. The script
is given what a person does: it waits for a broker that was started, and for the end of one that was
killed. Spark takes most of
the time, so `make test` goes as far as to the table that would be made, `make torture` to the
picture.
"""

import re
from pathlib import Path

import pytest

from tests.support.followed import Block, blocks_of, commands_of, follow

LIMIT_S = 900  # Spark starts, and other tests may have the cores
UNTIL_READY = "until (: </dev/tcp/127.0.0.1/1883) 2>/dev/null; do sleep 0.1; done\n"
IN_ONE_LINE = re.compile(r"penstock serve [^\n]*\n")


def page(until: str) -> list[Block]:
    """The blocks in front of the command `until`; all where it is empty."""
    blocks = blocks_of("tutorial.md")
    ends = [number for number, block in enumerate(blocks) if until and until in block[2]]
    return blocks[: ends[0]] if until else blocks


def script(blocks: list[Block], end: str) -> str:
    """Return all commands of the page, in their order."""
    commands = commands_of(blocks).replace(
        "kill -9 $broker\n", "kill -9 $broker; wait $broker || true\n"
    )
    return IN_ONE_LINE.sub(lambda line: line[0] + UNTIL_READY, commands) + end


def shown(blocks: list[Block]) -> list[str]:
    """Return the lines that the page says one sees, but for how to install."""
    texts = [text for kind, _, text in blocks if kind == "text" and "pip install" not in text]
    return [line for text in texts for line in text.splitlines()]


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(
    ("until", "end"),
    [
        pytest.param(
            "penstock tables run", "kill $broker\nwait $broker\n", id="to-the-declaration"
        ),
        pytest.param("", "", id="whole", marks=pytest.mark.torture("starts Spark")),
    ],
)
def test_the_tutorial_does_what_it_says(tmp_path: Path, until: str, end: str) -> None:
    blocks = page(until)
    for kind, title, text in blocks:
        if kind == "python":
            (tmp_path / title).write_text(text, encoding="utf-8")
    said = follow(script(blocks, end), tmp_path, LIMIT_S)
    lines = said.splitlines()
    for line in shown(blocks):
        assert any(one.startswith(line) for one in lines), f"{line!r} is not in {said}"
