"""The stream service: the committed log, for readers outside the broker.

rows         the columns that a reader gets, and their types
service      the Arrow Flight server, a process of its own
token_check  the check of a caller's token
stop_signal  how the process learns that it should stop
seeds        copies of the store for other members of a cluster; seed_client takes one
publishing   rows from outside: checked, staged, handed to the broker
broker_role  whether the broker here is the primary of its cluster
requests     the requests of readers, and how they are refused
client       the other end, used by Spark's planner and executors
replicas     at which of several addresses the client goes on; pure
"""
