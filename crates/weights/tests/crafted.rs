//! Hand-made files, valid and invalid, and the errors they give.

use std::sync::Arc;

use crate::support::torch_file::{Pickle, Zip, dict, torch_file, zip};
use cutout_tensor::SharedBytes;
use cutout_weights::{Checkpoint, Problem, WeightsError, limits};

fn open(bytes: Vec<u8>) -> Result<Checkpoint, WeightsError> {
    Checkpoint::from_bytes("made.pt", Arc::new(bytes) as SharedBytes)
}

fn problem(bytes: Vec<u8>) -> Problem {
    match open(bytes).map(drop) {
        Err(WeightsError::Malformed { problem, .. }) => problem,
        other => panic!("expected a malformed file, got {other:?}"),
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn counting(elements: usize) -> Vec<u8> {
    floats(&(0..elements).map(|i| i as f32).collect::<Vec<_>>())
}

/// A file with one tensor `w` of a storage of six elements.
fn one_tensor(offset: i64, shape: &[i64], strides: &[i64], how: Zip) -> Vec<u8> {
    let pickle = dict(|pickle| {
        pickle.text("w").tensor(|p| p.storage("FloatStorage", "0", 6), offset, shape, strides)
    });
    torch_file(&pickle, &[("0", &counting(6))], how)
}

#[test]
fn stored_deflated_and_zip64_archives_are_read() {
    for how in [Zip::Stored, Zip::Deflated, Zip::Wide] {
        let checkpoint = open(one_tensor(1, &[2, 2], &[1, 2], how)).unwrap();
        let tensor = checkpoint.tensor("w").unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    }
}

#[test]
fn views_beyond_their_storage_are_errors() {
    let huge = i64::MAX;
    for (offset, shape, strides) in [
        (0, &[7][..], &[1][..]),
        (6, &[1], &[1]),
        (1, &[2, 3], &[3, 1]),
        (0, &[2], &[6]),
        (huge, &[1], &[1]),
        (0, &[huge, huge], &[huge, huge]),
        (0, &[2, 2], &[huge, huge]),
    ] {
        let found = problem(one_tensor(offset, shape, strides, Zip::Stored));
        assert!(found.to_string().starts_with("w: expected a view inside"), "{found}");
    }
    for (offset, shape, strides) in [(-1, &[1][..], &[1][..]), (0, &[-1], &[1]), (0, &[1, 1], &[1])]
    {
        problem(one_tensor(offset, shape, strides, Zip::Stored));
    }
    // An empty tensor reads nothing, so its offset does not matter.
    let empty = open(one_tensor(0, &[0, huge], &[1, 1], Zip::Stored)).unwrap();
    assert_eq!(empty.tensor("w").unwrap().elements(), 0);
}

#[test]
fn a_stride_of_zero_cannot_make_a_huge_copy() {
    let checkpoint = open(one_tensor(0, &[1 << 40], &[0], Zip::Stored)).unwrap();
    let message = checkpoint.tensor("w").unwrap_err().to_string();
    assert!(message.contains("repeated view"), "{message}");
}

#[test]
fn a_storage_must_match_the_size_of_its_entry() {
    let tensor = |p: Pickle| p.tensor(|p| p.storage("FloatStorage", "0", 6), 0, &[6], &[1]);
    let pickle = dict(|pickle| tensor(pickle.text("w")));
    let short = torch_file(&pickle, &[("0", &counting(5))], Zip::Stored);
    assert!(problem(short).to_string().contains("20 bytes"));
    let absent = torch_file(&pickle, &[("1", &counting(6))], Zip::Stored);
    assert!(problem(absent).to_string().contains("m/data/0"));
}

#[test]
fn storage_keys_cannot_name_files_outside_the_archive() {
    for key in ["../../../etc/passwd", "/etc/passwd", ""] {
        let pickle = dict(|pickle| {
            pickle.text("w").tensor(|p| p.storage("FloatStorage", key, 1), 0, &[1], &[1])
        });
        let found = problem(torch_file(&pickle, &[("0", &counting(1))], Zip::Stored));
        assert!(found.to_string().contains("found none"), "{found}");
    }
}

#[test]
fn every_opcode_rejects_names_outside_the_allow_list() {
    let stack_global = |module: &str, name: &str| {
        Pickle::new().text(module).text(name).raw(b"\x93").text("x").raw(b"\x85R").finish()
    };
    let global = Pickle::new().global("os", "system").text("x").raw(b"\x85R").finish();
    for (pickle, name) in [
        (global, "os.system"),
        (stack_global("builtins", "eval"), "builtins.eval"),
        (stack_global("torch.storage", "_load_from_bytes"), "torch.storage._load_from_bytes"),
        (Pickle::new().global("ultralytics.nn.tasks", "SAM").finish(), "ultralytics.nn.tasks.SAM"),
    ] {
        let found = problem(torch_file(&pickle, &[], Zip::Stored));
        assert_eq!(found, Problem::Callable(name.into()));
    }
}

#[test]
fn errors_name_opcodes_outside_the_allow_list() {
    for (code, name) in [(b'i', "INST"), (b'o', "OBJ"), (0x82, "EXT1"), (b'P', "PERSID")] {
        let pickle = Pickle::new().raw(&[code, b'o', b's', b'\n', b's', b'\n']).finish();
        let found = problem(torch_file(&pickle, &[], Zip::Stored));
        assert_eq!(found, Problem::Instruction { code, name, position: 2 });
    }
}

#[test]
fn malformed_pickles_are_errors() {
    for pickle in [
        &b""[..],
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02}",
        b"\x80\x02t.",
        b"\x80\x02(((.",
        b"\x80\x02N(.",
        b"\x80\x02}NN(st.",
        b"\x80\x02Nu.",
        b"\x80\x02}(Nu.",
        b"\x80\x02NNs.",
        b"\x80\x02h\x05.",
        b"\x80\x02(}u.",
        b"\x80\x02NR.",
        b"\x80\x02NQ.",
        b"\x80\x02X\xff\xff\xff\xff.",
        b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02ctorch._utils\n_rebuild_parameter\n)R.",
        b"\x80\x02ctorch\nSize\n)R.",
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        b"\x80\x02ctorch",
    ] {
        problem(torch_file(pickle, &[], Zip::Stored));
    }
}

#[test]
fn recursive_structures_hit_a_limit() {
    // d = {}; d["model"] = d
    let circle = Pickle::new().raw(b"}q\0").text("model").raw(b"h\0s").finish();
    assert!(matches!(
        problem(torch_file(&circle, &[], Zip::Stored)),
        Problem::Limit { what: "dicts inside dicts", .. }
    ));
    // A dict with ten references to a dict with ten references to a dict …
    let mut laughs = Pickle::new().raw(b"}");
    for level in 0u8..12 {
        laughs = laughs.raw(&[b'q', level]).raw(b"}(");
        for _ in 0..10 {
            laughs = laughs.text("x").raw(&[b'h', level]);
        }
        laughs = laughs.raw(b"u");
    }
    let found = problem(torch_file(&laughs.finish(), &[], Zip::Stored));
    assert!(matches!(found, Problem::Limit { .. }), "{found}");
}

#[test]
fn the_pickle_stack_and_its_marks_are_limited() {
    let stack = vec![b'N'; limits::MAX_PICKLE_STACK + 1];
    let marks = vec![b'('; limits::MAX_PICKLE_MARKS + 1];
    for (pickle, what) in
        [(stack, "values on the pickle stack"), (marks, "marks on the pickle stack")]
    {
        let found = problem(torch_file(&pickle, &[], Zip::Deflated));
        assert!(matches!(found, Problem::Limit { what: limit, .. } if limit == what), "{found}");
    }
}

#[test]
fn wrappers_are_found_in_any_order_and_nested_dicts_are_joined() {
    let tensor = |p: Pickle| p.tensor(|p| p.storage("FloatStorage", "0", 1), 0, &[], &[]);
    let pickle = dict(|p| {
        let p = p.text("epoch").int(3).text("optimizer").raw(b"}(").int(0);
        let p = tensor(p).raw(b"u").text("model").raw(b"}(").text("a").raw(b"}(");
        tensor(tensor(p.text("b")).raw(b"u").text("c")).raw(b"u")
    });
    let checkpoint = open(torch_file(&pickle, &[("0", &counting(1))], Zip::Stored)).unwrap();
    let names: Vec<&str> = checkpoint.tensors().iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["a.b", "c"]);
}

#[test]
fn duplicate_names_are_errors() {
    let tensor = |p: Pickle| p.tensor(|p| p.storage("FloatStorage", "0", 1), 0, &[], &[]);
    let pickle = dict(|p| tensor(tensor(p.text("w")).text("w")));
    let found = problem(torch_file(&pickle, &[("0", &counting(1))], Zip::Stored));
    assert_eq!(found, Problem::Duplicate("w".into()));
}

#[test]
fn errors_of_other_zip_archives_say_what_is_missing() {
    let document = zip(&[("word/document.xml", b"<xml/>")], Zip::Stored);
    assert!(problem(document).to_string().contains("data.pkl"));
    let empty = dict(|p| p.text("epoch").int(1));
    assert_eq!(problem(torch_file(&empty, &[], Zip::Stored)), Problem::NoTensors);
    let big = zip(&[("m/data.pkl", &empty), ("m/byteorder", b"big")], Zip::Stored);
    assert!(problem(big).to_string().contains("big-endian"));
    let twice = zip(&[("a/data.pkl", &empty), ("b/data.pkl", &empty)], Zip::Stored);
    assert_eq!(problem(twice), Problem::Duplicate("data.pkl".into()));
}

#[test]
fn a_truncated_archive_gives_a_truncation_error() {
    let whole = one_tensor(0, &[6], &[1], Zip::Stored);
    for length in [4, 100, whole.len() / 2, whole.len() - 1] {
        let found = problem(whole[..length].to_vec());
        assert!(matches!(found, Problem::Truncated { .. }), "{length}: {found}");
    }
}

#[test]
fn overlapping_entries_are_errors() {
    let good = zip(&[("a", b"12345678"), ("b", b"12345678")], Zip::Stored);
    // The last directory entry holds the offset of its local header in the four bytes before its name.
    let end = good.len() - 22;
    let field = end - "b".len() - 4..end - "b".len();
    assert_eq!(good[field.clone()], 39u32.to_le_bytes());
    for place in [0u32, 38, 60, u32::MAX - 1] {
        let mut file = good.clone();
        file[field.clone()].copy_from_slice(&place.to_le_bytes());
        let found = problem(file);
        assert!(matches!(found, Problem::Overlap { .. }), "{place}: {found}");
    }
}

#[test]
fn a_local_header_must_match_the_directory() {
    let mut file = one_tensor(0, &[6], &[1], Zip::Stored);
    let at = file.windows(8).position(|bytes| bytes == b"m/data/0").unwrap();
    file[at + 7] = b'1';
    let checkpoint = open(file).unwrap();
    let message = checkpoint.tensor("w").unwrap_err().to_string();
    assert!(message.contains("expected m/data/0, found m/data/1"), "{message}");
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[test]
fn safetensors_headers_are_checked() {
    let good = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert!(open(safetensors(good, &[0; 8])).is_ok());
    let two = |second: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},"b":{second}}}"#)
    };
    for (header, data, word) in [
        (good.to_owned(), 7, "cut short: the data of all tensors needs 8 bytes, 7 are left"),
        (good.to_owned(), 9, "length of the data"),
        (good.replace("[2]", "[3]"), 8, "12 bytes for f32[3]"),
        (good.replace("[2]", "[18446744073709551615,2]"), 8, "more elements"),
        (good.replace("[2]", "[-1]"), 8, "JSON"),
        (good.replace("[0,8]", "[8,0]"), 8, "8..0"),
        (good.replace("[2]", &format!("[{}2]", "1,".repeat(20))), 8, "axes"),
        (two(r#"{"dtype":"F32","shape":[2],"data_offsets":[4,12]}"#), 12, "overlap"),
        (two(r#"{"dtype":"F32","shape":[2],"data_offsets":[12,20]}"#), 20, "start of b"),
        (two(r#"{"dtype":"F32","shape":[0],"data_offsets":[8,8]},"a":[]"#), 8, "JSON"),
        (good.replace(r#""dtype":"F32","#, ""), 8, "dtype"),
        (good.replace("}}", "}} x"), 8, "JSON"),
        ("{".repeat(100_000), 0, "JSON"),
    ] {
        let found = problem(safetensors(&header, &vec![0; data])).to_string();
        assert!(found.contains(word), "{header:.100}: {found}");
    }
    let twice =
        two(r#"{"dtype":"F32","shape":[1],"data_offsets":[8,12]}"#).replace("\"b\"", "\"a\"");
    assert_eq!(problem(safetensors(&twice, &[0; 12])), Problem::Duplicate("a".into()));
    let mut long = safetensors(good, &[0; 8]);
    long[..8].copy_from_slice(&(limits::MAX_HEADER_BYTES + 1).to_le_bytes());
    assert!(matches!(problem(long), Problem::Limit { .. }));
}

#[test]
fn tensors_of_unknown_element_types_are_listed() {
    let header =
        r#"{"a":{"dtype":"F4","shape":[5],"data_offsets":[0,3]},"__metadata__":{"k":"v"}}"#;
    let checkpoint = open(safetensors(header, &[0; 3])).unwrap();
    assert_eq!(checkpoint.info("a").unwrap().bytes, 3);
    assert!(checkpoint.tensor("a").unwrap_err().to_string().contains("F4"));
    assert_eq!(checkpoint.metadata()["k"].as_text(), Some("v"));
}

/// A GGUF file with one tensor described by these fields and eight bytes of data.
fn gguf(version: u32, shape: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(version.to_le_bytes());
    file.extend([1u64, 0, 1].iter().flat_map(|field| field.to_le_bytes()));
    file.push(b'w');
    file.extend((shape.len() as u32).to_le_bytes());
    file.extend(shape.iter().flat_map(|axis| axis.to_le_bytes()));
    file.extend(kind.to_le_bytes());
    file.extend(offset.to_le_bytes());
    file.resize(file.len().next_multiple_of(32) + 8, 0);
    file
}

#[test]
fn gguf_headers_are_checked() {
    assert!(open(gguf(2, &[2], 0, 0)).is_ok());
    assert!(open(gguf(3, &[2], 0, 0)).is_ok());
    for (file, word) in [
        (gguf(1, &[2], 0, 0), "2 or 3"),
        (gguf(3u32.swap_bytes(), &[2], 0, 0), "big-endian"),
        (gguf(3, &[3], 0, 0), "w needs 12 bytes, 8 are left"),
        (gguf(3, &[u64::MAX], 0, 0), "memory can hold"),
        (gguf(3, &[1 << 40, 1 << 40], 0, 0), "more elements"),
        (gguf(3, &[1; 5], 0, 0), "number of axes"),
        (gguf(3, &[2], 0, 1), "multiple of 32"),
        (gguf(3, &[2], 0, u64::MAX - 31), "cut short"),
        (gguf(3, &[2], 8, 0), "multiple of 32 for q8_0"),
    ] {
        let found = problem(file).to_string();
        assert!(found.contains(word), "{word}: {found}");
    }
    let mut many = gguf(3, &[2], 0, 0);
    many[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(problem(many), Problem::Limit { what: "number of tensors", .. }));
    let unknown = open(gguf(3, &[2], 99, 0)).unwrap();
    assert!(unknown.tensor("w").unwrap_err().to_string().contains("ggml type 99"));
}
