//! Round trips: names, types, shapes, values and metadata are the same after writing and reading.

use std::collections::BTreeMap;

use crate::support::{Folder, Random};
use cutout_tensor::{DType, Tensor, Tolerance, compare};
use cutout_weights::{
    Checkpoint, Encoding, Format, Metadata, MetadataValue, Outgoing, OutgoingTensor, StoredType,
    WeightsError, write_gguf, write_safetensors, write_safetensors_in_turn,
};

/// Tensors of random number, type, rank, shape and values; some are strided.
fn random_tensors(random: &mut Random) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for number in 0..random.below(6) {
        let rank = random.below(5);
        let shape: Vec<usize> =
            (0..rank).map(|_| [0, 1, 2, 3, 5, 32, 64][random.below(7)]).collect();
        let elements: usize = shape.iter().product();
        let values = (0..elements).map(|_| random.below(2001) as f32 / 8.0 - 125.0).collect();
        let tensor = Tensor::from_vec(shape, values).unwrap();
        let tensor = tensor.cast(DType::ALL[random.below(8)]).unwrap();
        let axes: Vec<usize> = (0..rank).rev().collect();
        let tensor = if random.below(2) == 0 { tensor.permute(&axes).unwrap() } else { tensor };
        let name = ["layer", "ключ", "a\"b\\", "x y"][random.below(4)];
        tensors.insert(format!("{name}.{number}"), tensor);
    }
    tensors
}

fn outgoing(tensors: &BTreeMap<String, Tensor>) -> Vec<OutgoingTensor<'static>> {
    tensors.iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone())).collect()
}

fn metadata() -> Metadata {
    Metadata::from([
        ("general.name".to_owned(), "a \"name\"\n".into()),
        ("number".to_owned(), 7u64.into()),
        ("large".to_owned(), (1u64 << 40).into()),
        ("signed".to_owned(), MetadataValue::Signed(-3)),
        ("float".to_owned(), MetadataValue::Float(0.1)),
        ("yes".to_owned(), MetadataValue::Bool(true)),
        ("list".to_owned(), MetadataValue::List(vec![1u64.into(), (1u64 << 40).into()])),
        ("words".to_owned(), MetadataValue::List(vec!["a".into(), "".into()])),
        ("none".to_owned(), MetadataValue::List(Vec::new())),
    ])
}

fn assert_same(found: &Tensor, wanted: &Tensor, name: &str) {
    assert_eq!(found.ty(), wanted.ty(), "{name}");
    assert!(compare(found, wanted, Tolerance::Exact).unwrap().within, "{name}");
}

#[test]
fn safetensors_round_trip() {
    let folder = Folder::new("safetensors-round-trip");
    let path = folder.0.join("some.name");
    let mut random = Random(7);
    for _ in 0..200 {
        let tensors = random_tensors(&mut random);
        write_safetensors(&path, &outgoing(&tensors), &metadata()).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.format(), Format::Safetensors);
        assert_eq!(checkpoint.tensors().len(), tensors.len());
        for (name, tensor) in &tensors {
            let found = checkpoint.tensor(name).unwrap();
            assert_same(&found, tensor, name);
            // The data is aligned, so kernels can read the mapped file.
            assert!(found.dtype() != DType::F32 || found.as_slice::<f32>().is_ok());
        }
        assert_eq!(checkpoint.metadata()["general.name"], "a \"name\"\n".into());
        assert_eq!(checkpoint.metadata()["list"], "[1,1099511627776]".into());
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn gguf_round_trip() {
    let folder = Folder::new("gguf-round-trip");
    let path = folder.0.join("some.name");
    let mut random = Random(8);
    for _ in 0..200 {
        let tensors = random_tensors(&mut random);
        write_gguf(&path, &outgoing(&tensors), &metadata(), Encoding::Keep).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.format(), Format::Gguf);
        assert_eq!(*checkpoint.metadata(), metadata());
        for (name, tensor) in &tensors {
            let narrow = matches!(tensor.dtype(), DType::U8 | DType::Bool);
            let wanted = if narrow { tensor.cast(DType::I32).unwrap() } else { tensor.clone() };
            assert_same(&checkpoint.tensor(name).unwrap(), &wanted, name);
        }
    }
}

#[test]
fn encodings_choose_the_documented_types() {
    let folder = Folder::new("encodings");
    let path = folder.0.join("model.gguf");
    let make = |shape: &[usize]| {
        let elements: usize = shape.iter().product();
        let values = (0..elements).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
        Tensor::from_vec(shape, values).unwrap()
    };
    let tensors = BTreeMap::from([
        ("bias".to_owned(), make(&[64])),
        ("convolution".to_owned(), make(&[4, 3, 2, 32])),
        ("matrix".to_owned(), make(&[6, 64])),
        ("odd".to_owned(), make(&[6, 33])),
    ]);
    for (encoding, bias, convolution, matrix, odd) in [
        (Encoding::F32, "f32", "f32", "f32", "f32"),
        (Encoding::F16, "f32", "f16", "f16", "f16"),
        (Encoding::Bf16, "f32", "bf16", "bf16", "bf16"),
        (Encoding::Q8_0, "f32", "f16", "q8_0", "f16"),
        (Encoding::Q4_0, "f32", "f16", "q4_0", "f16"),
    ] {
        write_gguf(&path, &outgoing(&tensors), &Metadata::new(), encoding).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let stored: Vec<String> =
            checkpoint.tensors().iter().map(|info| info.stored.to_string()).collect();
        assert_eq!(stored, [bias, convolution, matrix, odd], "{encoding:?}");
        for (name, tensor) in &tensors {
            let found = checkpoint.tensor(name).unwrap().to_f64_vec().unwrap();
            let step = if encoding == Encoding::Q4_0 { 0.13 } else { 0.005 };
            for (found, wanted) in found.iter().zip(tensor.to_f64_vec().unwrap()) {
                assert!((found - wanted).abs() <= step, "{encoding:?} {name}: {found} {wanted}");
            }
        }
    }
}

#[test]
fn a_whole_checkpoint_is_converted_tensor_by_tensor() {
    let folder = Folder::new("convert");
    let source = Checkpoint::open(crate::support::fixture("flat.pt")).unwrap();
    let path = folder.0.join("out");
    write_safetensors(&path, &Outgoing::of(&source).tensors, source.metadata()).unwrap();
    let back = Checkpoint::open(&path).unwrap();
    for info in source.tensors() {
        let (found, wanted) = (back.tensor(&info.name), source.tensor(&info.name));
        assert_same(&found.unwrap(), &wanted.unwrap(), &info.name);
    }
    assert_eq!(back.info("f64").unwrap().stored, StoredType::Plain(DType::F32));
}

#[test]
fn tensors_that_cannot_be_written_are_listed() {
    let source = Checkpoint::open(crate::support::fixture("complex.pt")).unwrap();
    let outgoing = Outgoing::of(&source);
    let lost: Vec<String> = outgoing.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(outgoing.tensors.len() + lost.len(), source.tensors().len());
    assert_eq!(lost.len(), 2);
    for name in ["freqs_cis", "f8"] {
        let line = lost.iter().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("cannot be loaded"), "{line}");
    }
}

#[test]
fn element_types_are_converted_while_writing() {
    let folder = Folder::new("element-types");
    let path = folder.0.join("out");
    let source = Checkpoint::open(crate::support::fixture("flat.pt")).unwrap();
    for (encoding, matrix) in [(Encoding::F16, DType::F16), (Encoding::Bf16, DType::BF16)] {
        let seen = std::cell::Cell::new(0);
        let outgoing = Outgoing::of(&source).tensors.into_iter();
        let tensors: Vec<OutgoingTensor<'_>> = outgoing
            .map(|tensor| tensor.encoded(encoding).unwrap())
            .map(|tensor| tensor.observed(|bytes| seen.set(seen.get() + bytes)))
            .collect();
        let declared: u64 = tensors.iter().map(OutgoingTensor::loaded_bytes).sum();
        write_safetensors(&path, &tensors, source.metadata()).unwrap();
        assert_eq!(seen.get(), declared);
        let back = Checkpoint::open(&path).unwrap();
        for info in source.tensors() {
            let ty = info.loads_as().unwrap();
            let wanted = match (ty.dtype.is_float(), ty.rank()) {
                (false, _) => ty.dtype,
                (true, 0 | 1) => DType::F32,
                (true, _) => matrix,
            };
            assert_same(
                &back.tensor(&info.name).unwrap(),
                &source.tensor(&info.name).unwrap().cast(wanted).unwrap(),
                &info.name,
            );
        }
    }
    let matrix = Tensor::from_vec([1, 32], vec![1e6f32; 32]).unwrap();
    let refused = OutgoingTensor::new("w", matrix.clone()).encoded(Encoding::Q8_0).map(|_| ());
    assert!(refused.unwrap_err().to_string().contains("q8_0"));
    let large = [OutgoingTensor::new("w", matrix).encoded(Encoding::F16).unwrap()];
    let error = write_safetensors(&path, &large, &Metadata::new()).unwrap_err().to_string();
    assert!(error.contains("range of f16"), "{error}");
}

#[test]
fn a_file_may_be_converted_in_place() {
    let folder = Folder::new("onto-itself");
    let path = folder.0.join("model");
    let tensor = Tensor::from_vec([2, 32], (0..64).map(|i| i as f32).collect()).unwrap();
    let tensors = [OutgoingTensor::new("w", tensor.clone())];
    write_safetensors(&path, &tensors, &Metadata::new()).unwrap();
    let open = Checkpoint::open(&path).unwrap();
    let all = Outgoing::of(&open).tensors;
    write_gguf(&path, &all, &Metadata::new(), Encoding::Keep).unwrap();
    assert_same(&open.tensor("w").unwrap(), &tensor, "the old map");
    assert_same(&Checkpoint::open(&path).unwrap().tensor("w").unwrap(), &tensor, "the new file");
}

#[test]
fn a_failed_write_leaves_no_file() {
    let folder = Folder::new("unwritable");
    let tensor = |values: Vec<f32>| Tensor::from_vec([1, values.len()], values).unwrap();
    let cases = [
        (tensor(vec![1e6; 32]), Encoding::F16, "range of f16"),
        (tensor(vec![f32::NAN; 32]), Encoding::Q8_0, "finite"),
        (tensor(vec![1.0]).reshape([1, 1, 1, 1, 1]).unwrap(), Encoding::F32, "axes"),
    ];
    for (tensor, encoding, word) in cases {
        let tensors = [OutgoingTensor::new("bad.weight", tensor)];
        let path = folder.0.join("out.gguf");
        let message =
            write_gguf(&path, &tensors, &Metadata::new(), encoding).unwrap_err().to_string();
        assert!(message.contains(word) && message.contains("bad.weight"), "{message}");
    }
    let twice = ["w", "w"].map(|name| OutgoingTensor::new(name, Tensor::scalar(1f32)));
    assert!(write_safetensors(folder.0.join("out"), &twice, &Metadata::new()).is_err());
    let ty = cutout_tensor::TensorType::f32([2]);
    let liar = [OutgoingTensor::deferred("w", ty, || Ok(Tensor::scalar(1f32)))];
    assert!(write_safetensors(folder.0.join("out"), &liar, &Metadata::new()).is_err());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let nowhere = folder.0.join("no/such/folder/out");
    let error = write_safetensors(nowhere, &[], &Metadata::new()).unwrap_err();
    assert!(matches!(error, WeightsError::Io { doing: "write", .. }), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_only_folder_has_its_own_error() {
    // Not even root may create files in /proc, but the system reports an error of another kind.
    let error = write_safetensors("/proc/cutout", &[], &Metadata::new()).unwrap_err();
    assert!(matches!(error, WeightsError::ReadOnly { .. } | WeightsError::Io { .. }), "{error}");
    let error = write_safetensors("/sys/cutout", &[], &Metadata::new()).unwrap_err();
    assert!(matches!(error, WeightsError::ReadOnly { .. }), "{error}");
}

#[test]
fn tensors_are_written_from_an_iterator() {
    let folder = Folder::new("in-turn");
    let path = folder.0.join("turn");
    let tensor = |value: f32| Tensor::from_vec([2], vec![value; 2]).unwrap();
    let ty = tensor(0.0).ty().clone();
    let declared = [("b".to_owned(), ty.clone()), ("a".to_owned(), ty)];
    let write = |tensors: Vec<Result<Tensor, Box<dyn std::error::Error>>>| {
        write_safetensors_in_turn(&path, &declared, &metadata(), tensors)
    };
    for (wrong, words) in [
        (vec![Ok(tensor(1.0))], "a: tensor: expected f32[2], found none"),
        (vec![Ok(tensor(1.0)), Ok(tensor(2.0)), Ok(tensor(3.0))], "number of tensors"),
        (
            vec![Ok(tensor(1.0)), Ok(tensor(2.0).cast(DType::F16).unwrap())],
            "a: type: expected f32[2]",
        ),
        (vec![Ok(tensor(1.0)), Err("the maker's own words".into())], "the maker's own words"),
    ] {
        let error = write(wrong).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "{words}");
    }
    write(vec![Ok(tensor(1.0)), Ok(tensor(2.0))]).unwrap();
    let read = Checkpoint::open(&path).unwrap();
    assert_same(&read.tensor("b").unwrap(), &tensor(1.0), "b");
    assert_same(&read.tensor("a").unwrap(), &tensor(2.0), "a");
    assert_eq!(read.metadata().len(), metadata().len());
    let twice = [declared[0].clone(), declared[0].clone()];
    let tensors = [Ok::<_, WeightsError>(tensor(1.0)), Ok(tensor(2.0))];
    let error = write_safetensors_in_turn(&path, &twice, &Metadata::new(), tensors).unwrap_err();
    assert!(matches!(error, WeightsError::Tensor { .. }), "{error}");
}
