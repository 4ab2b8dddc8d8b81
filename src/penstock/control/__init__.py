"""The control socket's requests and answers, and how another process asks: ``client.ask``.

The broker's side, which carries them out, is ``services.control``.
"""
