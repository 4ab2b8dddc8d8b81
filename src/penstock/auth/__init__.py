"""Identity from files: passwords, the access list, and the methods of enhanced authentication.

`passwords.py` verifies and makes password lines, `scram.py` proves a password without sending it,
`decoys.py` hides which users exist, `acl.py` is the access list, `filter_set.py` finds its lines
that match, `files.py` reads both files, `login_queue.py` chooses the next password to check,
`external.py`, `http_requests.py` and `json_web_tokens.py` authenticate users outside of the files,
and `tokens.py` and `admin_tokens.py` read token files.
"""
