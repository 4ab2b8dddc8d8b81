"""A load generator for any MQTT broker: `penstock bench` (docs/bench.md).

    plan         what is asked for: who publishes what to whom, how fast, for how long
    load         a run without clock and sockets, and what it adds up to
    outgoing     one publisher's account: sent, settled, room for more
    incoming     one subscriber's: a tracker for each of its publishers
    tracker      nothing missing, nothing twice, in order?
    stamp        what each message says of itself
    histogram    latencies in constant memory
    figures      what a run has shown
    run          all of it in an event loop: `connections`, `publisher`, `ticks`

What runs for each message is compiled (setup.py).
"""
