"""The stream service: what was committed to the log, for readers outside the broker.

definitions  which messages belong to a stream
rows         what a reader gets: columns and their types
service      the Arrow Flight server, a process of its own
publishing   rows that come to be published: checked, staged, handed to the broker
requests     what readers ask for, and the errors they are told
client       the other end, used by Spark's planner and executors
"""
