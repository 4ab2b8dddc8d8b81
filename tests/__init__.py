"""Tests; docs/testing.md says what proves what. A package, as others install a `tests` too."""
