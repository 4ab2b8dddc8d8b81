"""The `penstock` command: it parses arguments and prints; what it does lives in other layers.

    main      the commands, and the one place that turns an error into a sentence and an exit code
    version   what `penstock --version` says
    doctor    checks of the machine, each a small function
    pub, sub, rr   their options, `publishing`, `subscribing`, `requesting` what they do;
              `broker_options`, `connection`, `packet_properties`, `payloads`, `printing` options
              they share
    bench     its options, on those of `broker_options`; `bench_display` what a terminal shows
    table     `penstock table`: the job that lands messages in a table, and a look at one

Everything slow is imported by the command that needs it, so that help and mistakes are quick.
"""
