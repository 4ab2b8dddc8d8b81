"""The admin process of a broker: an HTTP server for operators and their tools.

It is a process of its own: it speaks to the broker over the control socket (``penstock.control``),
reads events from the stream service, and none of its modules imports ``engine``, ``store`` or
``transport`` itself. The broker imports none of its modules. ``service`` is the process and ``web``
its HTTP application. ``broker`` sends requests to the broker, ``disk`` measures free space,
``health`` has the health checks, ``exposition`` writes metrics for Prometheus, ``access``
authenticates requests, ``json_api`` serves the operations listed in ``operations``, ``page`` serves
the page of operators.
"""
