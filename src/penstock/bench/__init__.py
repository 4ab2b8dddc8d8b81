"""A load generator for any MQTT broker: `penstock bench` (docs/bench.md).

    plan              the parameters of a run: clients, topics, rates and its length
    load              the state of a run, without clock and sockets, and its totals
    publisher_state   counts one publisher's messages: sent, settled, room for more
    subscriber_state  counts one subscriber's messages: a tracker for each of its publishers
    tracker           counts missing, repeated and reordered messages
    stamp             the header in front of each payload
    histogram         latencies in constant memory
    figures           the results of a run
    run               executes a run in an event loop, with `connections`, `publisher` and
                      `periodic_timer`

The code that runs for each message is compiled (pyproject.toml).
"""
