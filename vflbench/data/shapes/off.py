"""Meshes in the Object File Format (OFF), as ModelNet has them: vertices, then faces, as plain text.

Some of ModelNet's files have the counts on the line of the word OFF, mostly without a space: `OFF3514 3546 0`.
"""

import math

import numpy as np

from vflbench.types import DataError


def parse_off(data: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (V, 3) float64 and triangles (F, 3) int64 of an OFF file; a polygon becomes a fan of triangles.

    Parameters
    ----------
    data : the file, decompressed.
    where : its name in errors.

    Raises
    ------
    DataError : the file is no OFF file, is malformed or cut short (naming the line), or the mesh has no faces.
    """
    # (number, content) of lines that are not empty without their comments
    lines = [(n, line) for n, raw in enumerate(data.split(b"\n"), 1) if (line := raw.split(b"#", 1)[0].strip())]
    if not lines or not lines[0][1].startswith(b"OFF"):
        number = lines[0][0] if lines else 1
        raise DataError(f"{where}, line {number}: an OFF file starts with the word OFF. Get the file again.")
    counts = lines[0][1][3:].strip()
    at = 1
    if not counts and len(lines) > 1:
        counts, at = lines[1][1], 2
    fields = counts.split()
    # The number of edges is optional and not used.
    vertices, faces = (_number(field) for field in (*fields[:2], b"", b"")[:2])
    if len(fields) not in (2, 3) or vertices < 0 or faces < 0:
        raise DataError(f"{where}, line {lines[at - 1][0]}: three counts (vertices, faces, edges) are expected here.")
    if faces == 0:
        raise DataError(f"{where}: the mesh has no faces: there is nothing to see. Get the file again, or remove it.")
    if len(lines) - at < vertices + faces:
        ends = f"the file ends after {len(lines) - at} of {vertices + faces} lines"
        expected = f"{vertices} vertices and {faces} faces"
        raise DataError(f"{where}, line {lines[-1][0]}: {ends} ({expected}). Get the file again.")
    points = _vertices(lines[at : at + vertices], where)
    return points, _faces(lines[at + vertices : at + vertices + faces], vertices, where)


def _vertices(lines: list[tuple[int, bytes]], where: str) -> np.ndarray:
    points = np.empty((len(lines), 3))
    for row, (number, line) in enumerate(lines):
        try:
            x, y, z = map(float, line.split())
        except ValueError:
            x = y = z = math.nan
        if not all(map(math.isfinite, (x, y, z))):
            reason = f"a vertex is three numbers, this is {_shown(line)}"
            raise DataError(f"{where}, line {number}: {reason}. Get the file again.")
        points[row] = x, y, z
    return points


def _faces(lines: list[tuple[int, bytes]], vertices: int, where: str) -> np.ndarray:
    try:
        table = np.array([line.split() for _, line in lines], dtype=np.int64)
        only_triangles = table.ndim == 2 and table.shape[1] == 4 and (table[:, 0] == 3).all()
        if only_triangles and (table[:, 1:] >= 0).all() and table.max() < vertices:
            return table[:, 1:]
    except (ValueError, OverflowError):
        pass
    triangles = []  # there are polygons, colours after the vertices, or a fault
    for number, line in lines:
        fields = line.split()
        corners = _number(fields[0])
        ring = [_number(field) for field in fields[1 : corners + 1]]
        if corners < 3 or len(ring) < corners or min(ring) < 0:
            face = "a face is a count (3 or more) and that many vertices"
            raise DataError(f"{where}, line {number}: {face}, this is {_shown(line)}.")
        if max(ring) >= vertices:
            missing = f"vertex {max(ring)} of a face is not there"
            raise DataError(f"{where}, line {number}: {missing}: vertices are 0 to {vertices - 1}.")
        triangles += [(ring[0], ring[i], ring[i + 1]) for i in range(1, corners - 1)]
    return np.array(triangles, dtype=np.int64)


def _number(field: bytes) -> int:
    """The count or index; -1 if it is none."""
    return int(field) if field.isdigit() and len(field) < 12 else -1


def _shown(line: bytes) -> str:
    text = line.decode("latin-1")
    return repr(text if len(text) <= 40 else text[:40] + "...")
