"""Write docs/spark_options.md from the declared options; `make check` fails while it is old."""

from pathlib import Path

from penstock.spark.option_page import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "spark_options.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
