"""The store: durable state behind one port (``port``), its two implementations (``rocks``,
``memory``), and their formats.

``chunk`` and ``log`` encode the rows of the log, ``record_batch`` writes them in Arrow's format,
``parts`` cuts large values, ``records`` encodes all other values, ``stored_sessions`` reads
sessions and subscriptions at a start and keeps those of a standby up to date, ``replacing``
replaces the store by a copy of another cluster member's, ``secondary`` reads the log of a running
broker from another process.
"""
