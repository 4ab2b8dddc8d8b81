"""The broker's reports about itself: its log lines, and how text of others is shown."""
