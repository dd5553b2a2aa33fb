"""Twelve views of an object, as in MVCNN (Su, Maji, Kalogerakis, Learned-Miller, ICCV 2015).

There is a camera every 30 degrees around the object, 30 degrees above the ground.

The object stands on the x-y plane, z up, within the ball of radius 1 around the origin. Cameras look at the origin from
a distance of `DISTANCE`, in perspective. The ball just fits into the picture. Pictures are square, uint8, background 0.

- `mesh_views`: flat shading by a lamp at the camera, from rays cast at triangles. A surface that faces the lamp is
  brightest. (MVCNN shades smoothly, after Phong.) Both sides of a triangle are lit, as ModelNet's triangles do not all
  turn the same way.
- `voxel_view`: nearness, from rays that pass through the grid cell by cell. It is 255 at the near end of the ball and
  55 at the far end.

One ray passes through the middle of each pixel. Edges are not smoothed.
"""

import functools

import numpy as np

from vflbench.types import DataError

VIEWS = 12
ELEVATION = 30.0  # degrees above the ground
DISTANCE = 2.5  # of the cameras, in radii of the ball
_CHUNK = 128  # objects rendered at a time: as many as the processor's cache holds


@functools.lru_cache(maxsize=2)
def rays(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the cameras, (12, 3), and unit vectors through their pixels, (12, size * size, 3).

    Rows of pixels are from the top, columns from the left.
    """
    azimuth, elevation = np.radians(np.arange(VIEWS) * 360 / VIEWS), np.radians(ELEVATION)
    level = np.stack([np.cos(azimuth), np.sin(azimuth), np.zeros(VIEWS)], axis=1)
    up = np.array([0.0, 0.0, 1.0])
    origins = DISTANCE * (np.cos(elevation) * level + np.sin(elevation) * up)
    forward = -origins / DISTANCE
    right = np.cross(forward, up)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    above = np.cross(right, forward)
    reach = np.tan(np.arcsin(1 / DISTANCE)) * ((2 * np.arange(size) + 1) / size - 1)
    x, y = np.meshgrid(reach, -reach)
    pixels = forward[:, None] + x.reshape(-1, 1) * right[:, None] + y.reshape(-1, 1) * above[:, None]
    return origins, pixels / np.linalg.norm(pixels, axis=2, keepdims=True)


# --- meshes -----------------------------------------------------------------------------------------------------------


def mesh_views(vertices: np.ndarray, triangles: np.ndarray, size: int, where: str) -> np.ndarray:
    """The twelve views of a mesh, (12, size, size) uint8.

    The mesh is moved and scaled into the ball. The middle of its box is the origin, and its farthest used vertex is on
    the surface.

    Raises
    ------
    DataError : all vertices of the mesh are one point.
    ImportError : trimesh or embreex is not installed.
    """
    import trimesh
    from trimesh.ray.ray_pyembree import RayMeshIntersector  # the one in plain Python is a thousand times slower

    used = vertices[np.unique(triangles)]
    middle = (used.min(axis=0) + used.max(axis=0)) / 2
    radius = np.linalg.norm(used - middle, axis=1).max()
    if not 0 < radius < np.inf:
        reason = "the mesh has no extent: its faces are all one point"
        raise DataError(f"{where}: {reason}. Get the file again, or remove it.")
    points = (vertices - middle) / radius
    mesh = trimesh.Trimesh(points, triangles, process=False)
    corners = points[triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.divide(normals, length, out=np.zeros_like(normals), where=length > 0)

    origins, directions = rays(size)
    pixels = directions.reshape(-1, 3)
    hit = RayMeshIntersector(mesh).intersects_first(np.repeat(origins, size * size, axis=0), pixels)
    facing = np.abs(np.einsum("ij,ij->i", normals[hit], pixels))
    return np.where(hit >= 0, np.rint(80 + 175 * facing), 0).astype(np.uint8).reshape(VIEWS, size, size)


# --- voxels -----------------------------------------------------------------------------------------------------------


def side_by_side(grids: np.ndarray) -> np.ndarray:
    """Occupancy grids as `voxel_view` takes them, (side^3, n) uint8, 255 where a cell is full.

    Parameters
    ----------
    grids : (n, side, side, side), indexed [x, y, z].
    """
    return np.ascontiguousarray((grids.reshape(len(grids), -1) != 0).T) * np.uint8(255)


def voxel_view(full: np.ndarray, size: int, view: int) -> np.ndarray:
    """View number `view` of n grids, (n, size, size) uint8; each grid is the largest cube in the ball.

    Parameters
    ----------
    full : (side^3, n), as `side_by_side` gives it. A step of a ray is one row of it, for all objects.
    """
    side, count = round(len(full) ** (1 / 3)), full.shape[1]
    pixels, cells, values = _walk(side, size, view)
    pictures = np.empty((count, size, size), np.uint8)
    for start in range(0, count, _CHUNK):
        block = full[:, start : start + _CHUNK]
        out = np.zeros((size * size, block.shape[1]), np.uint8)
        for cell, value in zip(cells, values, strict=True):
            # The nearest full cell is the brightest, so the largest value is seen.
            seen = out[: len(cell)]
            np.maximum(seen, block[cell] & value[:, None], out=seen)
        picture = np.empty_like(out)
        picture[pixels] = out
        pictures[start : start + _CHUNK] = picture.T.reshape(-1, size, size)
    return pictures


def _walk(side: int, size: int, view: int) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """The cells that the rays of a view pass through.

    Returns
    -------
    pixels, sorted by how many cells they see, most first; and for the k-th cell of the m_k pixels that have one: its
    place in the flat grid, (m_k,), and the value of a surface where the ray enters it, (m_k,).
    """
    origins, directions = rays(size)
    half = 1 / np.sqrt(3)  # of the cube's side
    at, to = (origins[view] + half) * side / (2 * half), directions[view] * side / (2 * half)
    with np.errstate(divide="ignore"):
        # (pixels, 3, side + 1): ray parameter at every plane of cells
        crossings = (np.arange(side + 1) - at[:, None]) / to[:, :, None]
    enter, leave = crossings[:, :, [0, -1]].min(axis=2).max(axis=1), crossings[:, :, [0, -1]].max(axis=2).min(axis=1)
    within = np.clip(crossings.reshape(len(to), -1), enter[:, None], np.maximum(leave, enter)[:, None])
    crossings = np.sort(within, axis=1)
    middle = (crossings[:, 1:] + crossings[:, :-1]) / 2
    inside = np.diff(crossings, axis=1) > 1e-9
    cell = np.floor(at + middle[:, :, None] * to[:, None, :]).astype(np.int64)
    inside &= ((cell >= 0) & (cell < side)).all(axis=2)
    flat = (cell[..., 0] * side + cell[..., 1]) * side + cell[..., 2]
    value = np.rint(255 - 200 * (crossings[:, :-1] - (DISTANCE - 1)) / 2).clip(55, 255).astype(np.uint8)

    steps = inside.sum(axis=1)
    pixels = np.argsort(-steps, kind="stable")
    first = np.argsort(~inside, axis=1, kind="stable")[:, : steps.max()]  # cells inside come first, near to far
    flat, value = (np.take_along_axis(a, first, axis=1)[pixels] for a in (flat, value))
    lengths = [int((steps > k).sum()) for k in range(steps.max())]
    return pixels, [flat[:m, k] for k, m in enumerate(lengths)], [value[:m, k] for k, m in enumerate(lengths)]
