"""The official layouts of the data sets, made small."""

import gzip
import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from laser_vfl.core.errors import DataError
from laser_vfl.data.sets import load_set
from laser_vfl.data.sets.credit import FEATURES, LABEL

RNG = np.random.default_rng(0)


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def lines(array: np.ndarray) -> str:
    return "\n".join(" ".join(f"{value:.7e}" for value in row) for row in array) + "\n"


@pytest.fixture
def hapt(tmp_path: Path) -> Path:
    """HAPT with 24 training and 12 test windows."""
    for table, num in (("Train", 24), ("Test", 12)):
        folder = tmp_path / "HAPT Data Set" / table
        write(folder / f"X_{table.lower()}.txt", lines(RNG.normal(size=(num, 561))))
        write(folder / f"y_{table.lower()}.txt", "".join(f"{i % 12 + 1}\n" for i in range(num)))
    return tmp_path


def test_hapt_from_a_folder_and_from_a_zip(hapt):
    folder = load_set("hapt", hapt)
    assert folder.train.features.shape == (24, 561)
    assert folder.train.features.dtype == np.float32
    assert folder.test.labels.tolist() == list(range(12))
    assert [block.shape for block in folder.blocks(4).test] == [(12, 140)] * 4
    assert "official features" in folder.notes[0]

    shutil.make_archive(str(hapt / "HAPT Data Set"), "zip", hapt, "HAPT Data Set")
    shutil.rmtree(hapt / "HAPT Data Set")
    packed = load_set("hapt", hapt)
    assert np.array_equal(packed.train.features, folder.train.features)
    assert np.array_equal(packed.test.labels, folder.test.labels)


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("Test/y_test.txt", None, r"there is no Test/y_test\.txt in it"),
        ("Test/y_test.txt", "1\n2\n", "expected 561 features"),
        ("Test/y_test.txt", "13\n" * 12, "expected labels from 1 to 12"),
        ("Train/X_train.txt", "1 2 x\n", r"cannot be read \(ValueError"),
        ("Train/X_train.txt", "1 2 3\n", "expected 561 features"),
    ],
)
def test_hapt_with_something_wrong(hapt, file, content, match):
    path = hapt / "HAPT Data Set" / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DataError, match=match) as caught:
        load_set("hapt", hapt)
    assert "HAPT Data Set" in caught.value.where
    assert caught.value.hint


def credit_rows(header: list[str]) -> str:
    rows = [[i + 1, *RNG.integers(0, 99, 23).tolist(), int(i < 20)] for i in range(100)]
    return "\n".join(",".join(map(str, row)) for row in [*[header], *rows]) + "\n"


NAMED = ["ID", *FEATURES, LABEL]
NUMBERED = ["ID", *(f"X{i}" for i in range(1, 24)), "Y"]


@pytest.mark.parametrize(
    "text",
    [
        credit_rows(NAMED),
        credit_rows(NUMBERED),
        ",".join(["", *NUMBERED[1:]]) + "\n" + credit_rows(NAMED),  # as the sheet has it
    ],
)
def test_credit_from_a_csv(tmp_path, text):
    write(tmp_path / "default of credit card clients.csv", text)
    data = load_set("credit", tmp_path)
    assert (len(data.train), len(data.test)) == (80, 20)
    assert (data.train.labels.sum(), data.test.labels.sum()) == (16, 4)  # stratified
    assert data.task == "binary"
    assert data.metric == "f1"
    assert [block.shape for block in data.blocks(4).train] == [(80, 5)] * 4


def test_credit_without_a_column_or_with_text_is_refused(tmp_path):
    path = tmp_path / "default of credit card clients.csv"
    write(path, credit_rows(NAMED).replace(",AGE,", ",YEARS,"))
    with pytest.raises(DataError, match='there is no column "AGE"'):
        load_set("credit", tmp_path)
    write(path, credit_rows(NAMED) + "101," + "x," * 23 + "0\n")
    with pytest.raises(DataError, match="cannot be read"):
        load_set("credit", tmp_path)


def test_a_spreadsheet_without_a_reader_says_what_to_do(tmp_path, monkeypatch):
    def no_engine(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("required package 'fastexcel' not found", name="fastexcel")

    monkeypatch.setattr("polars.read_excel", no_engine)
    write(tmp_path / "default of credit card clients.xls", b"\xd0\xcf\x11\xe0")
    with pytest.raises(DataError, match=r'save it as "default of credit card clients\.csv"'):
        load_set("credit", tmp_path)


def icu_record(age: float, *more: str) -> str:
    general = [f"00:00,Age,{age}", "00:00,Gender,1", "00:00,Height,-1", "00:00,ICUType,3"]
    return "\n".join(
        ["Time,Parameter,Value", "00:00,RecordID,1", *general, "00:00,Weight,70", *more, ""]
    )


def test_icu_by_the_hour(tmp_path):
    deaths = []
    for i in range(20):
        number = 132_500 + i
        more = ("00:07,HR,80", "00:37,HR,90", "02:10,Temp,36.5", "47:59,pH,7.4", "48:00,pH,9")
        write(tmp_path / "set-a" / f"{number}.txt", icu_record(50 + i, *more))
        deaths.append(f"{number},6,1,5,-1,{int(i < 5)}")
    header = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"
    write(tmp_path / "Outcomes-a.txt", "\n".join([header, *deaths, ""]))
    data = load_set("icu", tmp_path)
    assert (len(data.train), len(data.test)) == (16, 4)
    assert (data.train.labels.sum(), data.test.labels.sum()) == (4, 1)
    record = data.train.features[0]
    assert record.shape == (48, 37)
    assert record[0, 14] == 90  # the last heart rate of the hour
    assert record[2, 31] == pytest.approx(36.5)
    assert record[47, 26] == pytest.approx(7.4)
    assert record[0, 36] == 70
    assert np.isfinite(record).sum() == 4
    (static,) = data.train.static
    assert static.shape == (16, 5)
    assert np.isnan(static[:, 2]).all()  # -1: not known
    assert [block.shape for block in data.blocks(4).train] == [(16, 48, 20), *[(16, 48, 19)] * 3]
    assert any("not MIMIC-IV" in note for note in data.notes)


def test_icu_without_records_is_refused(tmp_path):
    write(tmp_path / "Outcomes-a.txt", "RecordID,In-hospital_death\n1,0\n")
    with pytest.raises(DataError, match="no records in set-a"):
        load_set("icu", tmp_path)


def cifar_records(num: int, label_bytes: int) -> bytes:
    records = RNG.integers(0, 256, (num, label_bytes + 3072)).astype(np.uint8)
    records[:, :label_bytes] = 0
    records[:, label_bytes - 1] = np.arange(num)
    return records.tobytes()


def test_cifar_10_in_the_binary_version(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    for number in range(1, 6):
        write(folder / f"data_batch_{number}.bin", cifar_records(10, 1))
    write(folder / "test_batch.bin", content := cifar_records(10, 1))
    data = load_set("cifar10", tmp_path)
    assert data.train.features.shape == (50, 3, 32, 32)
    assert data.train.features.dtype == np.uint8
    assert data.test.labels.tolist() == list(range(10))
    assert data.test.features[0].tobytes() == content[1:3073]
    assert [block.shape for block in data.blocks(4).train] == [(50, 3, 16, 16)] * 4


def test_cifar_100_has_its_fine_label_second(tmp_path):
    write(tmp_path / "train.bin", cifar_records(30, 2))
    write(tmp_path / "test.bin", cifar_records(100, 2))
    data = load_set("cifar100", tmp_path)
    assert data.test.labels.tolist() == list(range(100))
    write(tmp_path / "test.bin", cifar_records(100, 2)[:-1])
    with pytest.raises(DataError, match="not made of records of 3074 bytes"):
        load_set("cifar100", tmp_path)


def test_a_cifar_archive_with_another_checksum_is_refused(tmp_path):
    write(tmp_path / "cifar-10-binary.tar.gz", b"half of it")
    with pytest.raises(DataError, match="its MD5 is"):
        load_set("cifar10", tmp_path)


MIMIC = {
    "hosp/patients.csv": "subject_id,gender,anchor_age,anchor_year\n"
    + "".join(f"{i},{'FM'[i % 2]},60,2150\n" for i in range(10)),
    "hosp/admissions.csv": "subject_id,hadm_id,insurance,race,hospital_expire_flag\n"
    + "".join(f"{i},{100 + i},Medicare,WHITE - OTHER,{int(i < 4)}\n" for i in range(10)),
    # Admission 109 has another disease, and admission 108 a stay that is too short.
    "hosp/diagnoses_icd.csv": "subject_id,hadm_id,seq_num,icd_code,icd_version\n"
    + "".join(
        f"{i},{100 + i},1,{('5853' if i % 2 else 'N186')},{9 if i % 2 else 10}\n" for i in range(9)
    )
    + "".join(f"{i},{100 + i},2,4280,9\n" for i in range(0, 10, 2))
    + "9,109,1,5853,10\n",
    "icu/icustays.csv": "subject_id,hadm_id,stay_id,intime,outtime\n"
    + "".join(
        f"{i},{100 + i},{300 - i},2155-01-01 10:30:00,2155-01-0{2 if i == 8 else 5} 10:30:00\n"
        for i in range(10)
    ),
    "hosp/labevents.csv": "labevent_id,subject_id,itemid,charttime,valuenum,comments\n"
    + "".join(
        f'{i},{i},50912,2155-01-01 12:{minute}:00,{value},"two\nlines"\n'
        for i in range(10)
        for minute, value in (("00", 1), ("20", 3), ("40", ""))
    )
    + "".join(f"{i},{i},50912,2155-01-04 12:00:00,9,\n" for i in range(10)),
}
CHART = "subject_id,stay_id,charttime,itemid,valuenum\n" + "".join(
    f"{i},{300 - i},2155-01-01 10:30:00,220045,{70 + i}\n" for i in range(10)
)


@pytest.mark.parametrize("packed", [False, True])
def test_mimic_iv_with_labs_alone(tmp_path, packed):
    for name, text in MIMIC.items():
        content = gzip.compress(text.encode()) if packed else text
        write(tmp_path / "mimiciv" / (name + ".gz" * packed), content)
    data = load_set("mimic4", tmp_path)
    assert len(data.train) + len(data.test) == 8  # all but 108 and 109
    assert data.train.labels.sum() + data.test.labels.sum() == 4
    assert data.train.features.shape[1:] == (48, 1)
    hours = data.train.features[0, :, 0]
    assert hours[1] == 2.0  # the mean of 12:00 and 12:20, in the second hour of the stay
    assert np.isfinite(hours).sum() == 1
    conditions, demographics = data.train.static
    assert conditions.shape[1] == 1  # 428; the kidney disease itself is none
    assert demographics[0].tolist() in ([65, 1, 1, 0, 1, 0, 0, 0], [65, 0, 1, 0, 1, 0, 0, 0])
    assert [block.shape for block in data.blocks(1).train] == [(len(data.train), 48, 11)]
    assert any("labs alone" in note for note in data.notes)


def test_mimic_iv_with_a_chart(tmp_path):
    for name, text in {**MIMIC, "icu/chartevents.csv": CHART}.items():
        write(tmp_path / name, text)
    data = load_set("mimic4", tmp_path)
    assert data.train.features[0, 0, 0] >= 70
    assert not any("labs alone" in note for note in data.notes)


def test_mimic_iv_as_it_was_before_2_0(tmp_path):
    """Release 1.0, the paper's, has people in a folder of their own and calls races otherwise."""
    for name, text in MIMIC.items():
        write(tmp_path / "new" / name, text)
        is_of_people = name in ("hosp/patients.csv", "hosp/admissions.csv")
        folder = name.replace("hosp/", "core/") if is_of_people else name
        write(tmp_path / "old" / folder, text.replace(",race,", ",ethnicity,"))
    new, old = (load_set("mimic4", tmp_path / each) for each in ("new", "old"))
    assert np.array_equal(new.train.labels, old.train.labels)
    assert all(map(np.array_equal, new.train.static, old.train.static))


def test_mimic_iv_reads_rows_whole_however_it_is_cut(tmp_path, monkeypatch):
    for name, text in MIMIC.items():
        write(tmp_path / name, text)
    whole = load_set("mimic4", tmp_path)
    monkeypatch.setattr("laser_vfl.data.sets.mimic4_tables.PIECE_BYTES", 100)
    pieces = load_set("mimic4", tmp_path)
    assert np.array_equal(whole.train.features, pieces.train.features, equal_nan=True)
    assert np.array_equal(whole.train.static[0], pieces.train.static[0])


@pytest.mark.parametrize("missing", ["hosp/labevents.csv", "icu/icustays.csv"])
def test_mimic_iv_with_a_table_missing_is_refused(tmp_path, missing):
    for name, text in MIMIC.items():
        if name != missing:
            write(tmp_path / name, text)
    with pytest.raises(DataError, match=f"there is no {missing}"):
        load_set("mimic4", tmp_path)


def test_mimic_iv_is_compared_with_the_checksums_beside_it(tmp_path):
    for name, text in MIMIC.items():
        write(tmp_path / name, text)
    write(tmp_path / "SHA256SUMS.txt", f"{'0' * 64} hosp/patients.csv\n")
    with pytest.raises(DataError, match=r"SHA-256 of hosp/patients\.csv is not the one"):
        load_set("mimic4", tmp_path)


def test_an_archive_without_the_layout_is_refused(tmp_path):
    with tarfile.open(tmp_path / "HAPT.zip", "w") as archive:
        member = tarfile.TarInfo("else.txt")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"no"))
    with pytest.raises(DataError, match=r"there is no Train/X_train\.txt in this archive"):
        load_set("hapt", tmp_path)
