"""`penstock top`: a running broker on a screen that moves, or as plain lines (docs/top.md).

::

      port ── control socket, or the API over HTTP ─▶ looking: one look after the other
                                                          ▼
                 screens (Textual), batch ◀── board: rates and the last minute, from two looks

    port      asks a broker, in one of two ways
    looking   takes looks, and carries out acts, so that a broker that is silent holds up nobody
    board     what two looks tell together: rates, latencies, the last minute
    figures   numbers, times, bars and sparklines as short text
    head      the lines about the broker
    columns   the table of clients
    pictures  the window and the queue of one client
    batch     plain lines, or JSON, for pipes and tickets
    screens   what Textual shows: nothing else imports it
    command   the options
"""
