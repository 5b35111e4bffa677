"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from rankbits.cli import main


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    floats = rng.normal(size=(60, 12)) + 2 * rng.normal(size=(3, 12))[labels]
    codes = rb.pack(floats)
    paths = str(tmp_path / "queries.npz"), str(tmp_path / "database.safetensors")
    codes[:20].save(paths[0], labels=labels[:20], embeddings=floats[:20])
    codes[20:].save(paths[1], labels=labels[20:], embeddings=floats[20:])
    return paths


def refused(capsys, *words):
    assert main(list(words)) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("rankbits: ") and err.count("\n") == 1
    return err


def test_evaluate_prints_the_report(saved, capsys, tmp_path):
    assert main(["evaluate", *saved, "--k", "5,10", "--html", str(tmp_path / "r.html")]) == 0
    text = capsys.readouterr().out
    assert "20 queries x 40 database items, 12 bits" in text and "ties could make it" in text
    assert (tmp_path / "r.html").stat().st_size > 1000
    assert main(["evaluate", *saved, "--json", "--tie-break"]) == 0
    assert "H2Q" in json.loads(capsys.readouterr().out)["protocol"]
    assert main(["evaluate", *saved, "--markdown"]) == 0
    assert "| mAP |" in capsys.readouterr().out
    assert main(["evaluate", saved[0], "--exclude-self", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["database"] == 19


def test_flags_win_over_toml_over_defaults(saved, capsys, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("k = [3, 7]\nradius = 1\n")
    assert main(["evaluate", *saved, "--config", str(config), "--radius", "4", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert "mAP@7" in figures and "mAP@10" not in figures and "precision within 4" in figures
    config.write_text("radus = 1\n")
    assert "unknown key 'radus' (did you mean 'radius'?)" in refused(
        capsys, "evaluate", *saved, "--config", str(config)
    )
    config.write_text("radius = [")
    assert "is not TOML" in refused(capsys, "evaluate", *saved, "--config", str(config))
    config.write_text("radius = 1.5")
    assert "radius must be a whole number; got 1.5." in refused(
        capsys, "evaluate", *saved, "--config", str(config)
    )


def test_a_trec_run(tmp_path, capsys):
    (tmp_path / "run").write_text("q Q0 a 1 0.5 t\nq Q0 b 2 0.5 t\n")
    (tmp_path / "qrels").write_text("q 0 a 1\n")
    words = ["evaluate", "--run", str(tmp_path / "run"), "--qrels", str(tmp_path / "qrels")]
    assert main([*words, "--k", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["mAP"]["mean"] == 0.75
    assert "two files: --run RUN --qrels QRELS" in refused(capsys, *words[:3])


def test_refusals_are_one_line_and_exit_1(saved, capsys, tmp_path):
    queries, database = saved
    rb.pack(np.eye(9)).save(tmp_path / "nine.npz", labels=np.arange(9))
    rb.pack(np.eye(12)).save(tmp_path / "bare.npz")
    rb.pack(np.eye(12))[:0].save(tmp_path / "empty.npz", labels=np.arange(0))
    (tmp_path / "half.npz").write_bytes(Path(queries).read_bytes()[:300])
    (tmp_path / "text.npz").write_text("no codes at all")
    for words, sentence in [
        ((queries, str(tmp_path / "nine.npz")), "same number of bits; got 12 and 9."),
        ((queries, str(tmp_path / "bare.npz")), "holds no labels: save them with"),
        ((queries, str(tmp_path / "empty.npz")), "The database must not be empty"),
        (
            (queries, str(tmp_path / "half.npz")),
            "is truncated, damaged or not a rankbits codes file",
        ),
        (
            (queries, str(tmp_path / "text.npz")),
            "is truncated, damaged or not a rankbits codes file",
        ),
        ((queries, str(tmp_path / "none.npz")), "does not exist or is not a file."),
        ((queries,), "Give an index and its queries, two files of codes"),
        ((queries, database, "--k", "0"), "k must be a whole number of at least 1; got 0."),
        ((queries, database, "--k", "ten"), "k must be a whole number; got 'ten'."),
        ((queries, database, "--radus", "3"), "no flag --radus (did you mean '--radius'?)."),
        ((queries, database, "--k"), "Argument -k/--k: expected one argument."),
        ((queries, database, "extra"), "does not take 'extra'."),
        ((queries, database, "--relevance", "al"), "relevance must be one of 'any', 'count'"),
        ((queries, database, "--html", str(tmp_path / "no" / "r.html")), "does not exist."),
    ]:
        assert sentence in refused(capsys, "evaluate", *words), words
    assert "no command 'evalaute' (did you mean 'evaluate'?)." in refused(capsys, "evalaute")


def test_help_explains_itself(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert "quickstart" in text and "evaluate" in text


def test_as_a_module_without_a_traceback(saved):
    done = subprocess.run(
        [sys.executable, "-m", "rankbits", "evaluate", saved[0], "nowhere.npz"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "rankbits: nowhere.npz does not exist or is not a file.\n"


@pytest.fixture
def floats(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300)
    rows = (rng.normal(size=(300, 16)) + 2 * rng.normal(size=(4, 16))[labels]).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    return tmp_path, rows, labels


def test_fit_encode_evaluate(floats, capsys):
    folder, rows, labels = floats
    x, q, codes = (str(folder / n) for n in ("x.npy", "q", "codes.npz"))
    assert main(["fit", x, "--bits", "8", "-o", q]) == 0
    assert "neighbours kept" in capsys.readouterr().out
    assert main(["encode", q, x, "--labels", str(folder / "y.npy"), "-o", codes]) == 0
    assert "Codes(300 rows of 8 bits)" in capsys.readouterr().out
    found, columns = rb.Codes.load_columns(codes)
    assert found == rb.load(q).encode(rows) and (columns["labels"] == labels).all()
    assert main(["evaluate", codes, "--exclude-self", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["mAP"]["mean"] > 0.5


def test_fit_shows_what_bytes_keep(tmp_path, capsys):
    rows = np.random.default_rng(1).normal(size=(500, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    words = ["fit", str(tmp_path / "x.npy"), "--bits", "8", "-o", str(tmp_path / "q")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "what bytes keep of the 10 nearest (fitted to 219 rows; 62 queries among 219" in printed
    assert main([*words, "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)["curve"]
    assert list(curve["kept"]) == ["1", "2"]
    for shares in curve["kept"].values():
        assert 0 < shares["bits"] <= shares["bits_rescored"] <= 1
        assert 0 < shares["floats"] <= shares["floats_rescored"] <= 1
    assert curve["kept"]["2"]["floats"] > curve["kept"]["1"]["floats"]
    assert main([*words, "--no-curve"]) == 0
    assert "what bytes keep" not in capsys.readouterr().out
    np.save(tmp_path / "x.npy", rows[:300])  # too few to say anything of others
    assert main(words) == 0
    assert "what bytes keep" not in capsys.readouterr().out


@pytest.mark.parametrize("method", ["sign", "random", "itq", "h2q", "supervised", "auto"])
def test_methods_with_labels_beside_the_rows(floats, capsys, method):
    folder, rows, labels = floats
    np.savez(folder / "xy.npz", embeddings=rows[:80], labels=labels[:80])
    words = ["fit", str(folder / "xy.npz"), "--method", method, "-o", str(folder / "q"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["bits"] == 16
    assert rb.load(folder / "q").bits == 16


def test_other_forms_of_files(floats, capsys):
    from safetensors.numpy import save_file

    from rankbits.data.arrays import read_array

    folder, rows, _ = floats
    save_file({"anything": rows}, folder / "x.safetensors")
    np.testing.assert_array_equal(read_array(folder / "x.safetensors"), rows)
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"embeddings": rows.tolist(), "labels": np.arange(300)})
    parquet.write_table(table, folder / "x.parquet")
    np.testing.assert_allclose(read_array(folder / "x.parquet"), rows, rtol=1e-6)


def test_refusals_of_fit_and_encode_write_nothing(floats, capsys):
    folder, rows, _ = floats
    x, q = str(folder / "x.npy"), str(folder / "q")
    bad = rows.copy()
    bad[3, 2] = np.nan
    np.save(folder / "nan.npy", bad)
    np.save(folder / "zero.npy", rows * (np.arange(300) != 5)[:, None])
    np.save(folder / "whole.npy", rows.astype(np.int64))
    np.save(folder / "flat.npy", np.where(np.arange(16) == 1, np.float32(1), rows))
    (folder / "half.npy").write_bytes((folder / "x.npy").read_bytes()[:900])
    for words, sentence in [
        (("fit", str(folder / "nan.npy"), "--bits", "8", "-o", q), "row 3 has nan or inf"),
        (("fit", str(folder / "zero.npy"), "-o", q), "row 5 is one"),
        (("fit", str(folder / "whole.npy"), "-o", q), "floats, int8 or uint8; got int64."),
        (("fit", str(folder / "flat.npy"), "-o", q), "column 1 is one"),
        (("fit", str(folder / "half.npy"), "-o", q), "is truncated, damaged or not a .npy file."),
        (("fit", x, "--bits", "8", "--method", "sign", "-o", q), "as many bits as dimensions, 16"),
        (("fit", x), "Give the embeddings and where to write"),
        (("fit", str(folder / "x.csv"), "-o", q), "does not exist"),
        (("encode", x, x, "-o", str(folder / "c.npz")), "not a rankbits quantizer file"),
    ]:
        assert main(list(words)) == 1, words
        assert sentence in capsys.readouterr().err, words
        assert not (folder / "q").exists() and not (folder / "c.npz").exists()


def test_encode_keeps_ids_and_refuses_other_names(floats, capsys):
    folder, rows, _ = floats
    q, codes = str(folder / "q"), str(folder / "codes.npz")
    rb.Sign().fit(rows).save(q)
    np.savez(folder / "named.npz", embeddings=rows, ids=np.arange(300) * 7)
    assert main(["encode", q, str(folder / "named.npz"), "-o", codes]) == 0
    assert (rb.Codes.load_columns(codes)[1]["ids"] == np.arange(300) * 7).all()
    capsys.readouterr()
    x = str(folder / "x.npy")
    for words, sentence in [
        ((q, x), "Give all three: rankbits encode ENCODER INPUTS -o CODES"),
        ((q, x, "-o", "codes.txt"), "codes.txt must end in .npz or .safetensors."),
        (
            (q, x, "--labels", str(folder / "named.npz"), "-o", codes),
            "must have a column 'labels' or only one",
        ),
    ]:
        assert sentence in refused(capsys, "encode", *words), words


def test_ctrl_c_is_no_traceback(floats, capsys, monkeypatch):
    def stopped(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("rankbits.encoder.files.load_encoder", stopped)
    assert main(["encode", "q", "x.npy", "-o", "codes.npz"]) == 130
    assert capsys.readouterr().err == "rankbits: stopped.\n"


def test_a_switch_in_toml_is_true_or_false(saved, capsys, tmp_path):
    (tmp_path / "c.toml").write_text('json = "yes"\n')
    said = refused(capsys, "evaluate", *saved, "--config", str(tmp_path / "c.toml"))
    assert "json must be true or false; got 'yes'." in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_every_command_and_flag(shell, capsys):
    from rankbits.commands import COMMANDS
    from rankbits.commands.completion import list_flags

    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name in script
        for flag in list_flags(command):
            assert flag[2:] in script
    assert main(["completion", "csh"]) == 1
    assert "shell must be one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def completed(*words):
        typed = " ".join(f"'{word}'" for word in words)
        ask = (
            f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _rankbits; echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
        assert not done.stderr
        return done.stdout.split()

    assert completed("rankbits", "ev") == ["evaluate"]
    assert completed("rankbits", "fit", "--me") == ["--method"]
    assert "--no-cache" in completed("rankbits", "train", "--no")


@pytest.mark.skipif(os.name == "nt", reason="pipes break in another way there")
@pytest.mark.parametrize("words", [("--help",), ("completion", "bash"), ("data", "check", "x.npz")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_a_command_quietly(tmp_path, words, unbuffered):
    """As in ``rankbits ... | head``: the reader is gone before anything is written."""
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=[0, 0, 1, 1])
    command = [sys.executable, "-m", "rankbits", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:  # fmt: skip
        process.stdout.close()
        said = process.stderr.read()
    # newer versions of argparse pass over help that they cannot write
    wanted = (0, 141) if words == ("--help",) else (141,)
    assert process.returncode in wanted and said == ""


def test_a_pipe_that_is_not_our_output_is_spoken_of(monkeypatch, capsys):
    def lose(self):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("rankbits.commands.data.Data.work", lose)
    assert main(["data", "check", "x"]) == 1
    assert capsys.readouterr().err == "rankbits: Broken pipe.\n"
