import numpy as np
import pytest

from vflbench.data.shapes.off import parse_off
from vflbench.types import DataError

BODY = b"0 0 0\n1 0 0\n0 1 0\n0 0 1e0\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"


@pytest.mark.parametrize(
    "data",
    [
        b"OFF\n4 4 6\n" + BODY,
        b"OFF4 4 6\n" + BODY,  # ModelNet's known fault
        b"OFF 4 4 6\n" + BODY,
        b"# made\n\nOFF # a comment\n 4 4 6\n\n" + BODY.replace(b"3 0 1 2\n", b"3  0 1 2 # first\n\n"),
        b"OFF\n4 4\n" + BODY,
        (b"OFF\n4 4 0\n" + BODY).replace(b"\n", b"\r\n"),
        b"OFF\n4 4 0\n" + BODY.replace(b"3 0 1 3\n", b"3 0 1 3 255 0 0\n"),  # a coloured face
    ],
)
def test_one_mesh_in_many_spellings(data):
    vertices, triangles = parse_off(data, "m.off")
    assert vertices.dtype == np.float64 and vertices.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert triangles.tolist() == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]


def test_a_polygon_becomes_a_fan():
    corners = b"0 0 0\n1 0 0\n1 1 0\n0 1 0\n0 2 0\n"
    assert parse_off(b"OFF\n5 2 0\n" + corners + b"4 0 1 2 3\n3 2 3 4\n", "m")[1].tolist() == [
        [0, 1, 2],
        [0, 2, 3],
        [2, 3, 4],
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "m.off, line 1: an OFF file starts with the word OFF"),
        (b"\n\nPLY\n", "m.off, line 3: an OFF file starts"),
        (b"OFF\n", "m.off, line 1: three counts"),
        (b"OFF\n4 four 6\n" + BODY, "m.off, line 2: three counts"),
        (b"OFF\n4 -4 6\n" + BODY, "m.off, line 2: three counts"),
        (b"OFF\n4 0 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n", "m.off: the mesh has no faces"),
        (b"OFF\n4 4 6\n" + BODY[: BODY.rindex(b"3 1")], "m.off, line 9: the file ends after 7 of 8 lines"),
        (
            b"OFF\n4 4 6\n" + BODY.replace(b"0 1 0\n", b"0 1\n", 1),
            "m.off, line 5: a vertex is three numbers, this is '0 1'",
        ),
        (b"OFF\n4 4 6\n" + BODY.replace(b"1e0", b"nan"), "m.off, line 6: a vertex is three numbers, this is '0 0 nan'"),
        (b"OFF\n4 4 6\n" + BODY.replace(b"1e0", b"x"), "m.off, line 6: a vertex"),
        (b"OFF\n4 4 6\n" + BODY.replace(b"3 0 2 3", b"3 0 2"), "m.off, line 9: a face is a count"),
        (b"OFF\n4 4 6\n" + BODY.replace(b"3 0 2 3", b"2 0 2"), "m.off, line 9: a face is a count"),
        (b"OFF\n4 4 6\n" + BODY.replace(b"3 0 2 3", b"3 0 -2 3"), "m.off, line 9: a face is a count"),
        (
            b"OFF\n4 4 6\n" + BODY.replace(b"3 0 2 3", b"3 0 2 4"),
            "m.off, line 9: vertex 4 of a face is not there: vertices are 0 to 3",
        ),
        (b"OFF\n4 4 6\n" + BODY.replace(b"3 0 2 3", b"9" * 5000), "m.off, line 9: a face is a count"),
    ],
)
def test_a_broken_file_is_named_with_its_line(data, message):
    with pytest.raises(DataError) as error:
        parse_off(data, "m.off")
    assert message in str(error.value)
