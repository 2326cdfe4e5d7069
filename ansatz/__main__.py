"""`python -m ansatz`: the command `ansatz`, where its script is not on the path."""

from ansatz.cli.main import main

if __name__ == "__main__":
    main()
