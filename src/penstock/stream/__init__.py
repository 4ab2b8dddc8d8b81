"""The stream service: the committed log, for readers outside the broker.

rows         the columns that a reader gets, and their types
service      the Arrow Flight server, a process of its own
token_check  the check of a caller's token
stop_signal  the signals and events that stop the process
seeds        copies of the store for other members of a cluster; seed_client fetches one
publishing   rows to be published: checked, staged, handed to the broker
broker_role  whether the broker on this machine is the primary of its cluster
requests     the requests of readers, and the errors that refuse them
client       the client of the service, used by Spark's planner and executors
birth_store  births of Sparkplug nodes, copied from the log to the directory of a table
replicas     which of several addresses the client tries next; pure
"""
