//! Products of bytes against plain loops of the documented arithmetic, on every instruction set of the machine.

use cutout_parallel::Pool;
use cutout_tensor::{DType, LazyTensor, QuantizedMatrix, Tensor};
use cutout_testing::skip;

use super::*;
use crate::gemm::tests::{Noise, Packed};
use crate::gemm::{Activation, Epilogue, Output, Residual, RowMajor};
use crate::simd::Isa;

/// A weight in 8 bits.
struct QuantizedWeight {
    /// `[outputs, depth]`
    data: Vec<i8>,
    /// `[outputs, granularity.per_row(depth)]`
    scales: Vec<f32>,
    outputs: usize,
    depth: usize,
    granularity: Scales,
}

impl QuantizedWeight {
    fn quantize(weight: &[f32], outputs: usize, depth: usize, granularity: Scales) -> Self {
        let matrix = Tensor::from_vec([outputs, depth], weight.to_vec()).unwrap();
        let quantized = QuantizedMatrix::quantize(&matrix, granularity).unwrap();
        let (data, scales) =
            (quantized.values.to_vec().unwrap(), quantized.scales.to_vec().unwrap());
        QuantizedWeight { data, scales, outputs, depth, granularity }
    }

    fn view(&self) -> Int8View<'_> {
        let QuantizedWeight { ref data, ref scales, outputs, depth, granularity } = *self;
        Int8View { data, scales, outputs, depth, granularity }
    }
}

/// Instructions and a unit.
type Path = (Isa, ByteUnit);

const PLAIN: Path = (Isa::Portable, ByteUnit::Vectors);

/// Every unit and instruction set of the machine.
fn paths() -> impl Iterator<Item = Path> {
    let units = ByteUnit::ALL.into_iter().filter(|unit| unit.is_available());
    units.flat_map(|unit| Isa::available().into_iter().map(move |isa| (isa, unit)))
}

struct Problem {
    rows: usize,
    left: Vec<f32>,
    weight: QuantizedWeight,
    bias: Vec<f32>,
}

const GRANULARITIES: [Scales; 2] = [Scales::PerRow, Scales::PerBlock];

impl Problem {
    /// Weights over the whole range of bytes, -128 included.
    fn new(rows: usize, depth: usize, outputs: usize, granularity: Scales) -> Problem {
        let mut noise = Noise((rows * 7919 + depth * 104_729 + outputs) as u64);
        let data = (0..outputs * depth).map(|_| noise.next() as i8).collect();
        let scales = outputs * granularity.per_row(depth);
        let scales = (0..scales).map(|_| 0.01 + noise.float().abs() / 50.0).collect();
        let weight = QuantizedWeight { data, scales, outputs, depth, granularity };
        Problem { rows, left: noise.floats(rows * depth), weight, bias: noise.floats(outputs) }
    }

    fn run(&self, path: Path, threads: usize, epilogue: &Epilogue<'_>) -> Vec<f32> {
        let QuantizedWeight { outputs, depth, .. } = self.weight;
        let mut output = vec![f32::NAN; self.rows * outputs];
        let left = RowMajor::new(&self.left, self.rows, depth, depth);
        let packed = PackedInt8::pack(&Pool::new(2), path, &self.weight.view()).unwrap();
        let pool = Pool::new(threads);
        gemm_int8(&pool, &left, &packed, epilogue, Output::new(&mut output, outputs));
        output
    }

    /// The documented arithmetic, without an epilogue.
    fn expected(&self) -> Vec<f32> {
        let QuantizedWeight { outputs, depth, .. } = self.weight;
        let mut expected = Vec::new();
        for row in 0..self.rows {
            let (scale, bytes) = quantized(&self.left[row * depth..][..depth]);
            expected.extend((0..outputs).map(|output| self.element(scale, &bytes, output)));
        }
        expected
    }

    fn element(&self, scale: f32, bytes: &[i32], output: usize) -> f32 {
        let QuantizedWeight { ref data, ref scales, depth, granularity, .. } = self.weight;
        let weights = &data[output * depth..][..depth];
        let sum = |range: std::ops::Range<usize>| -> f32 {
            range.map(|k| bytes[k] * i32::from(weights[k])).sum::<i32>() as f32
        };
        let count = granularity.per_row(depth);
        match granularity {
            Scales::PerRow => sum(0..depth) * (scale * scales[output]),
            Scales::PerBlock => {
                let add = |total: f32, block: usize| {
                    let sum = sum(block * BLOCK..depth.min((block + 1) * BLOCK));
                    sum.mul_add(scales[output * count + block], total)
                };
                (0..count).fold(0.0, add) * scale
            }
        }
    }
}

/// A row's scale and bytes by the definition.
fn quantized(row: &[f32]) -> (f32, Vec<i32>) {
    if row.iter().any(|x| !x.is_finite()) {
        return (f32::NAN, vec![0; row.len()]);
    }
    let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest < 2f32.powi(-120) {
        return (0.0, vec![0; row.len()]);
    }
    let factor = 127.0 / largest;
    (largest / 127.0, row.iter().map(|x| (x * factor).round_ties_even() as i32).collect())
}

/// Whether all elements have the same bits, or differ by rounding only where the machine has no fused multiply-add.
fn agree(isa: Isa, found: &[f32], expected: &[f32]) -> bool {
    let close = |a: f32, b: f32| isa == Isa::Portable && (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(&a, &b)| same(a, b) || close(a, b))
}

#[test]
fn the_documented_arithmetic_bit_for_bit() {
    for path in paths() {
        for granularity in GRANULARITIES {
            let mut noise = Noise(21);
            for _ in 0..40 {
                let (rows, depth, outputs) = (noise.up_to(40), noise.up_to(150), noise.up_to(130));
                let problem = Problem::new(rows, depth, outputs, granularity);
                let found = problem.run(path, 1, &Epilogue::NONE);
                let equal = agree(path.0, &found, &problem.expected());
                assert!(equal, "{path:?} {granularity:?} {rows}x{depth}x{outputs}");
            }
        }
    }
}

/// Shapes that end inside a tile of rows, columns or depths, and such that do not.
#[test]
fn tiles_have_the_bits_of_vectors() {
    let shapes = [
        (48, 64, 32),
        (49, 65, 33),
        (1, 1, 1),
        (15, 63, 31),
        (97, 128, 64),
        (16, 300, 5),
        (200, 7, 70),
    ];
    for (rows, depth, outputs) in shapes {
        let problem = Problem::new(rows, depth, outputs, Scales::PerRow);
        let residual = Noise(9).floats(rows * outputs);
        let epilogue = Epilogue {
            scale: 0.7,
            bias: Some(&problem.bias),
            activation: Activation::Gelu,
            residual: Residual::Rows { data: &residual, row_stride: outputs },
        };
        for isa in Isa::available() {
            let of = |unit| problem.run((isa, unit), 2, &epilogue);
            let by_vectors = of(ByteUnit::Vectors);
            for unit in [ByteUnit::TileTwin, ByteUnit::Tiles] {
                let equal = !unit.is_available() || of(unit) == by_vectors;
                assert!(equal, "{isa:?} {unit:?} {rows}x{depth}x{outputs}");
            }
        }
    }
    if !ByteUnit::Tiles.is_available() {
        skip("no tile registers (AMX): products of bytes ran on their twin only");
    }
}

#[test]
fn extreme_bytes_over_a_long_depth_do_not_saturate() {
    for path in paths() {
        for granularity in GRANULARITIES {
            for (activation, weight) in [(1.0, -128), (-1.0, -128), (1.0, 127), (-1.0, 127)] {
                let mut problem = Problem::new(3, 5000, 20, granularity);
                problem.left.fill(activation);
                problem.weight.data.fill(weight);
                let found = problem.run(path, 1, &Epilogue::NONE);
                assert!(agree(path.0, &found, &problem.expected()), "{path:?} {granularity:?}");
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for path in paths() {
        for granularity in GRANULARITIES {
            for (rows, depth, outputs) in [(1, 300, 1000), (700, 70, 100)] {
                let problem = Problem::new(rows, depth, outputs, granularity);
                let one = problem.run(path, 1, &Epilogue::NONE);
                for threads in [2, 7] {
                    assert!(
                        problem.run(path, threads, &Epilogue::NONE) == one,
                        "{path:?} {threads}"
                    );
                }
            }
        }
    }
}

#[test]
fn not_finite_rows_become_nan_and_leave_the_others_alone() {
    for path in paths() {
        for granularity in GRANULARITIES {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
                let mut problem = Problem::new(21, 50, 60, granularity);
                problem.left[7 * 50 + 49] = bad;
                problem.left[9 * 50] = bad;
                let found = problem.run(path, 1, &Epilogue::NONE);
                assert!(
                    agree(path.0, &found, &problem.expected()),
                    "{path:?} {granularity:?} {bad}"
                );
                let nan = |row: usize| found[row * 60..][..60].iter().all(|x| x.is_nan());
                assert!(nan(7) && nan(9) && !nan(8), "{path:?} {granularity:?} {bad}");
            }
        }
    }
}

#[test]
fn zero_and_tiny_rows_give_zero() {
    for path in paths() {
        for granularity in GRANULARITIES {
            for value in [0.0, -0.0, 1e-40, f32::MIN_POSITIVE] {
                let mut problem = Problem::new(5, 20, 30, granularity);
                problem.left.fill(value);
                let found = problem.run(path, 1, &Epilogue::NONE);
                assert!(found.iter().all(|&x| x == 0.0), "{path:?} {granularity:?} {value}");
            }
        }
    }
}

#[test]
fn epilogues_follow_the_sums() {
    for path in paths() {
        for granularity in GRANULARITIES {
            let problem = Problem::new(20, 40, 70, granularity);
            let residual = Noise(5).floats(20 * 70);
            let epilogue = Epilogue {
                scale: 0.5,
                bias: Some(&problem.bias),
                activation: Activation::Relu,
                residual: Residual::Rows { data: &residual, row_stride: 70 },
            };
            let found = problem.run(path, 2, &epilogue);
            let expected: Vec<f32> = problem
                .expected()
                .iter()
                .enumerate()
                .map(|(i, sum)| (sum * 0.5 + problem.bias[i % 70]).max(0.0) + residual[i])
                .collect();
            assert!(agree(path.0, &found, &expected), "{path:?} {granularity:?}");
        }
    }
}

#[test]
fn depth_zero_applies_the_epilogue_to_zero() {
    for path in paths() {
        for granularity in GRANULARITIES {
            let problem = Problem::new(4, 0, 30, granularity);
            let epilogue = Epilogue { bias: Some(&problem.bias), ..Epilogue::NONE };
            let found = problem.run(path, 1, &epilogue);
            assert_eq!(found, problem.bias.repeat(4), "{path:?} {granularity:?}");
        }
    }
}

#[test]
fn any_source_can_be_the_left_operand() {
    for path in paths() {
        let problem = Problem::new(30, 50, 60, Scales::PerRow);
        let left = Packed(RowMajor::new(&problem.left, 30, 50, 50));
        let packed = PackedInt8::pack(&Pool::new(2), path, &problem.weight.view()).unwrap();
        let mut output = vec![0.0; 30 * 60];
        let target = Output::new(&mut output, 60);
        gemm_int8(&Pool::new(2), &left, &packed, &Epilogue::NONE, target);
        assert_eq!(output, problem.run(path, 1, &Epilogue::NONE), "{path:?}");
    }
}

#[test]
fn quantised_products_are_close_to_the_exact_ones() {
    let (rows, depth, outputs) = (12, 300, 40);
    let mut noise = Noise(77);
    let (left, weight) = (noise.floats(rows * depth), noise.floats(outputs * depth));
    for granularity in GRANULARITIES {
        let problem = Problem {
            rows,
            left: left.clone(),
            weight: QuantizedWeight::quantize(&weight, outputs, depth, granularity),
            bias: vec![],
        };
        let found = problem.run((Isa::detect(), ByteUnit::Vectors), 1, &Epilogue::NONE);
        for (index, &value) in found.iter().enumerate() {
            let (row, output) = (index / outputs, index % outputs);
            let pairs = left[row * depth..].iter().zip(&weight[output * depth..]).take(depth);
            let exact: f64 = pairs.map(|(&a, &w)| f64::from(a) * f64::from(w)).sum();
            // Each factor is off by at most half a step of 1 / 127; errors are independent.
            let error = (f64::from(value) - exact).abs();
            assert!(error < 5.0 * (depth as f64).sqrt() / 254.0, "{granularity:?}: {error}");
        }
    }
}

#[test]
#[should_panic(expected = "scales of the weight")]
fn missing_scales_are_refused() {
    let mut problem = Problem::new(1, 40, 3, Scales::PerBlock);
    problem.weight.scales.pop();
    let _ = PackedInt8::pack(&Pool::new(1), PLAIN, &problem.weight.view());
}

#[test]
#[should_panic(expected = "is beyond")]
fn a_depth_whose_sums_could_overflow_is_refused() {
    let data = vec![0; MAX_DEPTH + 1];
    let weight = QuantizedWeight {
        data,
        scales: vec![1.0],
        outputs: 1,
        depth: MAX_DEPTH + 1,
        granularity: Scales::PerRow,
    };
    let _ = PackedInt8::pack(&Pool::new(1), PLAIN, &weight.view());
}

#[test]
fn a_weight_that_is_quantised_while_it_is_packed_has_the_same_panels() {
    for (outputs, depth) in [(1, 1), (33, 70), (130, 64), (7, 129)] {
        let weight = Noise(5).floats(outputs * depth);
        let matrix = Tensor::from_vec([outputs, depth], weight).unwrap();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let matrix = matrix.cast(dtype).unwrap();
            let floats = matrix.cast(DType::F32).unwrap().to_vec::<f32>().unwrap();
            let weight = QuantizedWeight::quantize(&floats, outputs, depth, Scales::PerRow);
            for path in paths() {
                let expected = PackedInt8::pack(&Pool::new(1), path, &weight.view()).unwrap();
                let lazy = LazyTensor::from(matrix.clone());
                let found = PackedInt8::quantize(&Pool::new(3), path, &lazy).unwrap();
                assert_eq!(found.data[..], expected.data[..], "{dtype} {path:?}");
                assert_eq!(found.scales[..], expected.scales[..], "{dtype} {path:?}");
                assert_eq!(found.starts[..], expected.starts[..], "{dtype} {path:?}");
            }
        }
    }
}

#[test]
fn a_weight_with_a_nan_is_not_quantised() {
    let mut weight = vec![1f32; 100 * 8];
    weight[790] = f32::NAN;
    let lazy = LazyTensor::from(Tensor::from_vec([100, 8], weight).unwrap());
    assert!(PackedInt8::quantize(&Pool::new(2), PLAIN, &lazy).is_err());
}
