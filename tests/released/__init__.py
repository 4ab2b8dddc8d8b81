"""What released versions wrote, one archive for each, beside what is in it.

::

      VERSION.tar.xz    data/, a data directory whose broker ended in order; box/, a client's outbox
      VERSION.json      what clients, readers and operators found in it on that day

``write.py`` made them when the version was released, with that version's code, and they are never
made again: a later Penstock must find the same in them (tests/contract/test_released_stores.py).
"""
