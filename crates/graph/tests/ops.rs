//! Every op: inference agrees with the reference, and neither panics on any attributes and types.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;

use cutout_graph::ops::{
    ArgMax, Broadcast, Concat, CumulativeSum, MaskBits, MaxPool2d, ModelSquare, Pad, Permute,
    Reduce, ReduceKind, Resize, ResizeMode, RoiAlign, Slice,
};
use cutout_graph::{Data, DenseTensor, Op, OpDef, Real};
use cutout_tensor::{DType, Shape, Tensor, TensorType, compare};

use cutout_testing::{Random, case_tensors};

fn run<T: Real>(op: &Op, tensors: &[Tensor]) -> DenseTensor<T> {
    let inputs: Vec<DenseTensor<T>> =
        tensors.iter().map(|tensor| DenseTensor::from_tensor(tensor).unwrap()).collect();
    let inputs: Vec<&DenseTensor<T>> = inputs.iter().collect();
    op.check_values(&inputs).unwrap();
    op.reference(&inputs)
}

fn check_kind<T: Real>(result: &DenseTensor<T>, ty: &TensorType, name: &str) {
    assert_eq!(result.shape, ty.shape, "{name}");
    let same = match &result.data {
        Data::Real(_) => ty.dtype.is_float(),
        Data::Int(_) => ty.dtype.is_integer(),
        Data::Bool(_) => ty.dtype == DType::Bool,
    };
    assert!(same, "{name}: {ty} by inference, another kind by its reference");
}

#[test]
fn inference_agrees_with_the_reference_in_both_precisions() {
    for case in Op::all_cases() {
        let name = case.full_name();
        let tensors = case_tensors(&case).unwrap();
        let types: Vec<&TensorType> = tensors.iter().map(Tensor::ty).collect();
        let ty = case.op.infer(&types).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (single, double) = (run::<f32>(&case.op, &tensors), run::<f64>(&case.op, &tensors));
        check_kind(&single, &ty, &name);
        check_kind(&double, &ty, &name);
        let (single, double) = (single.to_tensor(&ty).unwrap(), double.to_tensor(&ty).unwrap());
        let difference = compare(&single, &double, case.tolerance).unwrap();
        assert!(difference.within, "{name}: {difference}");
        case.op.cost(&types, &ty);
        case.op.attributes().unwrap();
    }
}

#[test]
fn case_names_are_unique() {
    let mut seen = HashSet::new();
    for case in Op::all_cases() {
        assert!(seen.insert(case.full_name()), "{} is there twice", case.full_name());
    }
}

/// A length that is usually near `length`, sometimes at the end of what a number can hold.
fn changed(length: usize, random: &mut Random) -> usize {
    match random.below(12) {
        0 => 0,
        1 => 1,
        2 => length + 1,
        3 => random.below(9),
        4 => [usize::MAX, usize::MAX / 2, isize::MAX as usize, 1 << 33][random.below(4)],
        _ => length,
    }
}

fn changed_type(ty: &TensorType, random: &mut Random) -> TensorType {
    let mut axes: Vec<usize> = ty.shape.iter().map(|&axis| changed(axis, random)).collect();
    match random.below(12) {
        0 => axes.truncate(axes.len().saturating_sub(1)),
        1 => axes.push(1 + random.below(3)),
        _ => {}
    }
    let dtype = match random.below(12) {
        0 => DType::ALL[random.below(DType::ALL.len())],
        _ => ty.dtype,
    };
    TensorType::new(dtype, axes)
}

#[test]
fn inference_never_panics_and_what_it_accepts_can_be_run() {
    let mut random = Random::new(7);
    for case in Op::all_cases() {
        for _ in 0..60 {
            let mut types: Vec<TensorType> =
                case.inputs.iter().map(|input| changed_type(&input.ty, &mut random)).collect();
            match random.below(20) {
                0 => types.truncate(types.len().saturating_sub(1)),
                1 => types.extend(types.first().cloned()),
                _ => {}
            }
            let types: Vec<&TensorType> = types.iter().collect();
            let Ok(output) = case.op.infer(&types) else { continue };
            case.op.cost(&types, &output);
            run_if_small(&case.op, &types, &output);
        }
    }
}

/// Runs the reference on zeros, which are in range for every op that looks at its values.
fn run_if_small(op: &Op, types: &[&TensorType], output: &TensorType) {
    let small = |ty: &TensorType| ty.shape.elements() < 5000;
    if !small(output) || !types.iter().all(|ty| small(ty)) {
        return;
    }
    let zeros: Vec<Tensor> = types.iter().map(|ty| Tensor::zeros(ty).unwrap()).collect();
    let inputs: Vec<DenseTensor<f32>> =
        zeros.iter().map(|tensor| DenseTensor::from_tensor(tensor).unwrap()).collect();
    let inputs: Vec<&DenseTensor<f32>> = inputs.iter().collect();
    if op.check_values(&inputs).is_ok() {
        check_kind(&op.reference(&inputs), output, &op.printed());
    }
}

#[test]
fn attributes_at_their_limits_never_panic() {
    const MAX: usize = usize::MAX;
    let image = TensorType::f32([1, 5, 5, 2]);
    let ops: [Op; 12] = [
        MaxPool2d { kernel: [MAX, 1], stride: [1, 1], padding: [MAX / 2, 0] }.into(),
        MaxPool2d { kernel: [0, 1], stride: [0, 1], padding: [0, 0] }.into(),
        Resize { mode: ResizeMode::Nearest, antialias: false, size: [MAX, MAX] }.into(),
        Resize { mode: ResizeMode::Nearest, antialias: true, size: [2, 2] }.into(),
        Permute { axes: vec![MAX, 0, 1, 2] }.into(),
        Slice { starts: vec![MAX; 4], ends: vec![0; 4], steps: vec![0; 4] }.into(),
        Concat { axis: MAX }.into(),
        Pad { before: vec![MAX; 4], after: vec![MAX; 4], value: f32::NAN }.into(),
        Broadcast { shape: vec![MAX, MAX, 1, 5, 5, 2] }.into(),
        Reduce { kind: ReduceKind::Sum, axes: vec![1, MAX], keep: true }.into(),
        ArgMax { axis: MAX }.into(),
        CumulativeSum { axis: 4 }.into(),
    ];
    for op in ops {
        assert!(op.infer(&[&image]).is_err(), "{op:?}");
    }
    let boxes = TensorType::f32([3, 5]);
    let usual = RoiAlign { output: [2, 2], spatial_scale: 1.0, sampling_ratio: 2, aligned: true };
    assert!(usual.infer(&[&image, &boxes]).is_ok());
    for op in [
        RoiAlign { output: [MAX, MAX], ..usual },
        RoiAlign { output: [0, 1], ..usual },
        RoiAlign { spatial_scale: f32::NAN, ..usual },
        RoiAlign { spatial_scale: -1.0, ..usual },
        RoiAlign { sampling_ratio: MAX, ..usual },
    ] {
        assert!(op.infer(&[&image, &boxes]).is_err(), "{op:?}");
    }
    let logits = TensorType::f32([2, 5, 5]);
    let usual = MaskBits { through: None, size: [9, 9], threshold: 0.0, offset: 1.0 };
    let through = |size, content| Some(ModelSquare { size, content });
    assert!(usual.infer(&[&logits]).is_ok());
    for op in [
        MaskBits { size: [MAX, MAX], ..usual },
        MaskBits { size: [1 << 16, 1 << 15], ..usual },
        MaskBits { size: [0, 1], ..usual },
        MaskBits { threshold: f32::NAN, ..usual },
        MaskBits { threshold: f32::INFINITY, offset: f32::INFINITY, ..usual },
        MaskBits { through: through([MAX, MAX], [1, 1]), ..usual },
        MaskBits { through: through([4, 4], [4, 0]), ..usual },
        MaskBits { through: through([4, 4], [4, 5]), ..usual },
    ] {
        assert!(op.infer(&[&logits]).is_err(), "{op:?}");
    }
    let nothing = TensorType::new(DType::F32, Shape::new(&[3, 0]));
    for kind in [ReduceKind::Mean, ReduceKind::Maximum, ReduceKind::Minimum] {
        assert!(Reduce { kind, axes: vec![1], keep: false }.infer(&[&nothing]).is_err());
    }
}

/// `types` with one input changed: to a scalar of another type, or in the length of one axis, there alone and
/// wherever the old length occurs.
fn variants(types: &[TensorType], input: usize) -> Vec<Vec<TensorType>> {
    let with = |ty: TensorType| {
        let mut types = types.to_vec();
        types[input] = ty;
        types
    };
    let mut all: Vec<_> =
        [DType::F32, DType::I64, DType::Bool].map(|dtype| with(TensorType::new(dtype, []))).into();
    let lengths = [0, 1, 2, 3, 1 << 33, usize::MAX / 2, usize::MAX];
    let ty = &types[input];
    for (axis, length) in (0..ty.rank()).flat_map(|axis| lengths.map(|length| (axis, length))) {
        let mut longer = ty.clone();
        longer.shape[axis] = length;
        all.push(with(longer));
        let mut everywhere = types.to_vec();
        let axes = everywhere.iter_mut().flat_map(|ty| ty.shape.iter_mut());
        axes.filter(|other| **other == ty.shape[axis]).for_each(|other| *other = length);
        all.push(everywhere);
    }
    all
}

#[test]
fn inference_of_any_types_gives_a_type_or_an_error() {
    for case in Op::all_cases() {
        let types: Vec<TensorType> = case.inputs.into_iter().map(|input| input.ty).collect();
        for types in (0..types.len()).flat_map(|input| variants(&types, input)) {
            let _type_or_error = case.op.infer(&types.iter().collect::<Vec<_>>());
        }
        let _no_inputs = case.op.infer(&[]);
    }
}
