"""Programs outside Python: templates, run folders, processes, readers of outputs."""
