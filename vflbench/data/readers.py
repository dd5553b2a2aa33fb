"""Reading other people's files without trusting them: pickles through a short list of allowed names, numpy archives
without pickles."""

import io
import pickle
import pickletools
import zipfile
import zlib
from typing import Any

import numpy as np

from vflbench.types import DataError

# All that the published graph files need (found by listing their pickle opcodes), under the names of Python 2 and 3,
# old and new numpy and scipy. A name that is not here is never looked up, so nothing that a file names can run.
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

# What a damaged pickle or archive can raise while it is read.
_BROKEN = (
    *(
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ),
    *(MemoryError, OverflowError, RecursionError),
)


class _Refused(Exception):
    """The pickle names something that is not on the list."""


def _latin1(text: str, codec: str) -> bytes:
    """`_codecs.encode`, which could be told to run any codec, for the one that pickles of bytes need."""
    if codec != "latin1":
        raise ValueError(f"bytes in the encoding {codec!r}")
    return text.encode("latin1")


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        if module.startswith("numpy") and name == "_reconstruct":
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if name == "csr_matrix":
            from scipy.sparse import csr_matrix

            return csr_matrix
        if name == "encode":
            return _latin1
        return super().find_class(module, name)


def load_pickle(data: bytes, where: str) -> Any:
    """What the pickle `data` holds, if it holds nothing but lists, dicts, numbers, strings, numpy arrays and sparse
    matrices.

    Parameters
    ----------
    data : a pickle of any protocol; strings of Python 2 are read as latin-1, as its numpy arrays need.
    where : how errors call the file.

    Raises
    ------
    DataError : the pickle asks for anything else (nothing of it runs), is cut short or is no pickle.
    """
    try:
        for operation, argument, _ in pickletools.genops(data):
            # The C unpickler reserves memory up to the largest index that it is told to remember: a damaged one would
            # take all there is.
            if operation.name in ("PUT", "LONG_BINPUT") and isinstance(argument, int) and argument > len(data):
                raise ValueError(f"it remembers {argument} objects")
        return _RestrictedUnpickler(io.BytesIO(data), encoding="latin1").load()
    except _Refused as refused:
        raise DataError(
            f"{where}: this pickle tries to load {refused}, which no data file needs: refused, nothing was run. "
            "Get the file again from its official address."
        ) from None
    except _BROKEN as broken:
        raise DataError(
            f"{where}: cut short or not a pickle ({broken or type(broken).__name__}). Get the file again."
        ) from None


def load_npz(data: bytes, where: str, keys: tuple[str, ...], objects: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Arrays `keys` of a numpy .npz archive; those in `objects` may be object arrays and pass through the restricted
    unpickler.

    Raises DataError: no archive, cut short, an array is missing, or an array holds Python objects where numbers belong.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            held = npz_names(data, where)
            missing = [key for key in keys if key not in held]
            if missing:
                raise DataError(
                    f"{where}: holds no array {', '.join(missing)} (it holds {', '.join(sorted(held)) or 'nothing'})."
                )
            return {key: load_npy(archive.read(f"{key}.npy"), f"{where}, array {key}", key in objects) for key in keys}
    except _BROKEN as broken:
        raise DataError(f"{where}: cut short or not an .npz archive ({broken}). Get the file again.") from None


def npz_names(data: bytes, where: str) -> set[str]:
    """The arrays in a numpy .npz archive. Raises DataError, as `load_npz`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except _BROKEN as broken:
        raise DataError(f"{where}: cut short or not an .npz archive ({broken}). Get the file again.") from None


def load_npy(data: bytes, where: str, objects: bool = False) -> np.ndarray:
    """One array in numpy's .npy format; with `objects`, an object array is read through the restricted unpickler."""
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
        raise DataError(
            f"{where}: its content is not the array of shape {shape} that it announces. Get the file again."
        )
    return array


def load_sparse(data: bytes, where: str) -> Any:
    """A scipy sparse matrix (`scipy.sparse.save_npz`) as a coo matrix, its indices checked. Raises DataError."""
    from scipy import sparse

    try:
        matrix = sparse.load_npz(io.BytesIO(data))  # without pickles
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)
        return matrix.tocoo()
    except _BROKEN as error:
        raise DataError(f"{where}: cut short or not a valid sparse matrix ({error}). Get the file again.") from None
