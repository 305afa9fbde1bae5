//! Winograd convolutions against plain sums at some of their pixels.

use std::collections::HashMap;
use std::sync::Arc;

use cutout_cpu::gemm::PackedWeights;
use cutout_cpu::{Cpu, Isa};
use cutout_graph::ops::{Activation, Conv2d, Epilogue};
use cutout_graph::{Backend, Builder, Graph, Kind, Profile, Weights};
use cutout_tensor::{DType, Tensor, TensorError};
use cutout_testing::Random;

fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32).collect();
    Tensor::from_vec(shape.to_vec(), values).unwrap()
}

/// A convolution of the middle channels of an image: its pixels have gaps between them.
struct Problem {
    image: [usize; 4],
    inputs: usize,
    outputs: usize,
    op: Conv2d,
}

const SKIPPED: usize = 3;

impl Problem {
    fn output(&self) -> [usize; 4] {
        let [[above, below], [left, right]] = self.op.padding;
        let [batch, height, width, _] = self.image;
        [batch, above + height + below - 2, left + width + right - 2, self.outputs]
    }

    fn graph(&self) -> Graph {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, self.image);
        let x = x.slice(3, SKIPPED..SKIPPED + self.inputs);
        let weight = builder.weights().parameter("weight", [self.outputs, self.inputs, 3, 3]);
        let bias = builder.input("bias", DType::F32, [self.outputs]);
        let residual = builder.input("residual", DType::F32, self.output());
        builder.output("y", x.apply(self.op, &[weight, bias, residual]));
        builder.finish().unwrap()
    }

    fn weights(&self) -> Weights {
        let weight = noise(&[self.outputs, self.inputs, 3, 3], 1);
        Weights::new(HashMap::from([("weight".to_owned(), weight)]))
    }

    fn given(&self) -> [(&'static str, Tensor); 3] {
        let bias = noise(&[self.outputs], 3);
        [("x", noise(&self.image, 2)), ("bias", bias), ("residual", noise(&self.output(), 4))]
    }

    fn run(&self, cpu: &Cpu) -> Vec<f32> {
        let program = cpu.compile(&self.graph(), &self.weights(), &Profile::default());
        let given = self.given();
        let given: Vec<(&str, &Tensor)> = given.iter().map(|(name, x)| (*name, x)).collect();
        program.unwrap().run_named(&given).unwrap().remove(0).1.to_vec().unwrap()
    }

    /// The outputs of a pixel in all channels, each with the sum of the magnitudes of its terms.
    fn pixel(&self, [image, y, x]: [usize; 3]) -> Vec<(f64, f64)> {
        let [(_, pixels), (_, bias), (_, residual)] = self.given();
        let pixels: Vec<f32> = pixels.to_vec().unwrap();
        let bias: Vec<f32> = bias.to_vec().unwrap();
        let residual: Vec<f32> = residual.to_vec().unwrap();
        let weight: Vec<f32> = noise(&[self.outputs, self.inputs, 3, 3], 1).to_vec().unwrap();
        let [_, height, width, channels] = self.image;
        let [_, rows, columns, outputs] = self.output();
        let sum = |output: usize| {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for tap in 0..9 {
                let row = (y + tap / 3).wrapping_sub(self.op.padding[0][0]);
                let column = (x + tap % 3).wrapping_sub(self.op.padding[1][0]);
                if row >= height || column >= width {
                    continue;
                }
                let start = ((image * height + row) * width + column) * channels + SKIPPED;
                for input in 0..self.inputs {
                    let factor = weight[(output * self.inputs + input) * 9 + tap];
                    let product = f64::from(factor) * f64::from(pixels[start + input]);
                    sum += product;
                    magnitude += product.abs();
                }
            }
            let place = ((image * rows + y) * columns + x) * outputs + output;
            let scaled = f64::from(self.op.epilogue.scale) * sum + f64::from(bias[output]);
            (scaled.max(0.0) + f64::from(residual[place]), magnitude)
        };
        (0..outputs).map(sum).collect()
    }
}

fn problem(image: [usize; 4], channels: [usize; 2], padding: [[usize; 2]; 2]) -> Problem {
    let epilogue =
        Epilogue { scale: 0.5, bias: true, activation: Activation::Relu, residual: true };
    let op = Conv2d { padding, epilogue, ..Conv2d::new(1, 1) };
    let [inputs, outputs] = channels;
    Problem { image: [image[0], image[1], image[2], inputs + SKIPPED + 1], inputs, outputs, op }
}

/// Images with a partial last task, channels that are and are not whole vectors, different padding.
fn problems() -> [Problem; 3] {
    [
        problem([1, 64, 64, 0], [64, 64], [[1, 1], [1, 1]]),
        problem([2, 46, 48, 0], [72, 80], [[1, 1], [0, 2]]),
        problem([1, 68, 70, 0], [65, 100], [[0, 0], [0, 0]]),
    ]
}

#[test]
fn pixels_match_the_definition() {
    for problem in problems() {
        let [images, rows, columns, outputs] = problem.output();
        let corners = [[0, 0, 0], [0, 0, columns - 1], [images - 1, rows - 1, 0]];
        let last = [images - 1, rows - 1, columns - 1];
        let inside = (1..24).map(|i| [i % images, i * 17 % rows, i * 29 % columns]);
        let pixels: Vec<[usize; 3]> = corners.into_iter().chain([last]).chain(inside).collect();
        for isa in Isa::available() {
            let found = problem.run(&Cpu::with_isa(isa, 2));
            for &pixel in &pixels {
                let [image, y, x] = pixel;
                let found = &found[((image * rows + y) * columns + x) * outputs..][..outputs];
                for (channel, (expected, magnitude)) in problem.pixel(pixel).iter().enumerate() {
                    let error = (f64::from(found[channel]) - expected).abs();
                    assert!(error <= 4e-7 * magnitude, "{isa:?} {pixel:?} {channel}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for problem in problems() {
        let [one, two, seven] = [1, 2, 7].map(|threads| problem.run(&Cpu::new(threads)));
        let equal = |other: &[f32]| one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(equal(&two) && equal(&seven));
    }
}

#[test]
fn weights_are_packed_as_16_matrices() {
    let problem = &problems()[0];
    let cpu = Cpu::new(1);
    let weights = problem.weights();
    cpu.compile(&problem.graph(), &weights, &Profile::default()).unwrap();
    let form = format!("conv2d winograd {}", cpu.isa().name());
    let known = weights.known(&Kind::Parameter("weight".to_owned())).unwrap();
    let packed: Arc<Vec<PackedWeights>> = weights
        .on("cpu")
        .prepared(&known, &form, |_| Err(TensorError::Shape("packed in another way".to_owned())))
        .unwrap();
    assert_eq!(packed.len(), 16);
}
