"""What a broker is beside its engine: who runs the engine is ``runtime``.

``authentication`` and ``control`` answer from outside the loop, ``retention`` trims the log,
``garbage`` keeps the collector short, ``status`` and the ``$SYS`` topics tell what there is,
``stream_process`` watches the stream service.
"""
