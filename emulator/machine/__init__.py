"""The chip at work: launches, schedules, clusters, warps, barriers, reports of hangs."""
