"""``ensemble run`` and the commands that work on its store."""
