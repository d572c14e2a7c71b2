"""Finding the modules that hold tools: by dotted name, or by the path of a file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from app.errors import DeclarationError


def load_module(given: str) -> ModuleType:
    """Import a module that is named as `package.module` or by the path of its `.py` file.

    As with `python file.py`, the file's folder can be imported from; as with `python -m`, so can the current one.
    A file that was loaded before is not run again.

    Raises:
        DeclarationError: there is no such module, or it fails as it is imported; its cause is the module's own error.
    """
    is_path = given.endswith(".py") or os.sep in given
    try:
        return _load_file(given) if is_path else _load_name(given)
    except DeclarationError:
        raise
    except Exception as error:  # a module's code may raise anything
        raise DeclarationError(f"{given} cannot be imported: {type(error).__name__}: {error}") from error


def _load_name(given: str) -> ModuleType:
    _import_from(Path.cwd())
    try:
        return importlib.import_module(given)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{given}.".startswith(f"{error.name}."):
            raise
        raise DeclarationError(f"There is no module {given}: give a dotted name or the path of a .py file") from error


def _load_file(given: str) -> ModuleType:
    path = Path(given).resolve()
    if not path.is_file():
        raise DeclarationError(f"There is no file {given}: give a dotted name or the path of a .py file")
    name = f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"{given} is no Python file: give a dotted name or the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    _import_from(path.parent)
    # Before it runs: dataclasses, pydantic and pickle look a class's module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
