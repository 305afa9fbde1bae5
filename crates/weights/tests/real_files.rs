//! Files written by PyTorch, safetensors and gguf (fixtures/make_checkpoints.py), compared tensor by tensor.

use crate::support::{Folder, fixture};
use cutout_tensor::{DType, Tolerance, compare};
use cutout_weights::{
    BlockType, Checkpoint, Encoding, Format, Metadata, MetadataValue, OutgoingTensor, Problem,
    StoredType, WeightsError, write_gguf,
};

/// Compares every tensor with the one of the same name in the `.safetensors` file of the same stem.
fn check(name: &str, extension: &str, tolerance: Tolerance) -> Checkpoint {
    let checkpoint = Checkpoint::open(fixture(&format!("{name}.{extension}"))).unwrap();
    let expected = Checkpoint::open(fixture(&format!("{name}.safetensors"))).unwrap();
    assert_eq!(expected.format(), Format::Safetensors);
    for info in expected.tensors().iter().filter(|info| info.name != "source") {
        let wanted = expected.tensor(&info.name).unwrap();
        let found = checkpoint.tensor(&info.name).unwrap();
        assert_eq!(found.ty(), wanted.ty(), "{name}: {}", info.name);
        let difference = compare(&found, &wanted, tolerance).unwrap();
        assert!(difference.within, "{name}: {}: {difference}", info.name);
    }
    checkpoint
}

#[test]
fn pytorch_files_hold_what_pytorch_saved() {
    for name in ["flat", "model", "strided", "training", "protocol4", "deflated", "complex"] {
        let checkpoint = check(name, "pt", Tolerance::Exact);
        assert_eq!(checkpoint.format(), Format::Torch);
        let expected = Checkpoint::open(fixture(&format!("{name}.safetensors"))).unwrap();
        let unloadable = if name == "complex" { 2 } else { 0 };
        assert_eq!(checkpoint.tensors().len(), expected.tensors().len() + unloadable, "{name}");
    }
}

#[test]
fn stored_tensors_are_views_of_the_file() {
    let checkpoint = Checkpoint::open(fixture("flat.pt")).unwrap();
    let [first, second] = [(); 2].map(|()| checkpoint.tensor("f16").unwrap());
    assert_eq!(first.storage_id(), second.storage_id());
    assert_eq!(checkpoint.info("f16").unwrap().stored, StoredType::Plain(DType::F16));
    assert_eq!(checkpoint.info("f64").unwrap().stored, StoredType::F64);
}

#[test]
fn complex_tensors_are_listed_but_cannot_be_loaded() {
    let checkpoint = Checkpoint::open(fixture("complex.pt")).unwrap();
    let info = checkpoint.info("freqs_cis").unwrap();
    assert_eq!((info.stored.to_string(), info.bytes), ("complex64".to_owned(), 64));
    assert_eq!(info.loads_as(), None);
    let message = checkpoint.tensor("freqs_cis").unwrap_err().to_string();
    assert!(message.contains("freqs_cis") && message.contains("complex64"), "{message}");
    assert_eq!(checkpoint.info("f8").unwrap().stored.to_string(), "float8_e4m3fn");
    assert!(checkpoint.tensor("weight").is_ok());
}

#[test]
fn the_error_names_a_function_that_a_pickle_would_call() {
    let error = Checkpoint::open(fixture("attack.pt")).map(drop).unwrap_err();
    let message = error.to_string();
    let WeightsError::Malformed { problem, .. } = error else { panic!("{error}") };
    assert_eq!(problem, Problem::Callable("posix.system".into()));
    assert!(message.contains("never runs code"), "{message}");
}

#[test]
fn the_error_for_the_old_pytorch_format_has_advice() {
    let message = Checkpoint::open(fixture("legacy.pt")).map(drop).unwrap_err().to_string();
    assert!(message.contains("save it again"), "{message}");
}

#[test]
fn the_error_for_a_wrong_name_suggests_the_nearest() {
    let checkpoint = Checkpoint::open(fixture("model.pt")).unwrap();
    let message = checkpoint.tensor("encoder.wieght").unwrap_err().to_string();
    assert!(message.ends_with("the nearest name is encoder.weight"), "{message}");
}

#[test]
fn gguf_files_hold_what_gguf_wrote() {
    // Exact: unpacking multiplies the same factors in the same order as gguf.
    let checkpoint = check("quantised", "gguf", Tolerance::Exact);
    let stored = |name: &str| checkpoint.info(name).unwrap().stored.clone();
    assert_eq!(stored("q6_k"), StoredType::Block(BlockType::Q6K));
    assert_eq!(stored("bf16"), StoredType::Plain(DType::BF16));
    assert_eq!(checkpoint.info("volume").unwrap().shape[..], [2, 3, 4, 5]);
    assert_eq!(checkpoint.info("q5_0").unwrap().bytes, 3 * 64 / 32 * 22);
    assert!(checkpoint.tensor("q5_0").unwrap_err().to_string().contains("q5_0"));
}

#[test]
fn gguf_metadata_keeps_its_types() {
    let checkpoint = Checkpoint::open(fixture("quantised.gguf")).unwrap();
    let list = |items: &[u64]| {
        MetadataValue::List(items.iter().map(|&item| MetadataValue::Signed(item as i64)).collect())
    };
    let words = ["a", "", "å"].map(MetadataValue::from).to_vec();
    for (key, expected) in [
        ("general.name", MetadataValue::from("numbers")),
        ("test.u8", MetadataValue::Unsigned(200)),
        ("test.i8", MetadataValue::Signed(-5)),
        ("test.u16", MetadataValue::Unsigned(60000)),
        ("test.i16", MetadataValue::Signed(-6000)),
        ("test.u32", MetadataValue::Unsigned(4_000_000_000)),
        ("test.i32", MetadataValue::Signed(-7)),
        ("test.u64", MetadataValue::Unsigned(1 << 60)),
        ("test.i64", MetadataValue::Signed(-(1 << 60))),
        ("test.f32", MetadataValue::Float(0.5)),
        ("test.f64", MetadataValue::Float(1e100)),
        ("test.bool", MetadataValue::Bool(true)),
        ("test.list", list(&[1, 2, 3])),
        ("test.words", MetadataValue::List(words)),
    ] {
        assert_eq!(checkpoint.metadata().get(key), Some(&expected), "{key}");
    }
}

#[test]
fn quantising_gives_the_same_blocks_as_gguf() {
    let folder = Folder::new("same-blocks");
    let expected = Checkpoint::open(fixture("quantised.gguf")).unwrap();
    let source = Checkpoint::open(fixture("quantised.safetensors")).unwrap();
    let source = source.tensor("source").unwrap();
    for (name, encoding) in
        [("q8_0", Encoding::Q8_0), ("q4_0", Encoding::Q4_0), ("bf16", Encoding::Bf16)]
    {
        let path = folder.0.join(name);
        let tensors = [OutgoingTensor::new(name, source.clone())];
        write_gguf(&path, &tensors, &Metadata::new(), encoding).unwrap();
        let written = Checkpoint::open(&path).unwrap();
        assert_eq!(written.info(name).unwrap(), expected.info(name).unwrap());
        let (found, wanted) = (written.tensor(name).unwrap(), expected.tensor(name).unwrap());
        let difference = compare(&found, &wanted, Tolerance::Exact).unwrap();
        assert!(difference.within, "{name}: {difference}");
    }
}
