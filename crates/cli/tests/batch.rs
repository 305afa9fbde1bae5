//! `cutout batch`: inputs of every kind, shards, runs that go on, pictures that fail.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use cutout_imaging::{Rle, Size, polygons, simplify, to_wkb};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

use crate::support::{Ended, Folder, MODEL, SAM3, folder, folder_with_model, folder_with_sam3};

/// Options that keep every mask of a small grid.
const ALL: [&str; 8] = [
    "--points-per-side",
    "2",
    "--pred-iou-thresh",
    "0",
    "--stability-score-thresh",
    "0",
    "--box-nms-thresh",
    "1",
];

/// Masks of a picture with these options.
const MASKS: usize = 2 * 2 * 3;

/// The cells of a row as text, by column.
type Row = BTreeMap<String, String>;

fn batch(folder: &Folder, inputs: &[&str], more: &[&str]) -> Ended {
    folder.cutout(&[&["batch", "--model", MODEL], &ALL[..], more, inputs].concat())
}

/// The rows of all parts, in the order of the parts' names.
fn rows(folder: &Folder, output: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in parts(folder, output) {
        let file = File::open(folder.path(output).join(name)).unwrap();
        for row in SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let cell = |(name, field): (&String, &parquet::record::Field)| {
                (name.clone(), field.to_string().trim_matches('"').to_owned())
            };
            rows.push(row.get_column_iter().map(cell).collect());
        }
    }
    rows
}

fn parts(folder: &Folder, output: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(output)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".parquet")).collect();
    names.sort();
    names
}

/// Three pictures, one of them in a subfolder, and a file that is none.
fn folder_with_pictures() -> Folder {
    let folder = folder_with_model();
    folder.picture("photos/a.png", Size::new(50, 31));
    folder.picture("photos/inner/b.png", Size::new(31, 40));
    folder.picture("photos/c.png", Size::new(24, 24));
    folder.write("photos/broken.png", "no picture");
    folder.write("photos/notes.md", "not looked at");
    folder
}

/// The ids with the number of their instances.
fn instances(rows: &[Row]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row["id"].clone()).or_insert(0) += usize::from(row["instance"] != "-1");
    }
    counts
}

#[test]
pub(crate) fn a_folder_becomes_rows() {
    let folder = folder_with_pictures();
    let ended = batch(&folder, &["photos"], &["--output", "out"]);
    assert!(ended.stderr.contains("broken.png"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("37 rows of 4 pictures (0 done before, 1 failed)"),
        "{}",
        ended.stderr
    );
    ended.succeeds();
    assert_eq!(parts(&folder, "out"), ["part-00000-of-00001-000000.parquet"]);
    let rows = rows(&folder, "out");
    let wanted = [("a.png", MASKS), ("broken.png", 0), ("c.png", MASKS), ("inner/b.png", MASKS)];
    let wanted = wanted.map(|(name, count)| (format!("photos/{name}"), count));
    assert_eq!(instances(&rows), BTreeMap::from(wanted));
    let failed = rows.iter().find(|row| row["id"] == "photos/broken.png").unwrap();
    assert!(failed["error"].contains("not a picture") && failed["rle"] == "null");
    let everything = ["everything", "photos/a.png", "--model", MODEL, "--json"];
    let masks = folder.cutout(&[&everything[..], &ALL].concat()).json();
    for (row, mask) in rows.iter().zip(masks.as_array().unwrap()) {
        assert_eq!(row["area"], mask["area"].to_string());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(row["rle"], format!("{:?}", text(&mask["segmentation"]["counts"]).as_bytes()));
        assert_eq!((&*row["width"], &*row["height"], &*row["error"]), ("50", "31", "null"));
    }
}

#[test]
pub(crate) fn outlines_are_written_as_wkb() {
    let folder = folder_with_model();
    let found = |output: &str, more: &[&str]| {
        batch(&folder, &["picture.png"], &[&["--output", output], more].concat()).succeeds();
        rows(&folder, output)
    };
    let (exact, rough) =
        (found("exact", &["--polygons", "0"]), found("rough", &["--polygons", "3"]));
    assert_eq!(exact.len(), MASKS);
    for (row, rough) in exact.iter().zip(&rough) {
        let bytes: Vec<u8> = serde_json::from_str(&row["rle"]).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let mask = Rle::from_coco_string(Size::new(50, 31), &text).unwrap().to_mask().unwrap();
        let outlines = polygons(&mask).unwrap();
        assert_eq!(row["polygon"], format!("{:?}", to_wkb(&outlines)));
        assert_eq!(rough["polygon"], format!("{:?}", to_wkb(&simplify(&outlines, 3.0))));
        assert_ne!(row["options_hash"], rough["options_hash"]);
    }
    assert!(found("without", &[]).iter().all(|row| row["polygon"] == "null"));
    batch(&folder, &["picture.png"], &["--output", "x", "--polygons", "-1"])
        .wrong_usage(&["a number of pixels"]);
}

#[test]
pub(crate) fn options_are_those_of_everything() {
    let folder = folder_with_model();
    let count = |more: &[&str]| -> usize {
        let _ = std::fs::remove_dir_all(folder.path("out"));
        let given: Vec<&str> = ALL
            .chunks_exact(2)
            .filter(|pair| !more.contains(&pair[0]))
            .flatten()
            .copied()
            .collect();
        let always = ["batch", "picture.png", "-m", MODEL, "-o", "out"];
        folder.cutout(&[&always[..], &given, more].concat()).succeeds();
        instances(&rows(&folder, "out")).into_values().sum()
    };
    assert_eq!(count(&[]), MASKS);
    assert_eq!(count(&["--points-per-side", "1"]), 3);
    assert!(count(&["--pred-iou-thresh", "0.3"]) < MASKS);
    assert_eq!(count(&["--stability-score-thresh", "0.95"]), 0);
    let closer = ["--stability-score-thresh", "0.95", "--stability-score-offset", "0.00001"];
    assert!(count(&closer) > 0);
    assert!(count(&["--box-nms-thresh", "0.1"]) < MASKS);
    let layers = ["--crop-n-layers", "1", "--crop-nms-thresh", "1"];
    let cropped = count(&layers);
    assert!(cropped > MASKS);
    assert!(count(&["--crop-n-layers", "1", "--crop-nms-thresh", "0.1"]) < cropped);
    let fewer = [&layers[..], &["--crop-n-points-downscale-factor", "2"]].concat();
    assert!(count(&fewer) < cropped);
    let rle = |more: &[&str]| {
        count(more);
        rows(&folder, "out").into_iter().map(|row| row["rle"].clone()).collect::<Vec<_>>()
    };
    assert_ne!(rle(&["--min-mask-region-area", "200"]), rle(&[]));
    assert_ne!(rle(&["--use-m2m"]), rle(&[]));
    let apart = [&layers[..], &["--crop-overlap-ratio", "0"]].concat();
    assert_ne!(rle(&apart), rle(&layers));
    assert_ne!(rle(&["--precision", "int8"]), rle(&[]));
    folder.write("int8.toml", "precision = \"int8\"\n");
    assert_eq!(rle(&["--profile", "int8.toml"]), rle(&["--precision", "int8"]));
    let refused = |more: &[&str]| {
        let _ = std::fs::remove_dir_all(folder.path("out"));
        batch(&folder, &["picture.png"], &[&["-o", "out"], more].concat())
    };
    refused(&["--points-per-batch", "0"]).wrong_usage(&["points_per_batch"]);
    refused(&["--threads", "0"]).wrong_usage(&["--threads"]);
    refused(&["--vram-limit", "0"]).wrong_usage(&["--vram-limit"]);
    refused(&["--device", "cuda:1"]).fails(&["cuda:1"]);
}

#[test]
pub(crate) fn shards_join_to_the_whole() {
    let folder = folder_with_pictures();
    batch(&folder, &["photos"], &["-o", "whole"]).succeeds();
    for shard in ["0/3", "1/3"] {
        batch(&folder, &["photos"], &["-o", "shared", "--shard", shard]).succeeds();
    }
    let auto = ["batch", "photos", "-m", MODEL, "-o", "shared", "--shard", "auto/3"];
    let mut last = folder.command(&[&auto[..], &ALL].concat());
    let last = last.env("JOB_COMPLETION_INDEX", "2").output().unwrap();
    Ended::of(last).succeeds();
    let sorted = |output: &str| {
        let mut rows = rows(&folder, output);
        rows.iter_mut().for_each(|row| drop(row.remove("shard")));
        rows.sort();
        rows
    };
    assert_eq!(sorted("shared"), sorted("whole"));
    assert!(parts(&folder, "shared").len() > 1);
    let mut slurm = folder.command(&["batch", "photos", "-m", MODEL, "-o", "s", "--shard", "auto"]);
    let slurm = slurm.env("SLURM_ARRAY_TASK_ID", "5").env("SLURM_ARRAY_TASK_MIN", "4");
    Ended::of(slurm.env("SLURM_ARRAY_TASK_COUNT", "3").output().unwrap()).succeeds();
    assert!(parts(&folder, "s").iter().all(|name| name.starts_with("part-00001-of-00003")));
    // Beside the shares of three, the share of all would be read twice.
    batch(&folder, &["photos"], &["-o", "shared"]).fails(&["of-00003", "another folder"]);
    for (shard, word) in
        [("3/3", "0 to N - 1"), ("auto", "SLURM_ARRAY_TASK_COUNT"), ("auto/x", "number")]
    {
        batch(&folder, &["photos"], &["-o", "x", "--shard", shard]).wrong_usage(&[word]);
    }
}

#[test]
pub(crate) fn runs_go_on_with_the_same_bytes() {
    let folder = folder_with_pictures();
    let each = ["-o", "out", "--pictures-per-part", "1"];
    batch(&folder, &["photos"], &each).succeeds();
    let read = |folder: &Folder| -> Vec<Vec<u8>> {
        parts(folder, "out").iter().map(|name| folder.read(&format!("out/{name}"))).collect()
    };
    let whole = read(&folder);
    assert_eq!(whole.len(), 4);
    batch(&folder, &["photos"], &each).fails(&["part-00000-of-00001-000000", "resum"]);
    // What a killed process leaves: a part without its mark, one that is cut, one that is not there.
    std::fs::remove_file(folder.path("out/_part-00000-of-00001-000001.done")).unwrap();
    folder.write("out/part-00000-of-00001-000002.parquet", &whole[2][..whole[2].len() / 2]);
    std::fs::remove_file(folder.path("out/part-00000-of-00001-000003.parquet")).unwrap();
    let again = batch(&folder, &["photos"], &[&each[..], &["--resume"]].concat());
    assert!(again.stderr.contains("1 done before"), "{}", again.stderr);
    again.succeeds();
    assert_eq!(read(&folder), whole);
    // Other options are another run.
    let other = [&each[..], &["--resume", "--use-m2m"]].concat();
    batch(&folder, &["photos"], &other).fails(&["another folder"]);
    assert_eq!(read(&folder), whole);
}

/// Writes a table with ids, paths, bytes and boxes.
fn write_table(folder: &Folder, name: &str) {
    let schema = "message m { required binary key (UTF8); required binary place (UTF8); required binary data;
        required group rects (LIST) { repeated group list { required group element (LIST) {
        repeated group list { required float element; } } } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = File::create(folder.path(name)).unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut table = SerializedFileWriter::new(file, schema, properties).unwrap();
    let mut group = table.next_row_group().unwrap();
    let texts = |values: [&[u8]; 2]| values.map(|value| ByteArray::from(value.to_vec()));
    let (first, second) = (folder.read("photos/a.png"), folder.read("photos/c.png"));
    for column in [
        texts([b"first", b"second"]),
        texts([b"photos/a.png", b"photos/c.png"]),
        texts([&first, &second]),
    ] {
        let mut writer = group.next_column().unwrap().unwrap();
        writer.typed::<ByteArrayType>().write_batch(&column, None, None).unwrap();
        writer.close().unwrap();
    }
    let mut writer = group.next_column().unwrap().unwrap();
    let values = [1.0, 2.0, 20.0, 21.0, 5.0, 5.0, 45.0, 30.0];
    // Two boxes for the first row, none for the second.
    let (definition, repetition) = ([2, 2, 2, 2, 2, 2, 2, 2, 0], [0, 2, 2, 2, 1, 2, 2, 2, 0]);
    writer.typed::<FloatType>().write_batch(&values, Some(&definition), Some(&repetition)).unwrap();
    writer.close().unwrap();
    group.close().unwrap();
    table.close().unwrap();
}

#[test]
pub(crate) fn tables_archives_lists_and_patterns() {
    let folder = folder_with_pictures();
    write_table(&folder, "boxes.parquet");
    let names = ["--id-column", "key", "--picture-column", "place"];
    let boxes = [&names[..], &["--boxes-column", "rects", "-o", "boxes"]].concat();
    batch(&folder, &["boxes.parquet"], &boxes).succeeds();
    let found = rows(&folder, "boxes");
    assert_eq!(
        instances(&found),
        BTreeMap::from([("first".to_owned(), 2), ("second".to_owned(), 0)])
    );
    let run = ["segment", "photos/a.png", "-m", MODEL, "--box", "5,5,45,30", "--json"];
    let mask = folder.cutout(&run).json();
    assert!(mask.to_string().contains(&format!("\"area\":{}", found[1]["area"])), "{mask}");
    // The same pictures as bytes have the same masks.
    let bytes = ["--id-column", "key", "--picture-column", "data", "-o", "bytes"];
    batch(&folder, &["boxes.parquet"], &bytes).succeeds();
    batch(&folder, &["boxes.parquet"], &[&names[..], &["-o", "paths"]].concat()).succeeds();
    assert_eq!(rows(&folder, "bytes"), rows(&folder, "paths"));

    let mut tar = tar::Builder::new(File::create(folder.path("shard.tar")).unwrap());
    tar.append_path_with_name(folder.path("photos/a.png"), "x/0001.png").unwrap();
    tar.append_path_with_name(folder.path("photos/notes.md"), "x/0001.txt").unwrap();
    tar.finish().unwrap();
    folder.write("list.txt", "photos/c.png\n\nphotos/inner/b.png\n");
    let inputs = ["shard.tar", "list.txt", "photos/[ab]*.png"];
    batch(&folder, &inputs, &["-o", "many", "--max-errors", "1"]).succeeds();
    let ids: Vec<String> = instances(&rows(&folder, "many")).into_keys().collect();
    assert_eq!(
        ids,
        [
            "photos/a.png",
            "photos/broken.png",
            "photos/c.png",
            "photos/inner/b.png",
            "shard.tar/x/0001.png"
        ]
    );
    let area = |output: &str, id: &str| -> Vec<String> {
        let rows = rows(&folder, output).into_iter();
        rows.filter(|row| row["id"] == id).map(|row| row["area"].clone()).collect()
    };
    assert_eq!(area("many", "shard.tar/x/0001.png"), area("many", "photos/a.png"));
}

#[test]
pub(crate) fn phrases_find_objects() {
    let folder = folder_with_sam3();
    let find = |more: &[&str]| {
        let _ = std::fs::remove_dir_all(folder.path("out"));
        let always = ["batch", "picture.png", "-m", SAM3, "-o", "out"];
        folder.cutout(&[&always[..], more].concat()).succeeds();
        rows(&folder, "out")
    };
    let all = find(&["--text", "dog", "--threshold", "0"]);
    assert!(
        all.len() > 1 && all.iter().all(|row| row["phrase"] == "dog" && row["presence"] != "null")
    );
    let few = find(&["--text", "dog"]);
    assert!(instances(&few)["picture.png"] < all.len());
}

#[test]
pub(crate) fn wrong_inputs_and_too_many_errors() {
    let folder = folder_with_pictures();
    batch(&folder, &["photos"], &["-o", "out", "--max-errors", "0"])
        .fails(&["broken.png", "1 pictures failed"]);
    folder.write("list.txt", "gone.png");
    let gone = batch(&folder, &["list.txt"], &["-o", "out-list", "--max-errors", "0"]);
    assert!(!gone.stderr.contains("os error"), "{}", gone.stderr);
    gone.fails(&["warning: gone.png: cannot read", "last: gone.png: cannot read"]);
    batch(&folder, &["photos"], &["-o", "x", "--boxes-column", "boxes"])
        .fails(&["photos", ".parquet"]);
    batch(&folder, &["absent"], &["-o", "x"]).fails(&["absent"]);
    batch(&folder, &["*.nothing"], &["-o", "x"]).fails(&["*.nothing", "no pictures"]);
    batch(&folder, &["photos", "photos/a.png"], &["-o", "x"]).fails(&["photos/a.png", "twice"]);
    batch(&folder, &["photos"], &["-o", "photos"]).wrong_usage(&["photos", "is an input"]);
    write_table(&folder, "table.parquet");
    batch(&folder, &["table.parquet"], &["-o", "x"])
        .fails(&["table.parquet", "key, place, data, rects"]);
    let missing = ["-o", "x", "--picture-column", "place", "--boxes-column", "boxes"];
    batch(&folder, &["table.parquet"], &missing).fails(&["\"boxes\""]);
    folder.write("bad.parquet", "PAR1 and nothing");
    batch(&folder, &["bad.parquet"], &["-o", "x"]).fails(&["bad.parquet"]);
    folder.write("bad.tar", [b'x'; 700]);
    batch(&folder, &["bad.tar"], &["-o", "x"]).fails(&["bad.tar"]);
    batch(&folder, &["photos"], &["-o", "x", "--text", "dog"]).fails(&["SAM 3"]);
    batch(&folder, &["photos"], &["-o", "x", "--threshold", "0.5"]).wrong_usage(&["--text"]);
    assert!(!folder.has("x"), "nothing was begun");
    let empty = self::folder();
    std::fs::create_dir(empty.path("nothing")).unwrap();
    empty.cutout(&["batch", "nothing", "-o", "x"]).fails(&["nothing", "no pictures"]);
}

#[test]
fn several_devices_write_the_parts_of_one() {
    let folder = folder_with_pictures();
    let read = |output: &str| -> Vec<Vec<u8>> {
        parts(&folder, output).iter().map(|name| folder.read(&format!("{output}/{name}"))).collect()
    };
    let run = |output: &str, more: &[&str]| {
        let each = ["-o", output, "--pictures-per-part", "1"];
        let ended = batch(&folder, &["photos"], &[&each[..], more].concat());
        assert!(ended.stderr.contains("37 rows of 4 pictures"), "{}", ended.stderr);
        ended.succeeds();
        read(output)
    };
    let one = run("one", &["--device", "cpu"]);
    assert!(run("two", &["--device", "cpux2"]) == one);
    assert!(run("five", &["--device", "cpux5"]) == one);
    std::fs::remove_file(folder.path("five/_part-00000-of-00001-000001.done")).unwrap();
    assert!(run("five", &["--device", "cpux3", "--resume"]) == one);
    batch(&folder, &["photos"], &["-o", "x", "--device", "cuda:4711,1"]).fails(&["cuda:4711"]);
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_of_several_devices_goes_on() {
    use crate::interrupted::{interrupt, wait_until};
    let folder = folder_with_model();
    for number in 0..40 {
        folder.picture(&format!("photos/{number:02}.png"), Size::new(50, 31));
    }
    let options = ["--pictures-per-part", "1", "--points-per-side", "8", "--pred-iou-thresh", "0"];
    let run = |more: &[&str]| {
        let always = ["batch", "photos", "--model", MODEL];
        folder.command(&[&always[..], &options, more].concat())
    };
    let mut command = run(&["-o", "out", "--device", "cpux3"]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("a part", || folder.has("out") && !parts(&folder, "out").is_empty());
    let ended = interrupt(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let done = parts(&folder, "out").len();
    assert!((1..40).contains(&done), "{done}");
    let ended = Ended::of(run(&["-o", "out", "--device", "cpux2", "--resume"]).output().unwrap());
    assert!(!ended.stderr.contains("(0 done before"), "{}", ended.stderr);
    ended.succeeds();
    Ended::of(run(&["-o", "plain"]).output().unwrap()).succeeds();
    assert_eq!(parts(&folder, "out").len(), 40);
    for name in parts(&folder, "plain") {
        assert!(folder.read(&format!("out/{name}")) == folder.read(&format!("plain/{name}")));
    }
}
