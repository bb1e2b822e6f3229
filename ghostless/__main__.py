"""`python -m ghostless`: the same as the `ghostless` command."""

# Processes started by multiprocessing import this module again under another name.
if __name__ == "__main__":
    from ghostless.commands.import_path import ignore_working_folder

    # Must come before all other imports.
    ignore_working_folder()

    from ghostless.commands.main import main

    main()
