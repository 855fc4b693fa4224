"""Reading tables: three formats, and everything that can be wrong with a file."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from laser_vfl.core.errors import DataError
from laser_vfl.data import TableSpec, check_header, check_tables_apart, read_table

SPEC = TableSpec(id="id")


def write(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refuse(path: Path, match: str, spec: TableSpec = SPEC) -> DataError:
    with pytest.raises(DataError, match=match) as caught:
        read_table(path, spec)
    assert caught.value.where == str(path)
    assert caught.value.hint
    return caught.value


def test_csv_keeps_leading_zeros_and_splits_roles(tmp_path):
    path = write(tmp_path, "\ufeffid,a,y,b\n007,1,yes,x\n 08 ,,no,\n")
    table = read_table(path, TableSpec(id="id", label="y", exclude=("b",)))
    assert table.ids == ["007", "08"]
    assert len(table) == 2
    assert isinstance(table.features, pl.DataFrame)
    assert table.features.columns == ["a"]
    assert table.labels is not None
    assert table.labels.to_list() == ["yes", "no"]


def test_file_name_is_not_a_pattern(tmp_path):
    write(tmp_path, "id,a\n1,1\n", "ta.csv")
    path = write(tmp_path, "id,a\n2,1\n", "t[a].csv")
    assert read_table(path, SPEC).ids == ["2"]


def test_features_keep_the_order_of_the_configuration(tmp_path):
    path = write(tmp_path, "id,a,b,c\n1,1,2,3\n")
    table = read_table(path, TableSpec(id="id", features=("c", "a")))
    assert isinstance(table.features, pl.DataFrame)
    assert table.features.columns == ["c", "a"]


def test_parquet_reads_only_what_is_used(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame({"id": [1, 2], "a": [1.0, 2.0], "z": [[1], [2]], "y": [0, 1]})
    frame.write_parquet(path)
    table = read_table(path, TableSpec(id="id", label="y", exclude=("z",)))
    assert table.ids == ["1", "2"]
    assert table.names == ("id", "a", "z", "y")
    assert isinstance(table.features, pl.DataFrame)
    assert table.features.columns == ["a"]


def test_parquet_categorical_ids(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": ["x", "y"], "a": [1, 2]}).cast({"id": pl.Categorical}).write_parquet(path)
    assert read_table(path, SPEC).ids == ["x", "y"]


@pytest.mark.parametrize(
    "ids", [np.array([3, 4]), np.array(["3", "4"]), np.array([b"3", b"4"]), np.array([3, 4], "u1")]
)
def test_npz_takes_the_only_array_left(tmp_path, ids):
    path = tmp_path / "t.npz"
    np.savez(path, id=ids, y=np.array([b"no", b"yes"]), x=np.zeros((2, 3, 4, 4), np.uint8))
    table = read_table(path, TableSpec(id="id", label="y"))
    assert table.ids == ["3", "4"]
    assert isinstance(table.features, np.ndarray)
    assert table.features.shape == (2, 3, 4, 4)
    assert table.labels is not None
    assert table.labels.to_list() == ["no", "yes"]


def test_npz_vector_is_one_column(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, id=[1, 2], x=[0.5, 1.5])
    table = read_table(path, SPEC)
    assert isinstance(table.features, np.ndarray)
    assert table.features.shape == (2, 1)


def test_missing_file_folder_and_suffix(tmp_path):
    refuse(tmp_path / "none.csv", "no such file")
    refuse(tmp_path / "t.xlsx", r"suffix \"\.xlsx\"")
    (tmp_path / "d.csv").mkdir()
    refuse(tmp_path / "d.csv", "is not a file")
    refuse(tmp_path / (300 * "x" + ".csv"), "cannot be read")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the file is empty"),
        ("id,a\n", "has no rows"),
        ("id,a\n1,2,3\n", "cannot be read as CSV"),
        (b"id,a\n1,caf\xe9\n", "cannot be read as CSV"),
        (b"\x89PNG\x00\x01", "header is not UTF-8"),
        ("id,a,a\n1,2,3\n", 'two columns are called "a"'),
        ("id,a\n1,1\n2,2\n 1,3\n2,4\n", "same id twice in rows 1 and 3, 2 and 4"),
        ("id,a\n1,1\n,2\n", "id of row 2 is missing"),
        ("id,a\n1.0,1\n2.0,1\n", 'ids in "id" are floats'),
        ("id\n1\n", "no feature column is left"),
    ],
)
def test_bad_csv(tmp_path, text, match):
    refuse(write(tmp_path, text), match)


@pytest.mark.parametrize(
    ("text", "match", "hint"),
    [
        (b"id,a\n1,caf\xe9\n", "cannot be read as CSV", "save it as UTF-8"),
        (b"id,caf\xe9\n1,2\n", "header is not UTF-8", "save it as UTF-8"),
        ("id;a\n1;2\n".encode("utf-16"), "UTF-8", "save it as UTF-8"),
        ("id;a;b\n1;1,5;2,5\n", "cannot be read as CSV", "separate the columns with commas"),
        ("id\ta\n1\t2,5\n", "cannot be read as CSV", "separate the columns with commas"),
        ("id,a\n1,2,5\n", "cannot be read as CSV", "check that the file is complete"),
    ],
)
def test_a_csv_file_of_another_form_is_told_from_a_torn_one(tmp_path, text, match, hint):
    assert hint in refuse(write(tmp_path, text), match).hint


def test_a_name_in_another_case_is_near(tmp_path):
    path = write(tmp_path, "id,age,churned\n1,30,0\n")
    assert refuse(path, 'no id column "ID"', TableSpec(id="ID")).hint == 'did you mean "id"?'


def test_missing_columns_suggest_near_names(tmp_path):
    path = write(tmp_path, "customer_id,age,churned\n1,30,0\n")
    assert (
        'did you mean "customer_id"'
        in refuse(path, 'no id column "customerid"', TableSpec(id="customerid")).hint
    )
    spec = TableSpec(id="customer_id", label="churn")
    assert '"churned"' in refuse(path, 'no label column "churn"', spec).hint
    spec = TableSpec(id="customer_id", features=("zzz",))
    assert "the file has" in refuse(path, 'no feature column "zzz"', spec).hint
    semicolons = write(tmp_path, "id;a\n1;2\n", "s.csv")
    assert "commas" in refuse(semicolons, "no id column").hint


def test_roles_do_not_overlap(tmp_path):
    path = write(tmp_path, "id,a,y\n1,2,3\n")
    refuse(path, "both the id and the label", TableSpec(id="id", label="id"))
    refuse(path, 'label column "y" cannot be', TableSpec(id="id", label="y", features=("a", "y")))
    refuse(path, 'id column "id" cannot be', TableSpec(id="id", features=("id",)))
    refuse(path, "no feature", TableSpec(id="id", exclude=("a", "y")))


def test_bad_parquet(tmp_path):
    refuse(write(tmp_path, b"not parquet at all", "t.parquet"), "cannot be read as Parquet")
    path = tmp_path / "f.parquet"
    pl.DataFrame({"id": [1.0, 2.0], "a": [1, 2]}).write_parquet(path)
    refuse(path, "row 1 is a float")
    pl.DataFrame({"id": [1, None], "a": [1, 2]}).write_parquet(path)
    refuse(path, "row 2 is missing")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"id": [1.0], "x": [[1]]}, "row 1 is a float"),
        ({"id": [[1]], "x": [[1]]}, r'"id" has shape \(1, 1\)'),
        ({"id": [1], "x": [[1]], "z": [[2]]}, 'there are 2: "x", "z"'),
        ({"id": [1, 2], "x": [[1]]}, "1 rows but there are 2 ids"),
        ({"id": [1], "x": [["a"]]}, '"x" holds <U1'),
        ({"id": [1], "x": np.zeros((1, 0))}, r"shape \(1, 0\)"),
        ({"id": [1], "x": 3.0}, r"shape \(\)"),
        ({"id": [1], "x": np.array([[None]])}, '"x" holds pickled objects'),
        ({"id": np.array(["a", None]), "x": [[1], [2]]}, '"id" holds pickled objects'),
        ({"id": np.zeros(0, int), "x": np.zeros((0, 2))}, "has no rows"),
        ({"x": [[1]]}, 'no id array "id"'),
    ],
)
def test_bad_npz(tmp_path, arrays, match):
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    refuse(path, match)


def test_bad_npz_labels(tmp_path):
    path = tmp_path / "t.npz"
    spec = TableSpec(id="id", label="y")
    np.savez(path, id=[1, 2], x=[[1], [2]], y=[1, 2, 3])
    refuse(path, '"y" has 3 rows but there are 2 ids', spec)
    np.savez(path, id=[1, 2], x=[[1], [2]], y=[[1], [2]])
    refuse(path, '"y" has shape', spec)
    np.savez(path, id=[1, 2], x=[[1], [2]], y=np.array([1j, 2]))
    refuse(path, '"y" holds complex', spec)


def test_npz_that_is_something_else(tmp_path):
    refuse(write(tmp_path, b"", "e.npz"), "cannot be read as NPZ")
    refuse(write(tmp_path, b"garbage", "g.npz"), "cannot be read as NPZ")
    np.save(tmp_path / "a.npy", np.zeros(3))
    refuse((tmp_path / "a.npy").rename(tmp_path / "a.npz"), "cannot be read as NPZ")
    whole = tmp_path / "w.npz"
    np.savez(whole, id=np.arange(100), x=np.zeros((100, 9)))
    content = bytearray(whole.read_bytes())
    content[300:1200] = b"?" * 900
    refuse(write(tmp_path, bytes(content), "torn.npz"), "cannot be read as NPZ")


def test_one_feature_array_chosen_by_name(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, id=[1], x=[[1]], z=[[2]])
    table = read_table(path, TableSpec(id="id", features=("z",)))
    assert isinstance(table.features, np.ndarray)
    assert table.features.tolist() == [[2]]
    refuse(path, "there are 2", TableSpec(id="id", features=("x", "z")))


def test_tables_that_share_samples(tmp_path):
    train = read_table(write(tmp_path, "id,a\nann,1\nbob,2\ncid,3\n", "train.csv"), SPEC)
    apart = read_table(write(tmp_path, "id,a\ndan,1\n", "apart.csv"), SPEC)
    check_tables_apart(train, apart)
    test = read_table(write(tmp_path, "id,a\ndan,1\nbob,2\n", "test.csv"), SPEC)
    with pytest.raises(DataError, match=r"1 of 2 ids are also in train.csv \(row 2\)") as caught:
        check_tables_apart(train, test)
    assert "bob" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'id,a\n17,"8675309.125\n',
        'id,a\n17,"8675309.125"x\n',
        "17,8675309.125\n18,8675309.125\n",
        "id,a\n17,8675309.125,8675309.125\n",
    ],
)
def test_errors_quote_no_value_of_a_table(tmp_path, text):
    error = refuse(write(tmp_path, text), "cannot be read|there is no")
    assert "8675309" not in str(error)


def test_a_field_that_cannot_be_read_is_told_by_its_column(tmp_path):
    refuse(write(tmp_path, 'id,a\n17,"8675309.125"x\n'), 'a field in column "a"')
    headless = write(tmp_path, "17,8675309.125\n18,8675309.125\n", "h.csv")
    assert "header" in refuse(headless, 'no id column "id"').hint


def test_a_part_of_a_table_has_whole_rows(tmp_path):
    table = read_table(write(tmp_path, "id,a,y\n7,1,u\n8,2,v\n9,3,w\n"), TableSpec("id", "y"))
    part = table.part(np.array([True, False, True]))
    assert part.ids == ["7", "9"]
    assert part.features["a"].to_list() == ["1", "3"]
    assert part.labels.to_list() == ["u", "w"]
    assert len(table) == 3


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # -3 values in a page and then 3, 2**31 - 1 values in a dictionary and then 3
        (b"\x06\x15\x10\x15\x06\x15\x06\x1c", b"\x05\x15\x10\x15\x06\x15\x06\x1c"),
        (b"L\x15\x06\x15\x00\x00\x00", b"L\x15\xfe\xff\xff\xff\x0f\x00\x00"),
    ],
    ids=["page", "dictionary"],
)
def test_a_parquet_file_whose_pages_claim_too_much_is_refused_before_polars_aborts(
    tmp_path, right, wrong
):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": ["x", "y", "z"], "a": [1, 2, 3]}).write_parquet(path)
    good = path.read_bytes()
    assert good.count(right)
    path.write_bytes(good.replace(right, wrong, 1))
    refuse(path, "cannot be read as Parquet: a page does not have as many values")


@pytest.mark.parametrize(
    "writing",
    [{"compression": name} for name in ("uncompressed", "snappy", "zstd")]
    + [{"data_page_size": 100}, {"row_group_size": 7}, {"statistics": "full"}],
    ids=str,
)
@pytest.mark.parametrize("num_rows", [1, 3000])
def test_parquet_of_every_kind_is_read(tmp_path, writing, num_rows):
    path = tmp_path / "t.parquet"
    rows = np.arange(num_rows)
    frame = pl.DataFrame(
        {
            "id": rows.astype(str),
            "number": rows / 7,
            "constant": np.ones(num_rows, dtype=np.int64),
            "word": [None if row % 3 else f"w{row % 5}" for row in rows.tolist()],
            "nothing": pl.Series([None] * num_rows, dtype=pl.Float64),
            "empty": [""] * num_rows,
            "truth": rows % 2 == 0,
            "list": pl.Series([[1] * (row % 3) for row in rows.tolist()], dtype=pl.List(pl.Int64)),
            "array": np.ones((num_rows, 2)),
        }
    )
    frame.write_parquet(path, **writing)
    table = read_table(path, SPEC)
    assert isinstance(table.features, pl.DataFrame)
    assert table.features.equals(frame.drop("id"))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_a_header_is_checked_without_the_rows(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    rows = {"id": ["same", "same"], "x": [1.0, 2.0], "y": [0, 1]}
    if suffix == "npz":
        np.savez(path, **{name: np.array(values) for name, values in rows.items()})
    else:
        getattr(pl.DataFrame(rows), f"write_{suffix}")(path)
    assert check_header(path, TableSpec(id="id", label="y")) == 1
    with pytest.raises(DataError, match=r'no id (column|array) "ids"'):
        check_header(path, TableSpec(id="ids"))
    with pytest.raises(DataError, match="no such file"):
        check_header(path.with_name(f"other.{suffix}"), SPEC)
