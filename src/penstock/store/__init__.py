"""The store: durable state behind one port (``api``), its two implementations (``rocks``,
``memory``), and their formats.

``chunk`` and ``log`` are the log's rows, ``record_batch`` writes those as Arrow does, ``parts``
cuts what is large, ``records`` the values of everything else, ``preparing``
reads sessions and subscriptions for a start, and keeps those of a standby as its store is,
``replacing`` puts another member's store in the place of this one,
``secondary`` reads the log of a running broker from another process.
"""
