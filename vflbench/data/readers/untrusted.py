"""Readers of files that are not trusted: pickles with a short list of allowed names, numpy archives without pickles."""

import importlib
import io
import pickle
import pickletools
import zipfile
import zlib
from typing import Any

import numpy as np

from vflbench.types import DataError

# All that the published graph files need, found by listing their pickle opcodes. The names are those of Python 2 and 3,
# of old and new numpy and scipy. No other name is ever looked up, so no code that a file names can run.
_ALLOWED = {
    ("collections", "defaultdict"),
    ("__builtin__", "list"),
    ("builtins", "list"),
    ("__builtin__", "object"),
    ("builtins", "object"),
    ("copy_reg", "_reconstructor"),
    ("copyreg", "_reconstructor"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("scipy.sparse", "csr_matrix"),
    ("scipy.sparse.csr", "csr_matrix"),
    ("scipy.sparse._csr", "csr_matrix"),
    ("_codecs", "encode"),  # how Python 3 writes bytes for Python 2
}

# The errors of reading a damaged pickle or archive.
_BROKEN = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, TypeError, LookupError),
    *(AttributeError, MemoryError, OverflowError, RecursionError),
)


class _Refused(Exception):
    """The pickle names something that is not on the list."""


def _latin1(text: str, codec: str) -> bytes:
    """`_codecs.encode`, restricted to the one codec that pickles of bytes need."""
    if codec != "latin1":
        raise ValueError(f"bytes in the encoding {codec!r}")
    return text.encode("latin1")


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        if module.startswith("numpy") and name == "_reconstruct":
            return importlib.import_module("numpy._core.multiarray")._reconstruct
        if name == "csr_matrix":
            from scipy.sparse import csr_matrix

            return csr_matrix
        if name == "encode":
            return _latin1
        return super().find_class(module, name)


def load_pickle(data: bytes, where: str) -> Any:
    """The object in a pickle of lists, dicts, numbers, strings, numpy arrays and sparse matrices.

    Parameters
    ----------
    data : a pickle of any protocol. Strings of Python 2 are read as latin-1, as its numpy arrays need.
    where : the file's name in errors.

    Raises
    ------
    DataError : it names anything else, none of which runs; it is cut short or is no pickle.
    """
    try:
        for operation, argument, _ in pickletools.genops(data):
            # The C unpickler reserves memory up to the largest index to remember: a damaged one would take all memory.
            if operation.name in ("PUT", "LONG_BINPUT") and isinstance(argument, int) and argument > len(data):
                raise ValueError(f"it remembers {argument} objects")
        return _RestrictedUnpickler(io.BytesIO(data), encoding="latin1").load()
    except _Refused as refused:
        reason = f"this pickle tries to load {refused}, which no data file needs: refused, nothing was run"
        raise DataError(f"{where}: {reason}. Get the file again from its official address.") from None
    except _BROKEN as broken:
        reason = f"cut short or not a pickle ({broken or type(broken).__name__})"
        raise DataError(f"{where}: {reason}. Get the file again.") from None


def load_npz(data: bytes, where: str, keys: tuple[str, ...], objects: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Arrays of a numpy .npz archive.

    Parameters
    ----------
    keys : their names.
    objects : those that may be object arrays, which the restricted unpickler reads.

    Raises
    ------
    DataError : it is no archive or is cut short; an array is missing, or has Python objects where numbers belong.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            held = npz_names(data, where)
            if missing := ", ".join(key for key in keys if key not in held):
                there = ", ".join(sorted(held)) or "nothing"
                raise DataError(f"{where}: holds no array {missing} (it holds {there}).")
            return {key: load_npy(archive.read(f"{key}.npy"), f"{where}, array {key}", key in objects) for key in keys}
    except _BROKEN as broken:
        raise DataError(f"{where}: cut short or not an .npz archive ({broken}). Get the file again.") from None


def npz_names(data: bytes, where: str) -> set[str]:
    """The names of the arrays in a numpy .npz archive.

    Raises
    ------
    DataError : it is no archive or is cut short.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except _BROKEN as broken:
        raise DataError(f"{where}: cut short or not an .npz archive ({broken}). Get the file again.") from None


def load_npy(data: bytes, where: str, objects: bool = False) -> np.ndarray:
    """The array in a numpy .npy file; with `objects` it may be an object array, which the restricted unpickler reads.

    Raises
    ------
    DataError : it is no array or is cut short, or has Python objects where numbers belong.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        if not dtype.hasobject:
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    except _BROKEN as broken:
        raise DataError(f"{where}: cut short or not a numpy array ({broken}). Get the file again.") from None
    if not objects:
        raise DataError(f"{where}: holds Python objects where numbers belong; refused.")
    array = load_pickle(file.read(), where)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        reason = f"its content is not the array of shape {shape} that it announces"
        raise DataError(f"{where}: {reason}. Get the file again.")
    return array


def load_sparse(data: bytes, where: str) -> Any:
    """A scipy sparse matrix (`scipy.sparse.save_npz`) as a coo matrix, with checked indices.

    Raises
    ------
    DataError : it is not a valid matrix.
    """
    from scipy import sparse

    try:
        matrix = sparse.load_npz(io.BytesIO(data))  # without pickles
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)
        return matrix.tocoo()
    except _BROKEN as error:
        raise DataError(f"{where}: cut short or not a valid sparse matrix ({error}). Get the file again.") from None
