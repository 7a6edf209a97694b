"""What a launch did, warp by warp, and what time it takes on a chip."""
