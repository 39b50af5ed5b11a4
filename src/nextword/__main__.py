"""`python -m nextword` is the command line."""

from nextword.cli import main

if __name__ == "__main__":
    main()
