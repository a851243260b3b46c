"""The batch: every notebook for every chip, only what has changed, each failure by itself."""

from labkit.batch.messages import Report as Report
from labkit.batch.messages import Result as Result
from labkit.batch.runner import run as run
