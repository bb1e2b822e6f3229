"""`python -m ghostless`: the same as the `ghostless` command."""

from ghostless.commands.main import main

# Processes that multiprocessing starts import this module again, under another name.
if __name__ == "__main__":
    main()
