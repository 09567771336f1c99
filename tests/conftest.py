"""What every test folder shares: the plugins for rows and progress, and pytester for testing them."""

pytest_plugins = ["tests.plugin_rows", "tests.plugin_progress", "pytester"]
