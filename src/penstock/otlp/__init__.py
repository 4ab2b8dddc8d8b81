"""The OpenTelemetry process: metrics and traces of messages, sent to a collector over OTLP.

Modules::

    service          the process: its arguments, threads and shutdown
    event_feed       reads the broker's events, tick by tick, from its stream service
    message_traces   converts events to spans: one trace a message (pure)
    sdk_spans        converts spans to those of OpenTelemetry's SDK
    span_queue       the bounded queue of spans that wait for the collector
    metric_points    converts the broker's metrics to those of OpenTelemetry's SDK
    collector        sends to the collector, and logs failures
"""
