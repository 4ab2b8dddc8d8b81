"""Log lines, the escaping of text from clients in log lines and on terminals, and histograms."""
