"""Log lines, and the escaping of text from clients in log lines and on terminals."""
