"""The delivery audit: the broker's events as tables, and as a report for people.

::

      stream "events" ─▶ events ─▶ deliveries, connections, drops ─▶ measures ─▶ plots, report
                         (Spark)   (Spark; kept as tables if wanted)  (small)    (HTML, alone)

What a frame of any length goes through runs in Spark; only what a page can show reaches the driver.
`docs/audit.md` explains events and report.
"""
