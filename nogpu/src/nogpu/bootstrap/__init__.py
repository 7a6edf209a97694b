"""A folder for PYTHONPATH: its `sitecustomize` puts every Python process on the emulated device."""
