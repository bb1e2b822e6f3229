"""`python -m ghostless`: the same as the `ghostless` command."""

# Processes that multiprocessing starts import this module again, under another name.
if __name__ == "__main__":
    from ghostless.commands.import_path import ignore_working_folder

    # Before anything else is imported.
    ignore_working_folder()

    from ghostless.commands.main import main

    main()
