"""The environment of processes whose coverage nobody gets: they are killed, or do what other tests
do here, and tracing would double the time they take to start."""

import os

UNMEASURED = {n: v for n, v in os.environ.items() if n != "COVERAGE_PROCESS_CONFIG"}
