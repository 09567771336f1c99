"""`python -m bench`."""

from bench.program import app

app(prog_name="python -m bench")
