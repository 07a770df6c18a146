"""What the `ensemble` command does, one folder per sub-command."""
