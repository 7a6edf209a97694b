"""Rows of lanes, codes of narrow formats, fragments of mma.sync, reductions of copies."""
