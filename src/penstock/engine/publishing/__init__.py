"""Who publishes, beside the client of an ordinary connection.

Modules::

    producers           publishers that number their messages, so that none is published twice
    staged_rows         sets of rows from Spark, published whole and exactly once
    pending_publishes   what a client published before there was room for it
    blocked_client      a publisher whose next message finds no room: where it waits
"""
