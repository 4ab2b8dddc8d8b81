"""The `penstock` command: it parses arguments and prints; other layers do the work.

    main      the commands, and the one place that turns an error into a sentence and an exit code
    version   the text of `penstock --version`
    doctor    checks of the machine, a small function each
    pub, sub, rr   the options of these commands; `publishing`, `subscribing`, `requesting` do the
              work; `broker_options`, `connection`, `packet_properties`, `payloads`, `printing`
              have the options that they share
    bench     the options of `penstock bench`; `bench_display` is its display
    table     `penstock table`: land messages in a table, and show one

Slow modules are imported by the command that needs them, so that help and errors are quick.
"""
