"""Payloads and topics become columns: Arrow in, Arrow out, and nothing of Spark.

api            what a decoder is: rows, and a reason for each message that is broken
topic_pattern  the named levels of a topic, as columns
shown          a value in a reason, in a few characters
"""
