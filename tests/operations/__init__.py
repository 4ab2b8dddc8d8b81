"""What operators install: units, a container image, manifests."""
