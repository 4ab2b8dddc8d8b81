"""`penstock top`: a running broker on a live screen, or as plain lines (docs/top.md).

::

      broker_api ── control socket, or the API over HTTP ─▶ poller: one sample after the other
                                                               ▼
                 screens (Textual), batch ◀── board: rates and the last minute, from two samples

    broker_api  asks a broker over its control socket or its HTTP API
    poller      takes samples and carries out actions in threads, so that keys never wait
    board       computes rates, latencies and the last minute from the samples
    figures     formats numbers, times, bars and sparklines as short text
    head        the lines about the broker
    columns     the table of clients
    pictures    the window and the queue of one client as text pictures
    batch       prints plain lines, or JSON, for pipes and tickets
    screens     the Textual app, which nothing else imports
    command     the options of the command
"""
