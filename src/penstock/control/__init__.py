"""The requests and answers of the control socket, and ``client.ask``, with which another process
asks.

The broker's side, which carries requests out, is ``services.control``.
"""
