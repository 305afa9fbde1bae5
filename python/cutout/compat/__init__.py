"""Meta's interfaces: change `segment_anything`, `sam2` or `sam3` in an import to `cutout.compat.` and the same name."""
