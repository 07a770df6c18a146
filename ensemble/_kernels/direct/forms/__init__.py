"""Numbers of factorisations and their solutions, in three forms: lists, rows, supernodes; tiles of samples."""
