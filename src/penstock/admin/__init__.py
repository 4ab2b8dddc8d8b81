"""The admin process of a broker: HTTP for operators and their tools, beside the event loop.

It asks the broker over the control socket only (``penstock.control``), and imports nothing of what
runs in the broker. ``broker`` asks, ``disk`` looks how much is free, ``health`` judges,
``exposition`` writes metrics for Prometheus, ``access`` knows tokens, ``api`` has the operations of
``operations``, ``web`` answers HTTP, ``service`` is the process.
"""
