"""Launches: schedules, overlap, worker processes, hang reports and what schedules leave in memory."""
