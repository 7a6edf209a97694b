"""Launches: schedules, overlapping launches, worker processes, reports of hangs, comparison of schedules."""
