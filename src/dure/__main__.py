"""`python -m dure` is the command `dure`."""

from dure.cli import main

if __name__ == "__main__":
    main()
