"""The delivery audit: the broker's events as tables, and as a report for people.

::

      stream "events" ─▶ events ─▶ deliveries, connections, drops ─▶ measures ─▶ plots, report
                         (Spark)   (Spark; optionally stored)         (small)    (one HTML file)

Data frames of any length are processed in Spark; the driver gets only results that fit on a page.
`docs/audit.md` explains events and report.
"""
