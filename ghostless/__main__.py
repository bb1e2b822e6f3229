"""`python -m ghostless`: the same as the `ghostless` command."""

from ghostless.commands.main import main

main()
