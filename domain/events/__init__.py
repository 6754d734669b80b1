"""Universal Events: one frozen struct a type and version, one family a file; `registry` maps types to structs."""
