"""Real temperatures through a broker and a Spark job that are killed, into a table that has all.

    python -m examples.temperatures                  (or `make demo`)
    python -m examples.temperatures --cluster        (or `make demo-cluster`)

Devices replay a year of hourly readings through the stock paho-mqtt client and keep their own
ledger of what was acknowledged to them. Meanwhile the broker and the Spark job are killed and
started again. At the end the ledgers are compared with the table::

    devices ──MQTT──▶ penstock serve ──stream──▶ penstock table run ──▶ Delta table
       │                  SIGKILL                     SIGKILL                │
       └── ledgers ───────────────────── verdict ◀───────────────────────────┘

With `--cluster` three machines serve, a broker and a NATS server on each. The primary's is lost,
has its cable pulled and is stopped, and comes back.

Where to look: `readings` the data · `fleet` who sends what · `device` one sensor · `ledger` what
it notes · `programs` starting and killing · `sites` one broker, or a cluster · `replay` the course
of events · `table` reading the result · `verdict` the comparison · `query` the same through Spark ·
`display` what a person sees.
"""
