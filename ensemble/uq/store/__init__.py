"""The files of a study: a journal of finished groups, compacted to a Zarr group."""
