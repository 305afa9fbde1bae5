//! Attention of bytes against its definition in plain loops, and with numbers that are not finite.

use cutout_cpu::{Cpu, Isa, Units};
use cutout_graph::ops::Attention;
use cutout_graph::{Backend, Builder, Precision, Profile, Weights};
use cutout_tensor::{DType, Shape, Tensor};
use cutout_testing::Random;

/// Keys of a block of narrow heads.
const BLOCK: usize = 128;
/// Most keys that the mean is taken of.
const SAMPLES: usize = 64;

/// `[tokens, width]` of one head.
#[derive(Clone)]
struct Rows {
    width: usize,
    data: Vec<f32>,
}

impl Rows {
    fn noise(seed: u64, tokens: usize, width: usize) -> Rows {
        let mut random = Random::new(seed);
        // Channels of different size and offset, as models have them.
        let data = (0..tokens * width).map(|index| {
            let channel = index % width;
            (random.normal() * (1.0 + channel as f64 / 4.0) + channel as f64 / 8.0) as f32
        });
        Rows { width, data: data.collect() }
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.data.chunks_exact(self.width)
    }

    fn tensor(&self) -> Tensor {
        let shape = Shape::from([1, self.data.len() / self.width, self.width]);
        Tensor::from_vec(shape, self.data.clone()).unwrap()
    }
}

/// Queries, keys and values.
type Inputs = [Rows; 3];

fn inputs() -> Inputs {
    [Rows::noise(1, 77, 21), Rows::noise(2, 300, 21), Rows::noise(3, 300, 13)]
}

const SCALE: f32 = 0.05;

/// The output of one head in int8 on an instruction set.
fn run(isa: Isa, inputs: &Inputs) -> Vec<f32> {
    let builder = Builder::new();
    let tensors = inputs.each_ref().map(Rows::tensor);
    let names = ["query", "key", "value"];
    let [query, key, value] = [0, 1, 2]
        .map(|index| builder.input(names[index], DType::F32, tensors[index].shape().clone()));
    builder.output("y", query.attention(key, value, Attention::new(1, SCALE)));
    let graph = builder.finish().unwrap();
    let units = Units { byte_attention: true, ..Units::detect(isa) };
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    let cpu = Cpu::with_units(isa, units, 2);
    let program = cpu.compile(&graph, &Weights::default(), &profile).unwrap();
    let given: Vec<(&str, &Tensor)> = names.into_iter().zip(&tensors).collect();
    program.run_named(&given).unwrap()[0].1.to_vec::<f32>().unwrap()
}

/// Numbers of at most 127 and their scale.
fn quantized(numbers: &[f32]) -> (Vec<i64>, f64) {
    let largest = numbers.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let round = |x: &f32| (x * (127.0 / largest)).round_ties_even() as i64;
    (numbers.iter().map(round).collect(), f64::from(largest / 127.0))
}

/// One query by a block of keys: the largest score, the sum of the weights, and the weighted values.
fn block(scores: &[f64], values: &[(Vec<i64>, f64)]) -> (f64, f64, Vec<f64>) {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (255.0 * (s - largest).exp2()).round()).collect();
    let weighted = values.iter().map(|(numbers, scale)| {
        let products = numbers.iter().zip(&weights).map(|(&number, weight)| number as f64 * weight);
        scale * products.sum::<f64>()
    });
    (largest, weights.iter().sum(), weighted.collect())
}

/// The definition in plain loops.
fn definition([queries, keys, values]: &Inputs) -> Vec<f32> {
    let count = keys.data.len() / keys.width;
    let sample: Vec<&[f32]> = keys.rows().step_by(count.div_ceil(SAMPLES)).collect();
    let mean =
        |channel: usize| sample.iter().map(|key| key[channel]).sum::<f32>() / sample.len() as f32;
    let mean: Vec<f32> = (0..keys.width).map(mean).collect();
    let shifted = |key: &[f32]| -> Vec<f32> { key.iter().zip(&mean).map(|(k, m)| k - m).collect() };
    let keys: Vec<_> = keys.rows().map(|key| quantized(&shifted(key))).collect();
    let column = |rows: &[&[f32]], channel: usize| -> Vec<f32> {
        rows.iter().map(|row| row[channel]).collect()
    };
    let value_rows: Vec<&[f32]> = values.rows().collect();
    let blocks: Vec<Vec<_>> = value_rows
        .chunks(BLOCK)
        .map(|rows| (0..values.width).map(|channel| quantized(&column(rows, channel))).collect())
        .collect();
    let mut output = Vec::new();
    for query in queries.rows() {
        let (query, query_scale) = quantized(query);
        let score = |(key, key_scale): &(Vec<i64>, f64)| {
            let sum: i64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            let scale = f64::from(SCALE) * std::f64::consts::LOG2_E;
            sum as f64 * query_scale * key_scale * scale
        };
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let parts = scores.chunks(BLOCK).zip(&blocks).map(|(scores, values)| block(scores, values));
        let parts: Vec<_> = parts.collect();
        let largest = parts.iter().map(|part| part.0).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = parts.iter().map(|part| part.1 * (part.0 - largest).exp2()).sum();
        output.extend((0..values.width).map(|channel| {
            let sums = parts.iter().map(|part| part.2[channel] * (part.0 - largest).exp2());
            (sums.sum::<f64>() / total) as f32
        }));
    }
    output
}

/// Root of the squared differences, relative to the expected values.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let differences: f64 = found.iter().zip(expected).map(|(f, e)| square(f - e)).sum();
    (differences / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

/// The vector code may round a weight within 0.1 of the middle of two bytes to the other one; anything else would change more.
#[test]
fn the_output_is_that_of_the_definition() {
    // Heads of less than a vector and of several, and blocks whose last group has one to four keys.
    for (keys, width, value_width) in
        [(300, 21, 13), (301, 70, 77), (302, 64, 64), (303, 16, 144), (304, 80, 32)]
    {
        let inputs = [
            Rows::noise(1, 77, width),
            Rows::noise(2, keys, width),
            Rows::noise(3, keys, value_width),
        ];
        let expected = definition(&inputs);
        for isa in Isa::available() {
            let found = error(&run(isa, &inputs), &expected);
            assert!(found < 8e-4, "{isa:?}, {width} and {value_width} wide: error {found:.1e}");
        }
    }
}

#[test]
fn numbers_that_are_not_finite_give_nan_where_they_take_part_and_nowhere_else() {
    for isa in Isa::available() {
        let nan = |found: &[f32]| found.iter().map(|x| x.is_nan()).collect::<Vec<_>>();
        for bad in [f32::NAN, f32::INFINITY] {
            let mut queries = inputs();
            queries[0].data[5 * 21 + 3] = bad;
            let expected: Vec<bool> = (0..77 * 13).map(|index| index / 13 == 5).collect();
            assert_eq!(nan(&run(isa, &queries)), expected, "{isa:?}: {bad} in a query");
            // The first of them is among those that the mean is taken of.
            for key in [200, 201] {
                let mut keys = inputs();
                keys[1].data[key * 21 + 4] = bad;
                assert_eq!(nan(&run(isa, &keys)), [true; 77 * 13], "{isa:?}: {bad} in key {key}");
            }
            let mut values = inputs();
            values[2].data[299 * 13 + 6] = bad;
            let expected: Vec<bool> = (0..77 * 13).map(|index| index % 13 == 6).collect();
            assert_eq!(nan(&run(isa, &values)), expected, "{isa:?}: {bad} in a value");
        }
    }
}

#[test]
fn zeros_and_denormal_numbers_give_the_mean_of_the_values_and_zeros() {
    for isa in Isa::available() {
        for small in [0.0, 1e-40] {
            let mut tensors = inputs();
            tensors[0].data.fill(small);
            let mut means = [0.0; 13];
            for row in tensors[2].rows() {
                means.iter_mut().zip(row).for_each(|(mean, x)| *mean += x / 300.0);
            }
            let expected = means.repeat(77);
            let found = error(&run(isa, &tensors), &expected);
            assert!(found < 2e-2, "{isa:?}: error {found:.1e}");
            tensors[2].data.fill(small);
            assert_eq!(run(isa, &tensors), [0.0; 77 * 13], "{isa:?}");
        }
    }
}
