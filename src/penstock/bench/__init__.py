"""A load generator for any MQTT broker: `penstock bench` (docs/bench.md).

    plan         the parameters of a run: who publishes what to whom, how fast, for how long
    load         the state of a run, without clock and sockets, and its totals
    outgoing     one publisher's account: sent, settled, room for more
    incoming     one subscriber's: a tracker for each of its publishers
    tracker      counts missing, repeated and reordered messages
    stamp        the header in front of each payload
    histogram    latencies in constant memory
    figures      the results of a run
    run          runs all of it in an event loop: `connections`, `publisher`, `ticks`

The code that runs for each message is compiled (setup.py).
"""
