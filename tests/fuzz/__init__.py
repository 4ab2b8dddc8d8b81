"""Fuzzing: see ``harness.py`` for what is checked, ``docs/testing.md`` for how to run it."""
