"""`python -m app` is the same as `perdure`."""

from app.cli import main

if __name__ == "__main__":
    main()
