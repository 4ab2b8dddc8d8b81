"""Attacks on a real broker: what others notice of them, and what they cost it.

One file for each kind of attack; ``attack.py`` says what an attack is, ``others.py`` is who must
not notice. ``make test`` plays the first of each file for a second, ``make torture`` all of them,
and asserts what is not time: who got in, what was lost, how much memory and disk it took. ``python
-m tests.attacks`` plays them at full size.
"""
