"""What sub-commands share: output files, standard output, progress, values of TOML files."""
