"""Identity from files: passwords, the access list, and the methods of enhanced authentication.

`passwords.py` verifies and makes password lines, `scram.py` proves a password without sending
it, `acl.py` is the access list, `files.py` reads both files and says what is wrong in them.
"""
