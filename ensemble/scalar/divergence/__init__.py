"""Where samples disagree: policies, records, and code that runs once for each group."""
