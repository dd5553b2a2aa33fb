import itertools

import numpy as np
import pytest

from vflbench.data.shapes import views
from vflbench.types import DataError


def all_views(grids: np.ndarray, size: int) -> np.ndarray:
    full = views.side_by_side(grids)
    return np.stack([views.voxel_view(full, size, view) for view in range(views.VIEWS)])


def boxes(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a grid as a mesh of cubes."""
    corners = np.array(list(itertools.product((0, 1), repeat=3)))
    sides = [(0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5)]
    triangles = np.array([t for a, b, c, d in sides for t in ((a, b, c), (a, c, d))])
    cells = np.argwhere(grid)
    return (cells[:, None] + corners).reshape(-1, 3).astype(float), (
        8 * np.arange(len(cells))[:, None, None] + triangles
    ).reshape(-1, 3)


def test_cameras_by_hand():
    origins, directions = views.rays(1)
    # 30 degrees up at distance 2.5: 2.5 cos 30 = 2.1650635 out, 2.5 sin 30 = 1.25 high; view 3 is at 90 degrees.
    np.testing.assert_allclose(origins[[0, 3]], [[2.1650635, 0, 1.25], [0, 2.1650635, 1.25]], atol=1e-7)
    np.testing.assert_allclose(directions[:, 0], -origins / 2.5, atol=1e-12)  # the only pixel looks at the middle
    origins, directions = views.rays(2)
    # From +x, up in the picture is up in the world, and right is +y.
    upper_left, upper_right, lower_left, _ = directions[0]
    assert upper_left[2] > lower_left[2] and upper_right[1] > 0 > upper_left[1]


def test_the_ball_just_fits():
    """The rays through the edges' middles (of many pixels) pass the ball at a distance of 1."""
    origins, directions = views.rays(200)
    edge = directions.reshape(12, 200, 200, 3)[:, 100, 0]
    np.testing.assert_allclose(np.linalg.norm(np.cross(origins, edge), axis=1), 1, atol=0.02)


def test_voxels_equal_a_plain_march_through_the_grid():
    rng = np.random.default_rng(0)
    grids = rng.random((3, 8, 8, 8)) < 0.08
    got = all_views(grids, 24)
    origins, directions = views.rays(24)
    steps = np.arange(1.4, 3.6, 2e-3)
    half = 1 / np.sqrt(3)
    differ = 0
    for view, pixel in itertools.product((0, 4, 11), range(0, 576, 7)):
        points = origins[view] + steps[:, None] * directions[view, pixel]
        cell = np.floor((points + half) * 8 / (2 * half)).astype(int)
        inside = ((cell >= 0) & (cell < 8)).all(axis=1)
        for n, grid in enumerate(grids):
            hit = np.flatnonzero(inside & grid[tuple(np.clip(cell, 0, 7).T)])
            value = 255 - 200 * (steps[hit[0]] - 1.5) / 2 if len(hit) else 0
            differ += abs(int(got[view, n].reshape(-1)[pixel]) - value) > 1.5
    assert differ <= 3 * 3 * 83 * 0.01  # the march steps over a few corners


def test_voxels_and_their_mesh_look_alike():
    """The same cubes through both renderers: one outline, in every view, for an object without any symmetry."""
    grid = np.zeros((4, 4, 4), bool)
    # the first two make its box the whole cube
    for cell in ((0, 0, 0), (3, 3, 3), (3, 0, 0), (1, 0, 0), (0, 2, 0), (3, 3, 1)):
        grid[cell] = True
    voxels = all_views(grid[None], 48)[:, 0] > 0
    mesh = views.mesh_views(*boxes(grid), 48, "boxes") > 0
    assert voxels.mean(axis=(1, 2)).min() > 0.03
    assert (voxels != mesh).mean() < 0.002
    others = [(voxels != np.roll(mesh, k, axis=0)).mean() for k in range(1, 12)]
    assert min(others) > 0.01


def test_a_turned_object_is_seen_by_the_next_cameras():
    grid = np.random.default_rng(1).random((6, 6, 6)) < 0.2
    turned = np.rot90(grid, axes=(0, 1))  # by 90 degrees about z, from x to y: three cameras
    straight = all_views(np.stack([grid, turned]), 32).astype(int)
    assert (np.abs(np.roll(straight[:, 0], 3, axis=0) - straight[:, 1]) > 1).mean() < 0.005


def test_brightness_of_a_surface_that_faces_the_camera():
    # A large square whose normal points at camera 0; the middle pixel sees it straight on: 80 + 175. From behind it is
    # lit as well.
    normal = np.array([np.cos(np.pi / 6), 0, np.sin(np.pi / 6)])
    across, up = np.array([0, 1.0, 0]), np.cross(normal, [0, 1.0, 0])
    square = np.array([across + up, across - up, -across - up, -across + up])
    for order in ([[0, 1, 2], [0, 2, 3]], [[2, 1, 0], [3, 2, 0]]):
        picture = views.mesh_views(square, np.array(order), 65, "square")[0]
        assert picture[32, 32] == 255 and picture[0, 0] == 0


def test_size_and_place_of_a_mesh_do_not_matter():
    vertices, triangles = boxes(np.random.default_rng(2).random((3, 3, 3)) < 0.5)
    one = views.mesh_views(vertices, triangles, 32, "m")
    stray = np.vstack([vertices * 1000 + 5, [[1e7, 0, 0]]])  # a vertex that no face uses
    assert (np.abs(one.astype(int) - views.mesh_views(stray, triangles, 32, "m")) > 2).mean() < 0.002


def test_a_mesh_without_extent_is_an_error():
    with pytest.raises(DataError, match=r"m\.off: the mesh has no extent"):
        views.mesh_views(np.ones((3, 3)), np.array([[0, 1, 2]]), 16, "m.off")


def test_an_empty_grid_is_dark_and_a_flat_triangle_does_no_harm():
    assert not all_views(np.zeros((1, 4, 4, 4), bool), 16).any()
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    picture = views.mesh_views(vertices, np.array([[0, 1, 1], [0, 1, 2], [1, 2, 3]]), 32, "m")
    assert picture.any(axis=(1, 2)).all()
