//! Products that end in f32 with a residual: tiles of every size, several for each multiprocessor, parts of the depth, edges that cut tiles, and results that
//! replace the residual in memory.

use std::collections::HashMap;

use cutout_cuda::Cuda;
use cutout_graph::{Backend, Builder, Graph, Precision, Value, Weights, interpret_in};
use cutout_tensor::{DType, Tensor};
use cutout_testing::Random;

use super::bytes::times_bytes;
use super::{allowed, bytes, card, noise, profile, relative_error};

/// Rows, depth and columns of the encoders' products with a residual, with more and with fewer rows than tiles have.
const SHAPES: [[usize; 3]; 22] = [
    [4096, 768, 768],
    [4096, 3072, 768],
    [4096, 1024, 1024],
    [4096, 4096, 1024],
    [4096, 1280, 1280],
    [4096, 5120, 1280],
    [5184, 1024, 1024],
    [5184, 4736, 1024],
    [5184, 256, 256],
    [5184, 2048, 256],
    [16384, 192, 192],
    [65536, 144, 144],
    [4096, 2304, 576],
    [16384, 1152, 288],
    [1024, 4608, 1152],
    [4999, 136, 1000],
    [20001, 64, 712],
    [131, 40, 72],
    [201, 2048, 256],
    [4, 1024, 3072],
    [4, 4096, 1024],
    [33, 576, 52],
];

/// Makes products of one graph.
struct Products<'g> {
    builder: &'g Builder,
    weights: HashMap<String, Tensor>,
    random: Random,
    of_bytes: bool,
}

impl<'g> Products<'g> {
    /// `x` times a random weight, with a bias.
    fn of(&mut self, x: Value<'g>, columns: usize, name: &str) -> Value<'g> {
        if self.of_bytes {
            return times_bytes(x, columns, &mut self.random);
        }
        let depth = x.shape().last_axis();
        let parameters = self.builder.weights();
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let y = x.linear(parameters.parameter(&weight, [columns, depth]))
            + parameters.parameter(&bias, [columns]);
        let scale = 1.0 / (depth as f64).sqrt();
        self.weights.insert(weight, noise(&mut self.random, &[columns, depth], scale));
        self.weights.insert(bias, noise(&mut self.random, &[columns], 0.5));
        y
    }
}

/// `first = x·A + a + residual` and `second = first·B + b + first`, of halves or of bytes: the second may replace the first.
fn two_products([rows, depth, columns]: [usize; 3], of_bytes: bool) -> (Graph, Weights) {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [rows, depth]);
    let residual = builder.input("residual", DType::F32, [rows, columns]);
    let mut products =
        Products { builder: &builder, weights: HashMap::new(), random: Random::new(5), of_bytes };
    let first = products.of(x, columns, "first") + residual;
    builder.output("second", products.of(first, columns, "second") + first);
    let weights = Weights::new(products.weights);
    (builder.finish().unwrap(), weights)
}

/// Some rows of a matrix: the first and last ones, and a few between.
fn some_rows(matrix: &Tensor) -> Tensor {
    let [rows, columns] = [matrix.shape()[0], matrix.shape()[1]];
    let values = matrix.to_vec::<f32>().unwrap();
    let between = (1..4).map(|k| k * rows / 4);
    let chosen: Vec<usize> =
        (0..rows.min(6)).chain(between).chain(rows.saturating_sub(6)..rows).collect();
    let row = |&row: &usize| &values[row * columns..][..columns];
    let some = chosen.iter().flat_map(row).copied().collect();
    Tensor::from_vec([chosen.len(), columns], some).unwrap()
}

/// The relative error of some rows to the reference; the others do not decide them.
fn residual_error(cuda: &Cuda, shape: [usize; 3], precision: Precision) -> Result<f64, String> {
    let [rows, depth, columns] = shape;
    let mut random = Random::new(6);
    let x = noise(&mut random, &[rows, depth], 1.0);
    let residual = noise(&mut random, &[rows, columns], 1.0);
    let of_bytes = precision == Precision::Int8;
    let (graph, weights) = two_products(shape, of_bytes);
    let program = cuda.compile(&graph, &weights, &profile(precision)).map_err(|e| e.to_string())?;
    let run = || {
        let inputs: [(&str, &Tensor); 2] = [("x", &x), ("residual", &residual)];
        program.run_named(&inputs).map_err(|e| e.to_string())
    };
    let actual = run()?;
    if bytes(&actual) != bytes(&run()?) {
        return Err("two runs differ".to_owned());
    }
    let (x, residual) = (some_rows(&x), some_rows(&residual));
    let (graph, weights) = two_products([x.shape()[0], depth, columns], of_bytes);
    let inputs: [(&str, &Tensor); 2] = [("x", &x), ("residual", &residual)];
    let expected = interpret_in::<f64>(&graph, &weights, &inputs).map_err(|e| e.to_string())?;
    relative_error(&some_rows(&actual[0].1), &expected[0].1)
}

#[test]
fn residuals_of_many_shapes() {
    let Some(cuda) = card() else { return };
    let mut failures = Vec::new();
    for shape in SHAPES {
        for precision in [Precision::F32, Precision::F16, Precision::Bf16, Precision::Int8] {
            let most = match precision {
                // Two products, and sums of up to 5120 numbers.
                Precision::F32 => 2e-5,
                // Rows are rounded to halves before they are rounded to bytes.
                Precision::Int8 => 1e-2,
                Precision::Auto | Precision::F16 | Precision::Bf16 => allowed(precision),
            };
            match residual_error(&cuda, shape, precision) {
                Ok(error) if error <= most => println!("{shape:?} {precision:?}: {error:.1e}"),
                Ok(error) => failures.push(format!("{shape:?} {precision:?}: {error:.2e}")),
                Err(error) => failures.push(format!("{shape:?} {precision:?}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
