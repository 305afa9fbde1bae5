//! Kernels of image ops on sizes beyond one task: thread counts, ragged shapes, shared weights, strided inputs, NaN.

use std::collections::HashMap;
use std::sync::Arc;

use cutout_cpu::gemm::Matrix;
use cutout_cpu::{Cpu, Isa};
use cutout_graph::ops::{
    Activation, Conv2d, ConvTranspose2d, Epilogue, GridSample, MaxPool2d, Resize, ResizeMode,
    RoiAlign,
};
use cutout_graph::{Backend, Builder, Graph, Kind, Op, Profile, Program, Weights, interpret_in};
use cutout_tensor::{DType, Tensor, TensorError, Tolerance, compare};
use cutout_testing::Random;

/// An op with its inputs; the second one of a convolution is a parameter.
struct Problem {
    name: &'static str,
    op: Op,
    inputs: Vec<Tensor>,
}

fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32).collect();
    Tensor::from_vec(shape.to_vec(), values).unwrap()
}

/// An op on noise.
fn problem(name: &'static str, op: impl Into<Op>, shapes: &[&[usize]]) -> Problem {
    let inputs = (1..).zip(shapes).map(|(seed, shape)| noise(shape, seed)).collect();
    Problem { name, op: op.into(), inputs }
}

impl Problem {
    fn has_parameters(&self) -> bool {
        matches!(self.op, Op::Conv2d(_) | Op::ConvTranspose2d(_))
    }

    fn graph(&self) -> Graph {
        let builder = Builder::new();
        let values: Vec<_> = (0..)
            .zip(&self.inputs)
            .map(|(index, input)| match index == 1 && self.has_parameters() {
                true => builder.weights().parameter("x1", input.shape().clone()),
                false => builder.input(&format!("x{index}"), DType::F32, input.shape().clone()),
            })
            .collect();
        builder.output("y", values[0].apply(self.op.clone(), &values[1..]));
        builder.finish().unwrap()
    }

    fn weights(&self) -> Weights {
        let weight = self.inputs.get(1).filter(|_| self.has_parameters());
        Weights::new(weight.map(|weight| ("x1".to_owned(), weight.clone())).into_iter().collect())
    }

    /// Names and values of the inputs of the graph.
    fn named(&self) -> Vec<(String, Tensor)> {
        (0..)
            .zip(&self.inputs)
            .filter(|&(index, _): &(usize, _)| index != 1 || !self.has_parameters())
            .map(|(index, tensor)| (format!("x{index}"), tensor.clone()))
            .collect()
    }

    fn run(&self, cpu: &Cpu) -> Tensor {
        let program = cpu.compile(&self.graph(), &self.weights(), &Profile::default()).unwrap();
        run(&*program, &self.named())
    }

    fn expected(&self) -> Tensor {
        let named = self.named();
        interpret_in::<f64>(&self.graph(), &self.weights(), &borrowed(&named)).unwrap().remove(0).1
    }
}

fn borrowed(named: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    named.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

fn run(program: &dyn Program, named: &[(String, Tensor)]) -> Tensor {
    program.run_named(&borrowed(named)).unwrap().remove(0).1
}

/// The bits of the elements: NaN equals itself, and zeros have signs.
fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn grouped(stride: usize, padding: usize, groups: usize) -> Conv2d {
    Conv2d { groups, ..Conv2d::new(stride, padding) }
}

fn resize(mode: ResizeMode, size: [usize; 2]) -> Op {
    Resize { mode, antialias: false, size }.into()
}

fn shrink(mode: ResizeMode, size: [usize; 2]) -> Op {
    Resize { mode, antialias: true, size }.into()
}

const EVERYTHING: Epilogue =
    Epilogue { scale: 0.5, bias: true, activation: Activation::Gelu, residual: true };

/// Problems of several tasks each, with sizes that are not multiples of vectors, panels or blocks.
fn convolutions() -> Vec<Problem> {
    let with = |op: Conv2d| Conv2d { epilogue: EVERYTHING, ..op };
    let uneven = Conv2d { stride: [2, 1], padding: [[0, 2], [3, 1]], ..Conv2d::new(1, 0) };
    let up = ConvTranspose2d { epilogue: EVERYTHING, ..ConvTranspose2d::new(2, 0) };
    let wide_up = ConvTranspose2d { stride: [3, 2], ..ConvTranspose2d::new(1, 0) };
    vec![
        problem("three by three", Conv2d::new(1, 1), &[&[1, 31, 29, 64], &[70, 64, 3, 3]]),
        problem(
            "everything",
            with(Conv2d::new(1, 1)),
            &[&[2, 17, 19, 48], &[33, 48, 3, 3], &[33], &[2, 17, 19, 33]],
        ),
        problem("deep", Conv2d::new(1, 1), &[&[1, 13, 11, 130], &[19, 130, 3, 3]]),
        problem("wider than the zeros", Conv2d::new(1, 1), &[&[1, 5, 6, 1040], &[9, 1040, 3, 2]]),
        problem("patches", Conv2d::new(16, 0), &[&[1, 165, 180, 3], &[50, 3, 16, 16]]),
        problem("overlapping patches", Conv2d::new(4, 3), &[&[1, 130, 117, 3], &[24, 3, 7, 7]]),
        problem("one channel", Conv2d::new(2, 1), &[&[2, 101, 90, 1], &[4, 1, 3, 3]]),
        problem("uneven", uneven, &[&[1, 41, 37, 20], &[21, 20, 4, 5]]),
        problem("pointwise", Conv2d::new(1, 0), &[&[2, 23, 21, 40], &[37, 40, 1, 1]]),
        problem("pointwise apart", Conv2d::new(2, 0), &[&[1, 43, 41, 16], &[37, 16, 1, 1]]),
        problem("padded pointwise", Conv2d::new(1, 2), &[&[1, 20, 21, 16], &[7, 16, 1, 1]]),
        problem("groups", grouped(1, 1, 4), &[&[1, 33, 21, 68], &[20, 17, 3, 3]]),
        problem(
            "groups with everything",
            with(grouped(1, 1, 3)),
            &[&[1, 19, 17, 48], &[60, 16, 3, 3], &[60], &[1, 19, 17, 60]],
        ),
        problem("groups of vectors", grouped(2, 1, 2), &[&[1, 33, 21, 64], &[20, 32, 3, 3]]),
        problem("depthwise 7", grouped(1, 3, 100), &[&[2, 67, 61, 100], &[100, 1, 7, 7]]),
        problem("depthwise 3", grouped(1, 1, 37), &[&[1, 150, 141, 37], &[37, 1, 3, 3]]),
        problem("depthwise 5", grouped(1, 0, 16), &[&[1, 30, 29, 16], &[16, 1, 5, 5]]),
        problem("depthwise 4 apart", grouped(3, 2, 20), &[&[1, 61, 64, 20], &[20, 1, 4, 4]]),
        problem(
            "depthwise everything",
            with(grouped(2, 1, 70)),
            &[&[1, 21, 20, 70], &[70, 1, 3, 3], &[70], &[1, 11, 10, 70]],
        ),
        problem("up", up, &[&[2, 19, 23, 48], &[48, 33, 2, 2], &[33], &[2, 38, 46, 33]]),
        problem("up in whole vectors", wide_up, &[&[1, 31, 30, 32], &[32, 48, 3, 2]]),
        problem("up of one column", ConvTranspose2d::new(2, 0), &[&[2, 9, 1, 32], &[32, 48, 2, 2]]),
        problem("up of one row", ConvTranspose2d::new(2, 0), &[&[2, 1, 9, 32], &[32, 48, 2, 2]]),
        problem("up by gathering", ConvTranspose2d::new(2, 1), &[&[1, 21, 20, 17], &[17, 9, 4, 4]]),
    ]
}

fn others() -> Vec<Problem> {
    use ResizeMode::{Bicubic, Bilinear, Nearest};
    let pool = |kernel, stride, padding| MaxPool2d { kernel, stride, padding };
    vec![
        problem("halve", pool([2, 2], [2, 2], [0, 0]), &[&[2, 67, 90, 33]]),
        problem("overlapping windows", pool([3, 5], [2, 1], [1, 2]), &[&[1, 75, 60, 7]]),
        problem("mask", resize(Bilinear, [300, 403]), &[&[3, 67, 71, 1]]),
        problem("wide mask", resize(Bilinear, [130, 9000]), &[&[1, 40, 33, 1]]),
        problem("mask down", resize(Bilinear, [41, 39]), &[&[2, 150, 167, 1]]),
        problem("three channels", resize(Bicubic, [121, 133]), &[&[2, 50, 61, 3]]),
        problem("features", resize(Bilinear, [61, 77]), &[&[1, 33, 39, 40]]),
        problem("nearest features", resize(Nearest, [64, 90]), &[&[2, 32, 45, 50]]),
        problem("nearest mask", resize(Nearest, [211, 190]), &[&[2, 64, 45, 1]]),
        problem("bicubic features", resize(Bicubic, [50, 49]), &[&[1, 33, 64, 35]]),
        problem("antialiased mask", shrink(Bilinear, [37, 41]), &[&[3, 200, 190, 1]]),
        problem("antialiased features", shrink(Bicubic, [20, 21]), &[&[1, 64, 67, 33]]),
        problem("sampled", GridSample, &[&[2, 30, 31, 70], &[2, 40, 25, 2]]),
        boxes(),
    ]
}

fn boxes() -> Problem {
    let op = RoiAlign { output: [7, 5], spatial_scale: 0.5, sampling_ratio: 0, aligned: true };
    let mut random = Random::new(9);
    let mut corner = || (30.0 * random.normal() + 30.0) as f32;
    let rows = (0..40).flat_map(|i| [(i % 2) as f32, corner(), corner(), corner(), corner()]);
    let boxes = Tensor::from_vec([40, 5], rows.collect::<Vec<f32>>()).unwrap();
    Problem { name: "boxes", op: op.into(), inputs: vec![noise(&[2, 31, 33, 70], 1), boxes] }
}

fn problems() -> Vec<Problem> {
    convolutions().into_iter().chain(others()).collect()
}

#[test]
fn ragged_sizes_match_the_definition_on_every_instruction_set() {
    let mut failures = Vec::new();
    for problem in problems() {
        let expected = problem.expected();
        for isa in Isa::available() {
            let actual = problem.run(&Cpu::with_isa(isa, 2));
            let difference = compare(&actual, &expected, Tolerance::FastMath).unwrap();
            if !difference.within {
                failures.push(format!("{} on {isa:?}: {difference}", problem.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let cpus = [1, 2, 7].map(Cpu::new);
    for problem in problems() {
        let [one, two, seven] = cpus.each_ref().map(|cpu| bits(&problem.run(cpu)));
        assert!(one == two, "{} differs between 1 and 2 threads", problem.name);
        assert!(one == seven, "{} differs between 1 and 7 threads", problem.name);
    }
}

/// A convolution, a depthwise and a transposed one.
fn shared_graph(size: usize) -> Graph {
    let builder = Builder::new();
    let weights = builder.weights();
    let x = builder.input("x", DType::F32, [1, size, size, 32]);
    let dense = weights.parameter("dense", [32, 32, 3, 3]);
    let depthwise = weights.parameter("depthwise", [32, 1, 3, 3]);
    let up = weights.parameter("up", [32, 16, 2, 2]);
    let y = x.conv2d(dense, Conv2d::new(1, 1)).conv2d(depthwise, grouped(1, 1, 32));
    builder.output("y", y.conv_transpose2d(up, ConvTranspose2d::new(2, 0)));
    builder.finish().unwrap()
}

fn shared_weights(dtype: DType) -> HashMap<String, Tensor> {
    let shapes: [(&str, &[usize]); 3] =
        [("dense", &[32, 32, 3, 3]), ("depthwise", &[32, 1, 3, 3]), ("up", &[32, 16, 2, 2])];
    (1..)
        .zip(shapes)
        .map(|(seed, (name, shape))| (name.to_owned(), noise(shape, seed).cast(dtype).unwrap()))
        .collect()
}

fn not_packed<T>() -> Result<T, TensorError> {
    Err(TensorError::Shape("it was not packed".to_owned()))
}

#[test]
fn programs_share_packed_weights() {
    let cpu = Cpu::new(2);
    let weights = Weights::new(shared_weights(DType::F32));
    let compile = |size| cpu.compile(&shared_graph(size), &weights, &Profile::default()).unwrap();
    let isa = cpu.isa();
    let product_address = |path: &str, form: String| {
        let known = weights.known(&Kind::Parameter(path.to_owned())).unwrap();
        let packed: Arc<Vec<Matrix>> =
            weights.on("cpu").prepared(&known, &form, |_| not_packed()).unwrap();
        Arc::as_ptr(&packed).addr()
    };
    let every = || {
        [
            product_address("dense", format!("conv2d {} 1", isa.name())),
            product_address("up", format!("conv_transpose2d rows {}", isa.name())),
        ]
    };
    let first = compile(9);
    let (addresses, forms, memory) = (every(), weights.form_count(), weights.memory());
    let second = compile(14);
    assert_eq!(addresses, every(), "the second program packed a weight again");
    assert_eq!((weights.form_count(), weights.memory()), (forms, memory));
    for (program, size) in [(&first, 9), (&second, 14)] {
        let named = [("x".to_owned(), noise(&[1, size, size, 32], 5))];
        let graph = shared_graph(size);
        let expected = interpret_in::<f64>(&graph, &weights, &borrowed(&named)).unwrap();
        let difference =
            compare(&run(&**program, &named), &expected[0].1, Tolerance::FastMath).unwrap();
        assert!(difference.within, "{difference}");
    }
}

#[test]
fn weights_in_half_precision_are_packed_exactly() {
    let cpu = Cpu::new(2);
    let named = [("x".to_owned(), noise(&[1, 9, 9, 32], 5))];
    for dtype in [DType::F16, DType::BF16] {
        let half = shared_weights(dtype);
        let single = half
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.cast(DType::F32).unwrap()))
            .collect();
        let [half, single] = [half, single].map(|tensors: HashMap<String, Tensor>| {
            let weights = Weights::new(tensors);
            let graph = shared_graph(9);
            let program = cpu.compile(&graph, &weights, &Profile::default()).unwrap();
            bits(&run(&*program, &named))
        });
        assert!(half == single, "{dtype:?}");
    }
}

/// Slices of a larger image: rows and pixels are not contiguous.
#[test]
fn convolutions_read_strided_images() {
    let ops: [(&str, Conv2d, [usize; 4]); 5] = [
        ("dense", Conv2d::new(1, 1), [20, 16, 3, 3]),
        ("overlapping", Conv2d::new(2, 2), [20, 16, 5, 5]),
        ("pointwise", Conv2d::new(1, 0), [20, 16, 1, 1]),
        ("depthwise", grouped(1, 1, 16), [16, 1, 3, 3]),
        ("groups", grouped(1, 1, 4), [8, 4, 3, 3]),
    ];
    let whole = noise(&[2, 26, 27, 40], 1);
    for (name, op, shape) in ops {
        let builder = Builder::new();
        let x = builder.input("x0", DType::F32, [2, 26, 27, 40]);
        let part = x.slice(3, 7..23).slice(1, 3..25).slice(2, 1..24);
        let weight = builder.input("x1", DType::F32, shape);
        builder.output("y", part.conv2d(weight, op));
        let graph = builder.finish().unwrap();
        let named = [("x0".to_owned(), whole.clone()), ("x1".to_owned(), noise(&shape, 2))];
        let weights = Weights::default();
        let expected = interpret_in::<f64>(&graph, &weights, &borrowed(&named)).unwrap();
        let program = Cpu::new(2).compile(&graph, &weights, &Profile::default()).unwrap();
        let (outputs, steps) = program.run_named_timed(&borrowed(&named)).unwrap();
        let difference = compare(&outputs[0].1, &expected[0].1, Tolerance::FastMath).unwrap();
        assert!(difference.within, "{name}: {difference}");
        assert!(steps.iter().all(|step| step.op != "copy"), "{name} copies its image first");
    }
}

/// NaN in the image reaches the same outputs as in the definition, and no others.
#[test]
fn not_a_number_spreads_as_in_the_definition() {
    for mut problem in problems() {
        let mut values = problem.inputs[0].to_vec::<f32>().unwrap();
        let apart = values.len() / 40 + 1;
        values.iter_mut().step_by(apart).for_each(|value| *value = f32::NAN);
        let shape = problem.inputs[0].shape().clone();
        problem.inputs[0] = Tensor::from_vec(shape, values).unwrap();
        let expected = problem.expected().to_vec::<f32>().unwrap();
        for isa in Isa::available() {
            let actual = problem.run(&Cpu::with_isa(isa, 2)).to_vec::<f32>().unwrap();
            let differs = |i: &usize| actual[*i].is_nan() != expected[*i].is_nan();
            let first = (0..actual.len()).find(differs);
            assert_eq!(first, None, "{} on {isa:?}", problem.name);
        }
        assert!(expected.iter().any(|value| value.is_nan()), "{}: no NaN arrived", problem.name);
    }
}

#[test]
fn invalid_boxes_are_refused() {
    let mut problem = boxes();
    problem.inputs[1] = Tensor::from_vec([1, 5], vec![5.0f32, 0.0, 0.0, 1.0, 1.0]).unwrap();
    let program =
        Cpu::new(1).compile(&problem.graph(), &problem.weights(), &Profile::default()).unwrap();
    let error = program.run_named(&borrowed(&problem.named())).unwrap_err().to_string();
    assert!(error.contains("box 0: batch index 5 is outside a batch of 2"), "{error}");
}
