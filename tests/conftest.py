"""What every test folder shares: plugins for rows and progress, pytester to test them, the settings of hypothesis."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.plugin_rows", "tests.plugin_progress", "pytester"]

# A machine that is busy with other things makes no property untrue.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")
