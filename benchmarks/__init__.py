"""Measurements: ``make bench``. Every claim about speed in the documents is printed here."""
