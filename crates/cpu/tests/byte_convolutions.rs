//! Convolutions of bytes: numbers that are not finite, depths without a limit, threads, and which of them there are.

use cutout_cpu::{ByteConvolutions, ByteUnit, Cpu, HalfUnit, Isa, Units};
use cutout_graph::ops::{Conv2d, ConvTranspose2d, LONGEST_GROUP};
use cutout_graph::{Backend, Builder, Graph, Op, Precision, Profile, Weights, interpret_in};
use cutout_tensor::{DType, Shape, Tensor, Tolerance, compare};
use cutout_testing::{Random, interpret_quantized};

fn noise(shape: impl Into<Shape>, seed: u64) -> Tensor {
    let shape = shape.into();
    let mut random = Random::new(seed);
    let values = (0..shape.elements()).map(|_| random.normal() as f32).collect();
    Tensor::from_vec(shape, values).unwrap()
}

/// An op of an input and a weight.
struct Sample {
    graph: Graph,
    weights: Weights,
    x: Tensor,
}

impl Sample {
    fn new(op: impl Into<Op>, x: [usize; 4], weight: [usize; 4]) -> Sample {
        let builder = Builder::new();
        let (input, w) = (builder.input("x", DType::F32, x), builder.weights());
        builder.output("y", input.apply(op, &[w.parameter("weight", weight)]));
        let weights = Weights::new([("weight".to_owned(), noise(weight, 2))].into());
        Sample { graph: builder.finish().unwrap(), weights, x: noise(x, 1) }
    }

    fn run(&self, cpu: &Cpu) -> Vec<f32> {
        let profile = Profile { precision: Precision::Int8, ..Profile::default() };
        let program = cpu.compile(&self.graph, &self.weights, &profile).unwrap();
        program.run_named(&[("x", &self.x)]).unwrap().remove(0).1.to_vec().unwrap()
    }

    fn quantized(&self) -> Vec<f32> {
        let result = interpret_quantized(&self.graph, &self.weights, &[("x", &self.x)]);
        result.unwrap().remove(0).1.to_vec().unwrap()
    }

    fn plain(&self) -> Vec<f32> {
        let result = interpret_in::<f64>(&self.graph, &self.weights, &[("x", &self.x)]);
        result.unwrap().remove(0).1.to_vec().unwrap()
    }
}

/// Whether all elements differ by rounding of the result at most.
fn agree(found: &[f32], expected: &[f32]) -> bool {
    let tensor = |values: &[f32]| Tensor::from_vec([values.len()], values.to_vec()).unwrap();
    compare(&tensor(found), &tensor(expected), Tolerance::Rounding).unwrap().within
}

/// Every instruction set and unit of the machine, with a number of threads.
fn cpus(byte_convolutions: ByteConvolutions, threads: usize) -> Vec<(String, Cpu)> {
    let mut cpus = Vec::new();
    for isa in Isa::available() {
        for bytes in ByteUnit::ALL.into_iter().filter(|unit| unit.is_available()) {
            let half = HalfUnit::Widened;
            let units = Units { half, bytes, byte_attention: false, byte_convolutions };
            let name = format!("{} {}", isa.name(), bytes.name());
            cpus.push((name, Cpu::with_units(isa, units, threads)));
        }
    }
    cpus
}

/// Patches that are read in place, with and without gaps between pixels; patches that are packed first, one of them longer than the memory
/// for that; an image whose pixels are the rows of the product.
fn samples() -> Vec<Sample> {
    let conv = |x, weight, stride, padding| Sample::new(Conv2d::new(stride, padding), x, weight);
    let grouped = Conv2d { groups: 2, ..Conv2d::new(1, 1) };
    let uneven = Conv2d { stride: [2, 1], padding: [[2, 0], [0, 3]], ..Conv2d::new(1, 0) };
    let transposed =
        |x, weight, stride, padding| Sample::new(ConvTranspose2d::new(stride, padding), x, weight);
    vec![
        conv([1, 23, 19, 64], [40, 64, 3, 3], 1, 1),
        conv([2, 9, 11, 128], [33, 128, 3, 3], 2, 1),
        conv([1, 9, 11, 1088], [17, 1088, 2, 2], 1, 1),
        conv([1, 21, 22, 48], [70, 48, 3, 3], 1, 1),
        conv([1, 5, 6, 600], [9, 600, 3, 3], 1, 1),
        conv([2, 15, 16, 96], [50, 96, 1, 1], 1, 0),
        Sample::new(grouped, [1, 12, 13, 128], [34, 64, 3, 3]),
        Sample::new(uneven, [2, 9, 10, 64], [20, 64, 3, 2]),
        transposed([1, 9, 10, 96], [96, 32, 2, 2], 2, 0),
        transposed([2, 8, 9, 64], [64, 20, 2, 2], 2, 0),
        transposed([1, 9, 10, 64], [64, 24, 4, 4], 2, 1),
    ]
}

#[test]
fn the_definition_on_every_path_with_the_same_bits_for_any_number_of_threads() {
    for (number, sample) in samples().iter().enumerate() {
        let expected = sample.quantized();
        assert!(!agree(&sample.plain(), &expected), "sample {number}: rounding changes nothing");
        let by_threads = [1, 2, 7].map(|threads| cpus(ByteConvolutions::All, threads));
        for (index, (name, cpu)) in by_threads[0].iter().enumerate() {
            let found = sample.run(cpu);
            assert!(agree(&found, &expected), "sample {number} on {name}");
            for others in &by_threads[1..] {
                assert_eq!(sample.run(&others[index].1), found, "sample {number} on {name}");
            }
        }
    }
}

#[test]
fn a_number_that_is_not_finite_gives_nan_in_the_patches_that_contain_it() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for channels in [64, 20] {
            let mut sample =
                Sample::new(Conv2d::new(1, 1), [1, 9, 11, channels], [35, channels, 3, 3]);
            let mut values = sample.x.to_vec::<f32>().unwrap();
            values[(4 * 11 + 6) * channels + channels / 2] = bad;
            sample.x = Tensor::from_vec([1, 9, 11, channels], values).unwrap();
            for (name, cpu) in cpus(ByteConvolutions::All, 2) {
                for (pixel, outputs) in sample.run(&cpu).chunks_exact(35).enumerate() {
                    let near = (pixel / 11).abs_diff(4) <= 1 && (pixel % 11).abs_diff(6) <= 1;
                    let all = outputs.iter().all(|y| y.is_nan() == near);
                    assert!(all, "{name}, {channels} channels: {bad} at pixel {pixel}");
                }
            }
        }
    }
}

#[test]
fn sums_that_could_overflow_are_not_of_bytes() {
    let channels = LONGEST_GROUP / 4 + 1;
    let conv = Sample::new(Conv2d::new(1, 0), [1, 2, 2, channels], [3, channels, 2, 2]);
    let transposed =
        Sample::new(ConvTranspose2d::new(1, 1), [1, 2, 2, channels], [channels, 3, 2, 2]);
    for sample in [conv, transposed] {
        let expected = sample.plain();
        for (name, cpu) in cpus(ByteConvolutions::All, 2) {
            let found = sample.run(&cpu);
            let error = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
            assert!(error < 1e-2, "{name}: {error}");
        }
    }
}

#[test]
fn an_image_without_pixels_has_none_in_the_output() {
    let conv = Sample::new(Conv2d::new(1, 1), [0, 4, 4, 64], [5, 64, 3, 3]);
    let transposed = Sample::new(ConvTranspose2d::new(2, 0), [0, 4, 4, 64], [64, 5, 2, 2]);
    for (_, cpu) in cpus(ByteConvolutions::All, 2) {
        assert!(conv.run(&cpu).is_empty() && transposed.run(&cpu).is_empty());
    }
}

/// Images of few channels keep their precision, whatever the machine has for bytes.
#[test]
fn pictures_and_depthwise_convolutions_are_not_quantised() {
    let picture = Sample::new(Conv2d::new(4, 0), [1, 32, 32, 3], [70, 3, 4, 4]);
    let depthwise = Conv2d { groups: 37, ..Conv2d::new(1, 3) };
    let depthwise = Sample::new(depthwise, [1, 9, 8, 37], [37, 1, 7, 7]);
    let wide = Sample::new(Conv2d::new(1, 1), [1, 9, 8, 64], [37, 64, 3, 3]);
    for (name, cpu) in cpus(ByteConvolutions::Faster, 2) {
        assert!(agree(&picture.run(&cpu), &picture.plain()), "{name}");
        assert!(agree(&depthwise.run(&cpu), &depthwise.plain()), "{name}");
        assert!(agree(&wide.run(&cpu), &wide.quantized()), "{name}");
    }
    for (name, cpu) in cpus(ByteConvolutions::None, 2) {
        assert!(agree(&wide.run(&cpu), &wide.plain()), "{name}");
    }
}

/// A weight that is computed at run time is not quantised, which would take time in every run.
#[test]
fn weights_that_are_known_at_run_time_only_keep_their_precision() {
    let (x, weight) = (noise([1, 9, 8, 64], 1), noise([37, 64, 3, 3], 2));
    let builder = Builder::new();
    let image = builder.input("x", DType::F32, [1, 9, 8, 64]);
    let kernel = builder.input("weight", DType::F32, [37, 64, 3, 3]);
    builder.output("y", image.conv2d(kernel, Conv2d::new(1, 1)));
    let graph = builder.finish().unwrap();
    let given = [("x", &x), ("weight", &weight)];
    let expected = interpret_in::<f64>(&graph, &Weights::default(), &given).unwrap().remove(0).1;
    let expected = expected.to_vec::<f32>().unwrap();
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    for (name, cpu) in cpus(ByteConvolutions::All, 2) {
        let program = cpu.compile(&graph, &Weights::default(), &profile).unwrap();
        let found = program.run_named(&given).unwrap().remove(0).1.to_vec::<f32>().unwrap();
        assert!(agree(&found, &expected), "{name}");
    }
}
