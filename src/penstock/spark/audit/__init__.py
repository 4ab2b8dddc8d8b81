"""The delivery audit: the broker's events as tables, and as a report for people.

::

      stream "events" ─▶ events ─▶ deliveries, connections, drops ─▶ measures ─▶ plots, report
                         (Spark)   (Spark; kept as tables if wanted)  (small)    (HTML, alone)

Work on frames of any length runs in Spark; only results that fit on a page reach the driver.
`docs/audit.md` explains events and report.
"""
