"""What the broker tells about itself: today its log lines, later metrics and lifecycles."""
