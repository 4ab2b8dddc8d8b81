"""Benchmarks (``make bench``). Every figure about speed in docs/ is printed by one of them."""
