"""What remembers: one port (``api``), two bodies (``rocks``, ``memory``), and their formats.

``chunk`` and ``log`` are the log's rows, ``records`` the values of everything else,
``secondary`` reads the log of a running broker from another process.
"""
