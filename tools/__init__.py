"""Programs for who changes the library."""
