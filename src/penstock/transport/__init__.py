"""Bytes between this process and its peers: one module for each kind of socket."""
