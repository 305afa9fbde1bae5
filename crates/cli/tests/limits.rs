//! Wrong answers are errors, sizes are bounded, and all commands say the same about a file.

use cutout_imaging::{Mask, MaskDepth, Size, encode_mask};
use cutout_tensor::{DType, Tensor};
use cutout_weights::{Checkpoint, Metadata, Outgoing, write_safetensors};
use half::f16;

use crate::support::{Ended, Folder, MODEL, folder, folder_with_model, model_tensors};

/// Writes the small model with one number of one tensor replaced, in an element type.
fn spoiled(folder: &Folder, file: &str, tensor: &str, number: f32, dtype: DType) {
    let mut tensors = model_tensors();
    for (name, values) in &mut tensors {
        let mut numbers = values.to_vec::<f32>().unwrap();
        if name == tensor {
            let last = numbers.len() - 1;
            numbers[last] = number;
        }
        let changed = Tensor::from_vec(values.shape().clone(), numbers).unwrap();
        *values = changed.cast(dtype).unwrap();
    }
    folder.checkpoint(file, tensors);
}

/// A weight of each kind: packed, depthwise or convolved, read as it is, folded into a constant, gathered.
const WEIGHTS: [&str; 6] = [
    "image_encoder.patch_embed.proj.weight",
    "image_encoder.blocks.0.attn.qkv.weight",
    "image_encoder.blocks.1.norm1.bias",
    "image_encoder.pos_embed",
    "mask_decoder.mask_tokens.weight",
    "prompt_encoder.point_embeddings.1.weight",
];

#[test]
fn weights_that_are_not_finite() {
    let folder = folder_with_model();
    for (index, tensor) in WEIGHTS.into_iter().enumerate() {
        let number = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][index % 3];
        let dtype = [DType::F32, DType::F16, DType::BF16][index % 3];
        spoiled(&folder, "bad.safetensors", tensor, number, dtype);
        let run = ["segment", "picture.png", "-m", "bad.safetensors", "-p", "3,3", "--json"];
        let named = format!("bad.safetensors: tensor {tensor}: element ");
        let ended = folder.cutout(&run);
        assert_eq!(ended.stdout, "", "{tensor}");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        ended.fails(&[&named, "must be finite"]);
        folder.cutout(&["everything", "picture.png", "-m", "bad.safetensors"]).fails(&[&named]);
    }
    let tensor = "image_encoder.blocks.0.mlp.lin1.weight";
    spoiled(&folder, "bad.safetensors", tensor, f32::NAN, DType::F32);
    let run =
        ["segment", "picture.png", "-m", "bad.safetensors", "-p", "3,3", "--precision", "int8"];
    folder.cutout(&run).fails(&["bad.safetensors", tensor, "must be finite"]);
    assert!(!folder.has("picture.mask.png") && !folder.has("picture.masks.json"));
}

#[test]
fn finite_weights_that_overflow() {
    let folder = folder_with_model();
    let tensor = "mask_decoder.iou_prediction_head.layers.2.bias";
    spoiled(&folder, "vast.safetensors", tensor, f32::MAX, DType::F32);
    let run = ["segment", "picture.png", "-m", "vast.safetensors", "-p", "3,3", "--json"];
    let document = folder.cutout(&run).json();
    assert!(document["annotations"][0]["predicted_iou"].is_number(), "{document}");
    let tensor = "image_encoder.neck.1.weight";
    spoiled(&folder, "vast.safetensors", tensor, f32::MAX, DType::F32);
    folder.cutout(&run).fails(&["out of range"]);
}

/// A NumPy file of a square array.
fn npy(descr: &str, side: usize, elements: &[u8]) -> Vec<u8> {
    let header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({side}, {side}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), elements].concat()
}

#[test]
fn mask_inputs_of_every_precision() {
    let folder = folder_with_model();
    folder.segment(&["--raw", "first.safetensors"]).succeeds();
    let file = Checkpoint::open(folder.path("first.safetensors")).unwrap();
    let side = file.tensor("low_res_logits").unwrap().shape()[2];
    // Multiples of 1/4 are the same numbers in every precision.
    let numbers = (0..side * side).map(|i| (i % 37) as f32 / 4.0 - 4.0).collect();
    let logits = Tensor::from_vec([side, side], numbers).unwrap();
    let halves = logits.cast(DType::F16).unwrap().to_vec::<f16>().unwrap();
    let halves: Vec<u8> = halves.into_iter().flat_map(f16::to_le_bytes).collect();
    let singles: Vec<u8> =
        logits.to_vec::<f32>().unwrap().into_iter().flat_map(f32::to_le_bytes).collect();
    let doubles =
        |numbers: Vec<f64>| -> Vec<u8> { numbers.into_iter().flat_map(f64::to_le_bytes).collect() };
    folder.write("f2.npy", npy("<f2", side, &halves));
    folder.write("f4.npy", npy("<f4", side, &singles));
    folder.write("f8.npy", npy("<f8", side, &doubles(logits.to_f64_vec().unwrap())));
    let answer = |name: &str| folder.segment(&["--mask-input", name, "--json"]).json();
    let expected = answer("f4.npy");
    assert_ne!(expected["annotations"], folder.segment(&["--json"]).json()["annotations"]);
    for name in ["f2.npy", "f8.npy"] {
        assert_eq!(answer(name)["annotations"], expected["annotations"], "{name}");
    }
    let vast = doubles([vec![0f64; side * side - 1], vec![1e300]].concat());
    folder.write("vast.npy", npy("<f8", side, &vast));
    let words = ["vast.npy: not logits of a mask", "1e300, beyond the range of f32"];
    folder.segment(&["--mask-input", "vast.npy"]).fails(&words);
    folder.write("whole.npy", npy("<i8", side, &vast));
    folder.segment(&["--mask-input", "whole.npy"]).fails(&["whole.npy", "float16, float32 or"]);
}

#[test]
fn more_points_than_a_prompt_may_have() {
    let folder = folder_with_model();
    let run = |flag: &str, value: &str, count: usize| {
        let flags: Vec<&str> = [flag, value].repeat(count);
        folder.cutout(&[&["segment", "picture.png", "-m", MODEL], &flags[..]].concat())
    };
    run("-p", "20,11", 1025).fails(&["1025 points or boxes in one prompt; at most 1024"]);
    assert!(!folder.has("picture.mask.png"));
    run("-p", "20,11", 1024).succeeds();
}

#[test]
fn mask_inputs_that_are_not_finite() {
    let folder = folder_with_model();
    folder.segment(&["--raw", "first.safetensors"]).succeeds();
    let file = Checkpoint::open(folder.path("first.safetensors")).unwrap();
    let logits = file.tensor("low_res_logits").unwrap();
    let mut values = logits.to_vec::<f32>().unwrap();
    values[77] = f32::NAN;
    let spoiled = Tensor::from_vec(logits.shape().clone(), values.clone()).unwrap();
    folder.checkpoint(
        "bad.safetensors",
        vec![
            ("low_res_logits".to_owned(), spoiled),
            ("iou".to_owned(), file.tensor("iou").unwrap()),
        ],
    );
    values[77] = f32::INFINITY;
    let side = logits.shape()[2];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    folder.write("bad.npy", npy("<f4", side, &bytes));
    let words = ["not logits of a mask", "element 77", "not a finite number"];
    for (name, value) in [("bad.safetensors", "NaN"), ("bad.npy", "inf")] {
        let ended = folder.segment(&["--mask-input", name, "--json"]);
        ended.fails(&[&words[..], &[name, value]].concat());
    }
}

#[test]
fn a_scene_of_another_picture() {
    let folder = folder_with_model();
    folder.segment(&["--save-scene", "scene.safetensors"]).succeeds();
    // The same size, with other pixels.
    let mask = Mask::empty(Size::new(50, 31)).unwrap();
    folder.write("other.png", encode_mask(&mask, MaskDepth::Byte).unwrap());
    let scene = ["-m", MODEL, "-p", "3,3", "--scene", "scene.safetensors", "-o", "mask.png"];
    let other = folder.cutout(&[&["segment", "other.png"], &scene[..]].concat());
    other.fails(&["scene.safetensors", "made from another picture", "other.png"]);
    assert!(!folder.has("mask.png"));
    // The same pixels under another name and in another format of PNG.
    folder.write("copy.png", folder.read("picture.png"));
    folder.cutout(&[&["segment", "copy.png"], &scene[..]].concat()).succeeds();
    // A scene of an earlier version, without the hash.
    let file = Checkpoint::open(folder.path("scene.safetensors")).unwrap();
    let mut metadata = file.metadata().clone();
    assert!(metadata.remove("cutout.scene.pixels").is_some());
    write_safetensors(folder.path("old.safetensors"), &Outgoing::of(&file).tensors, &metadata)
        .unwrap();
    folder.segment(&["--scene", "old.safetensors"]).fails(&["no hash of the picture", "save it"]);
}

#[test]
fn prompts_of_a_video_that_are_never_used() {
    let folder = folder();
    folder.picture("clip/0.png", Size::new(64, 48));
    folder.picture("clip/1.png", Size::new(64, 48));
    folder.picture("clip/2.png", Size::new(64, 48));
    let track = |more: &[&str]| folder.cutout(&[&["track", "clip", "-p", "9,9"], more].concat());
    for flags in [&["--object", "2"][..], &["--frame", "1"], &["--frame", "1", "--object", "2"]] {
        track(flags).wrong_usage(&["applies to the prompts after it, and there are none"]);
    }
    let beyond = ["--frame", "2", "-p", "9,9", "--max-frames", "2"];
    track(&beyond).wrong_usage(&["frame 2 is never reached", "--max-frames 2 ends at frame 1"]);
    track(&["--max-frames", "0"]).wrong_usage(&["--max-frames"]);
    let within = ["--frame", "1", "-p", "9,9", "--max-frames", "2", "-o", "masks.jsonl"];
    track(&within).succeeds();
    assert_eq!(String::from_utf8(folder.read("masks.jsonl")).unwrap().lines().count(), 2);
}

#[test]
fn extensions_of_other_formats() {
    let folder = folder_with_model();
    folder.segment(&["--overlay", "x.jpg"]).wrong_usage(&["x.jpg", "must be .png"]);
    folder.segment(&["--cutout", "x.webp"]).wrong_usage(&["x.webp", "must be .png"]);
    folder.segment(&["-o", "x.foo"]).wrong_usage(&["x.foo", ".geojson"]);
    let everything = |more: &[&str]| {
        folder.cutout(&[&["everything", "picture.png", "-m", MODEL], more].concat())
    };
    everything(&["-o", "x.foo"]).wrong_usage(&["x.foo", ".json, .png or .npy"]);
    everything(&["-o", "x.json", "--overlay", "x.jpg"]).wrong_usage(&["x.jpg", ".png"]);
    let track = ["track", "clip", "-p", "3,3", "-o"];
    folder.cutout(&[&track[..], &["x.foo"]].concat()).wrong_usage(&["x.foo", ".jsonl"]);
    assert!(!folder.has("x.foo") && !folder.has("x.jpg"));
    std::fs::create_dir(folder.path("made.foo")).unwrap();
    let few =
        ["--points-per-side", "2", "--pred-iou-thresh", "-1", "--stability-score-thresh", "0"];
    for place in ["made.foo", "slash.bar/", "plain"] {
        everything(&[&few[..], &["-o", place]].concat()).succeeds();
        assert!(folder.path(place).join("picture/metadata.csv").exists(), "{place}");
    }
}

#[test]
fn more_threads_than_a_machine_has() {
    let folder = folder_with_model();
    for number in ["20000", "0", "100000000000", "-1"] {
        let ended = folder.segment(&[&format!("--threads={number}")]);
        ended.wrong_usage(&["--threads", "from 1 to 1024"]);
    }
    for (number, words) in
        [("100000000000", "more than the 1024"), ("1025", "1024"), ("0", "nonzero")]
    {
        folder.write("cutout.toml", format!("# how it runs\nthreads = {number}\n"));
        folder.segment(&["--json"]).fails(&["cutout.toml", "line 2", words]);
    }
    folder.write("cutout.toml", format!("threads = 2\n#{}", " ".repeat(2 << 20)));
    folder.segment(&["--json"]).fails(&["cutout.toml", "longer than"]);
    folder.write("cutout.toml", "threads = 40\n");
    folder.segment(&["--json"]).succeeds();
}

/// The built-in model as a checkpoint, with one entry of its metadata changed.
fn reconfigured(folder: &Folder, name: &str, key: &str, value: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sam/builtin/model.safetensors");
    let file = Checkpoint::open(path).unwrap();
    let mut metadata: Metadata = file.metadata().clone();
    metadata.insert(key.to_owned(), value.into());
    write_safetensors(folder.path(name), &Outgoing::of(&file).tensors, &metadata).unwrap();
}

#[test]
fn configurations_are_bounded() {
    let folder = folder_with_model();
    for (key, value, words) in [
        ("sam2.image_size", "20000", "image size 20000 is not between 1 and 2048"),
        ("sam2.image_size", "99968", "image size 99968 is not between"),
        ("sam2.image_size", "18446744073709551584", "image size"),
        ("sam2.heads", "1000000", "encoder heads 1000000 is not between"),
        ("sam2.windows", "8,8,8,0", "window 0 is not between"),
        ("sam2.windows", "8,8,8,4000000000", "window 4000000000 is not between"),
        ("sam2.global_blocks", "6,99", "global block 99 is not between"),
        ("sam2.memory_heads", "4000000", "memory heads"),
        ("sam2.pointer_frames", "4000000000", "pointer frames"),
        ("sam2.decoder_heads", "7", "do not fit each other"),
    ] {
        reconfigured(&folder, "odd.safetensors", key, value);
        let started = std::time::Instant::now();
        let text = folder.cutout(&["info", "odd.safetensors"]).succeeds();
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
        // Seconds, where minutes were possible: the machine may be busy.
        assert!(started.elapsed().as_secs() < 5, "{key} = {value}: {:?}", started.elapsed());
        let run = ["segment", "picture.png", "-m", "odd.safetensors", "-p", "3,3"];
        folder.cutout(&run).fails(&["odd.safetensors: ", words]);
    }
}

/// Checkpoints that identify as a model and cannot be run.
fn broken_models(folder: &Folder) -> Vec<&'static str> {
    let mut tensors = model_tensors();
    tensors.retain(|(name, _)| name != "mask_decoder.iou_token.weight");
    folder.checkpoint("missing.safetensors", tensors);
    let mut tensors = model_tensors();
    for (name, tensor) in &mut tensors {
        if name == "image_encoder.neck.3.bias" {
            *tensor = Tensor::from_vec([3], vec![0f32; 3]).unwrap();
        }
    }
    folder.checkpoint("misshapen.safetensors", tensors);
    let mut tensors = model_tensors();
    for (_, tensor) in &mut tensors {
        *tensor = tensor.cast(DType::I8).unwrap();
    }
    folder.checkpoint("bytes.safetensors", tensors);
    reconfigured(folder, "vast.safetensors", "sam2.image_size", "20000");
    reconfigured(folder, "odd.safetensors", "sam2.decoder_heads", "7");
    reconfigured(folder, "text.safetensors", "sam2.heads", "many");
    let mut tensors = model_tensors();
    tensors.retain(|(name, _)| name != "image_encoder.pos_embed");
    folder.checkpoint("torso.safetensors", tensors);
    vec![
        "missing.safetensors",
        "misshapen.safetensors",
        "bytes.safetensors",
        "vast.safetensors",
        "odd.safetensors",
        "text.safetensors",
        "torso.safetensors",
    ]
}

#[test]
fn all_commands_agree_about_a_file() {
    let folder = folder_with_model();
    for name in broken_models(&folder) {
        let run = ["segment", "picture.png", "-m", name, "-p", "3,3"];
        let ended = folder.cutout(&run);
        let message = ended.stderr.trim_end().strip_prefix("error: ").unwrap().to_owned();
        ended.fails(&[]);
        assert_eq!(message.lines().count(), 1, "{message}");
        let reason = message.strip_prefix(&format!("{name}: ")).expect("it begins with the file");
        assert!(!message.contains(".rs:"), "{message}");
        let facts = folder.cutout(&["info", "--json", name]).json();
        assert_eq!((&facts["runs"], &facts["problem"]), (&false.into(), &reason.into()), "{name}");
        assert!(folder.cutout(&["info", name]).words().contains(&format!("runs no: {reason}")));
        let listed = folder.cutout(&["models", "--json", name]).json();
        assert_eq!((&listed[0]["runs"], &listed[0]["error"]), (&false.into(), &message[..].into()));
        let text = folder.cutout(&["models", name]).succeeds();
        assert!(text.contains(" no ") && text.contains(&message), "{text}");
    }
    assert_eq!(folder.cutout(&["info", "--json", MODEL]).json()["runs"], true);
    let listed = folder.cutout(&["models", "--json", MODEL]).json();
    assert_eq!((&listed[0]["runs"], &listed[0]["error"]), (&true.into(), &().into()));
}

/// Runs a command with a limit of its address space, in MiB.
#[cfg(target_os = "linux")]
fn limited(folder: &Folder, mib: usize, arguments: &[&str]) -> Ended {
    let program = folder.command(arguments);
    let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib << 10);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).arg(program.get_program()).args(program.get_args());
    shell.current_dir(folder.path("."));
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ended::of(shell.stdin(std::process::Stdio::null()).output().unwrap())
}

/// Whatever the limit, a command succeeds or fails with one line; it neither panics nor aborts.
#[test]
#[cfg(target_os = "linux")]
fn little_memory() {
    let folder = folder_with_model();
    let blank = Mask::empty(Size::new(12_000, 1_000)).unwrap();
    folder.write("vast.png", encode_mask(&blank, MaskDepth::Bit).unwrap());
    drop(blank);
    let outputs = ["-o", "mask.png", "-o", "mask.npy", "--overlay", "o.png", "--cutout", "c.png"];
    let run = ["segment", "vast.png", "-m", MODEL, "-p", "11999,999", "--threads", "1"];
    let (mut failed, mut succeeded) = (0, 0);
    // Below the size of the program it cannot even be loaded.
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_cutout")).unwrap().len() as usize >> 20;
    for mib in (program + 10..program + 430).step_by(60) {
        let ended = limited(&folder, mib, &[&run[..], &outputs].concat());
        match ended.code {
            Some(0) => succeeded += 1,
            Some(1) => {
                assert_eq!(ended.stderr.lines().count(), 1, "{mib} MiB: {}", ended.stderr);
                failed += 1;
                ended.fails(&["memory"]);
            }
            _ => panic!("{mib} MiB: {:?} {}", ended.code, ended.stderr),
        }
    }
    assert!(failed > 1 && succeeded > 0, "{failed} failed, {succeeded} succeeded");
    assert!(folder.temporary_files().is_empty());
}

/// Runs a command that may write files of at most `blocks` KiB each. Beyond it the system kills the process at that write,
/// or, with `refused`, the write fails as on a full disk.
#[cfg(target_os = "linux")]
fn short_of_disk(folder: &Folder, blocks: usize, refused: bool, arguments: &[&str]) -> Ended {
    let program = folder.command(arguments);
    let trap = if refused { "trap '' XFSZ;" } else { "" };
    let script = format!("{trap} ulimit -c 0; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &script]).arg(program.get_program()).args(program.get_args());
    shell.current_dir(folder.path("."));
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ended::of(shell.stdin(std::process::Stdio::null()).output().unwrap())
}

/// Whichever write is the last one, a file has its old content or the whole new one, and inputs stay as they are.
#[test]
#[cfg(target_os = "linux")]
fn killed_at_any_write() {
    let folder = folder_with_model();
    let model = folder.read(MODEL);
    let picture = folder.read("picture.png");
    let outputs =
        ["new.safetensors", "scene.safetensors", "raw.safetensors", "mask.npy", "found.json"];
    let commands: [&[&str]; 2] = [
        &["convert", MODEL, "new.safetensors"],
        &[
            "segment",
            "picture.png",
            "-m",
            MODEL,
            "-p",
            "20,11",
            "--save-scene",
            "scene.safetensors",
            "--raw",
            "raw.safetensors",
            "-o",
            "mask.npy",
            "-o",
            "found.json",
            "--threads",
            "1",
        ],
    ];
    commands.iter().for_each(|command| drop(folder.cutout(command).succeeds()));
    let whole = outputs.map(|name| folder.read(name));
    let most = whole.iter().map(|content| content.len()).max().unwrap().div_ceil(1024);
    let mut ends = [0; 2];
    for (step, blocks) in (0..=most + 1).step_by(most / 12 + 1).chain([most + 1]).enumerate() {
        outputs.iter().for_each(|name| folder.write(name, "old"));
        for command in commands {
            let ended = short_of_disk(&folder, blocks, step % 2 == 0, command);
            assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
            ends[usize::from(ended.code == Some(0))] += 1;
            if ended.code == Some(1) {
                ended.fails(&["safetensors"]);
                assert!(folder.temporary_files().is_empty(), "a failed write removes its file");
            }
            folder.temporary_files().iter().for_each(|path| std::fs::remove_file(path).unwrap());
        }
        for (name, whole) in outputs.iter().zip(&whole) {
            let found = folder.read(name);
            assert!(found == b"old" || found == *whole, "{name} is incomplete at {blocks} KiB");
        }
        assert!(folder.read(MODEL) == model && folder.read("picture.png") == picture);
    }
    assert!(ends[0] > 4 && ends[1] >= 2, "{ends:?}");
}
