"""Places of tables: a directory of this machine, or a prefix of an object store.

* `location`: the port, a place with a name, and what is asked of it.
* `local`: a place on a file system; what it wrote is on disk when a call returns.
* `objects`: a place in an object store; an object appears whole, when it was uploaded.
* `clients`: clients of object stores, and their credentials.
* `opening`: the place that a text names, and whether a table can be kept there.
* `leftovers`: files that no version of a table names.
"""
