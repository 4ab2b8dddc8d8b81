"""The OpenTelemetry process: metrics and traces of messages, sent to a collector over OTLP.

Modules::

    service          the process: its arguments, threads and end
    event_feed       the broker's events, tick by tick, from its stream service
    message_traces   events to spans: one trace a message (pure)
    sdk_spans        those spans as OpenTelemetry's SDK has them
    span_queue       spans that wait for the collector, bounded
    metric_points    the broker's metrics as OpenTelemetry's SDK has them
    collector        the collector: sends, and says in the log what does not work
"""
