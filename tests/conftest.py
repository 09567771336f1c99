"""What every test folder shares: the row plugin, and pytester for testing it."""

pytest_plugins = ["tests.plugin_rows", "pytester"]
