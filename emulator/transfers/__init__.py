"""Asynchronous copies and stores: bulk, tensor and small ones; tensor maps and swizzles."""
