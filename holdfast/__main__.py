"""`python -m holdfast`: the command line, where the `holdfast` program is not on the PATH."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
