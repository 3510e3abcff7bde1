import json

import pytest

from tests.tiny.runs import tiny_settings, write_dataset, write_model
from tunesmith.cli.main import main


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    write_model(folder / "model")
    write_dataset(folder / "data")
    (folder / "run.json").write_text(json.dumps(tiny_settings(folder)), encoding="utf-8")
    return folder / "run.json"


def test_the_table_and_the_lines_to_paste_are_printed(run_file, capsys):
    words = ["tune", "io", str(run_file), "--workers", "0", "--batches", "3", "--repeats", "1"]
    assert main([*words, "--step-seconds", "0.001"]) == 0
    text, told = capsys.readouterr()
    assert "Measuring 1 settings of the loader 1 times, with 3 batches each: 0.0s at least." in told
    assert "Measured against a model that takes 1 ms a micro-batch (as given)." in text
    assert "<- recommended" in text
    assert text.rstrip().endswith("dataloader_num_workers: 0")
    assert not (run_file.parent / "out").exists()


def test_the_model_is_measured_and_json_and_a_picture_are_written(run_file, capsys, tmp_path):
    words = ["tune", "io", str(run_file), "--workers=0", "--batches=2", "--repeats=1", "--json"]
    assert main([*words, f"--plot={tmp_path / 'io.png'}"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"].endswith("ms a micro-batch (measured)")
    assert report["recommended"]["num_workers"] == 0
    assert (tmp_path / "io.png").is_file()


def test_the_model_itself_can_run(run_file, capsys):
    assert main(["tune", "io", str(run_file), "--workers=0", "--batches=2", "--repeats=1", "--model"]) == 0
    assert "the model itself" in capsys.readouterr().out


def test_losses_that_look_at_their_whole_step_can_run(run_file, capsys):
    words = ["--workers=0", "--batches=2", "--repeats=1", "--model"]
    assert main(["tune", "io", str(run_file), "stage=kto", "dataset=ratings", *words]) == 0
    assert "the model itself" in capsys.readouterr().out


def test_batches_are_those_of_the_run_where_their_size_is_found_out(run_file, capsys):
    words = ["--workers=0", "--batches=2", "--repeats=1", "--step-seconds=0.001"]
    assert main(["tune", "io", str(run_file), "per_device_train_batch_size=auto", *words]) == 0
    assert "Batch size: 8 rows at once" in capsys.readouterr().err


def test_the_log_of_an_earlier_run_knows_the_speed_of_the_model(run_file, capsys, tmp_path):
    line = {"current_steps": 1, "step_seconds": 0.004, "data_wait_share": 0.5}
    (tmp_path / "trainer_log.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    words = ["tune", "io", str(run_file), "--workers=0", "--batches=2", "--repeats=1"]
    assert main([*words, f"output_dir={tmp_path}", "overwrite_output_dir=true"]) == 0
    assert "takes 2 ms a micro-batch (from its log)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "tunesmith tune io FILE"),
        (["memory"], "tunesmith tune io FILE"),
        (["io", "x.yaml", "--workers", "1,two"], "--workers is '1,two'; allowed are whole numbers from 0 to 1024"),
        (["io", "x.yaml", "--prefetch", "0"], "--prefetch is '0'; allowed are whole numbers from 1 to 1024"),
        (["io", "x.yaml", "--workers", "10000"], "--workers is '10000'"),
        (["io", "x.yaml", "--step-seconds", "fast"], "--step-seconds is 'fast'"),
        (["io", "x.yaml", "--step-seconds", "1", "--model"], "give one of them"),
    ],
)
def test_mistakes_are_refused(words, message, capsys):
    assert main(["tune", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(run_file, capsys):
    assert main(["tune", "io", str(run_file), "--plot", "/dev/null"]) == 2
    assert "--plot is '/dev/null', which is no file that could be replaced" in capsys.readouterr().err


def test_rows_that_are_streamed_are_measured_as_they_come(run_file, capsys):
    words = ["tune", "io", str(run_file), "streaming=true", "max_steps=2", "num_train_epochs=1"]
    words += ["--batches=30", "--repeats=1", "--step-seconds=0.001"]
    assert main([*words, "--workers=0"]) == 0
    text = capsys.readouterr().out
    assert "rows streamed in blocks of 64" in text
    assert text.rstrip().endswith("dataloader_num_workers: 0")


@pytest.mark.processes
def test_workers_of_a_stream_are_measured(run_file, capsys):
    words = ["tune", "io", str(run_file), "streaming=true", "max_steps=2", "--workers=1", "--prefetch=2"]
    assert main([*words, "--batches=3", "--repeats=1", "--step-seconds=0.001", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["recommended"]["num_workers"] == 1
    assert report["recommended"]["worker_bytes"] > 0
