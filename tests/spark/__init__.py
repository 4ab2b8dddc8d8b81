"""Spark and the stream service, for real: a RocksDB log, a service process, a local Spark."""
