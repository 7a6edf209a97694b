"""PTX text to Python: parsing, linking, control flow, and the text of the functions that warps run."""
