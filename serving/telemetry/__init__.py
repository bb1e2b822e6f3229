"""What the server tells of itself: metrics, uncertainty, outcomes, logs, traces. All of it off the path of a request,
which only leaves a CallRecord behind (see recorder.py)."""
