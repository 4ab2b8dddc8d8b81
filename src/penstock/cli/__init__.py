"""The `penstock` command: it parses arguments and prints; other layers do the work.

    main      the commands, and the one place that turns an error into a sentence and an exit code
    version   the text of `penstock --version`
    doctor    checks of the machine, each a small function
    pub, sub, rr   their options; `publishing`, `subscribing`, `requesting` do the work;
              `broker_options`, `connection`, `packet_properties`, `payloads`, `printing` have
              the options that they share
    bench     its options, beside those of `broker_options`; `bench_display` is its display
    table     `penstock table`: the job that lands messages in a table, and a look at one

Slow modules are imported by the command that needs them, so that help and errors are quick.
"""
