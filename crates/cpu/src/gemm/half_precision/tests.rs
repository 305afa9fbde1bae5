//! Products in bf16 against plain loops in `f64` over the rounded inputs, on every unit and instruction set of the machine.

use cutout_parallel::Pool;
use cutout_tensor::Tensor;
use half::bf16;

use super::tiles::{TILE_BYTES, TileUnit};
use super::twin::Twin;
use super::*;
use crate::gemm::tests::{Noise, Packed as NotInPlace, Problem};
use crate::gemm::{Activation, Arithmetic, Epilogue, LeftSource, Matrix, Output, Residual};

fn units() -> impl Iterator<Item = Arithmetic> {
    let units = HalfUnit::ALL.into_iter().filter(|unit| unit.is_available());
    units.flat_map(|unit| {
        Isa::available()
            .into_iter()
            .map(move |isa| Arithmetic { half: Some(unit), ..Arithmetic::single(isa) })
    })
}

/// The problem with its inputs rounded: what a product of the original inputs computes exactly.
fn rounded(problem: &Problem) -> Problem {
    let mut rounded = Problem::new(problem.rows, problem.depth, problem.columns, problem.gap);
    for value in rounded.left.iter_mut().chain(&mut rounded.weight) {
        *value = bf16::from_f32(*value).to_f32();
    }
    rounded
}

fn run(
    problem: &Problem,
    (arithmetic, threads): (Arithmetic, usize),
    left: &dyn LeftSource,
    epilogue: &Epilogue<'_>,
) -> Vec<f32> {
    let pool = Pool::new(threads);
    let shape = [problem.columns, problem.depth];
    let weight = Tensor::from_vec(shape, problem.weight.clone()).unwrap();
    let matrix = Matrix::pack(&pool, arithmetic, &weight.clone().into(), problem.columns).unwrap();
    assert_eq!((matrix.outputs(), matrix.depth()), (problem.columns, problem.depth));
    let mut output = problem.blank();
    let target = Output::new(&mut output, problem.columns + problem.gap);
    matrix.multiply(&pool, left, epilogue, target);
    output
}

const SHAPES: [(usize, usize, usize); 10] = [
    (1, 1, 1),
    (5, 3, 7),
    (9, 32, 48),
    (17, 33, 65),
    (47, 96, 33),
    (50, 64, 32),
    (8, 2300, 40),
    (130, 71, 100),
    (70, 256, 3),
    (13, 0, 5),
];

#[test]
fn products_are_those_of_the_rounded_inputs() {
    for (rows, depth, columns) in SHAPES {
        let problem = Problem::new(rows, depth, columns, 3);
        let exact = rounded(&problem);
        for arithmetic in units() {
            let epilogue = Epilogue::NONE;
            let what = arithmetic.name();
            let source = problem.source();
            let found = run(&problem, (arithmetic, 2), &source, &epilogue);
            exact.check(&found, &epilogue, &what);
            let gathered = run(&problem, (arithmetic, 2), &NotInPlace(source), &epilogue);
            assert_eq!(found, gathered, "{what}: rows that are gathered");
        }
    }
}

#[test]
fn epilogues_follow_the_sums() {
    for (rows, depth, columns) in [(50, 40, 70), (20, 2300, 35)] {
        let problem = Problem::new(rows, depth, columns, 0);
        let exact = rounded(&problem);
        for arithmetic in units() {
            for activation in [Activation::Identity, Activation::Relu, Activation::Gelu] {
                for residual in [None, Some(Residual::Output)] {
                    let rows = problem.epilogue(0.5, activation);
                    let epilogue = Epilogue { residual: residual.unwrap_or(rows.residual), ..rows };
                    let found = run(&problem, (arithmetic, 2), &problem.source(), &epilogue);
                    let what = format!("{} {activation:?} {residual:?}", arithmetic.name());
                    exact.check(&found, &epilogue, &what);
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let problem = Problem::new(300, 65, 110, 0);
    for arithmetic in units() {
        let of = |threads| run(&problem, (arithmetic, threads), &problem.source(), &Epilogue::NONE);
        assert!([2, 5].into_iter().all(|threads| of(threads) == of(1)), "{}", arithmetic.name());
    }
}

/// Where there are tile registers, whole products have the bits of the twin's.
#[test]
fn tile_registers_and_their_twin_give_the_same_bits() {
    if !HalfUnit::Tiles.is_available() {
        return;
    }
    for (rows, depth, columns) in SHAPES {
        let problem = Problem::new(rows, depth, columns, 0);
        let of = |unit| {
            let arithmetic = Arithmetic { half: Some(unit), ..Arithmetic::single(Isa::detect()) };
            run(&problem, (arithmetic, 1), &problem.source(), &Epilogue::NONE)
        };
        assert_eq!(of(HalfUnit::Tiles), of(HalfUnit::TileTwin), "{rows}x{depth}x{columns}");
    }
}

#[test]
fn packed_weights_take_half_the_memory() {
    let weight = Tensor::from_vec([96, 64], vec![1.0f32; 96 * 64]).unwrap();
    for arithmetic in units() {
        let matrix = Matrix::pack(&Pool::new(1), arithmetic, &weight.clone().into(), 96).unwrap();
        assert_eq!(matrix.bytes(), 96 * 64 * 2, "{}", arithmetic.name());
    }
}

/// A tile of 16 by 16 `f32` or 16 by 32 bf16, filled by position.
fn single_tile(value: impl Fn(usize, usize) -> f32) -> [u8; TILE_BYTES] {
    let mut tile = [0; TILE_BYTES];
    for (index, bytes) in tile.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&value(index / 16, index % 16).to_le_bytes());
    }
    tile
}

fn half_tile(value: impl Fn(usize, usize) -> f32) -> [u8; TILE_BYTES] {
    let mut tile = [0; TILE_BYTES];
    for (index, bytes) in tile.chunks_exact_mut(2).enumerate() {
        bytes.copy_from_slice(&bf16::from_f32(value(index / 32, index % 32)).to_le_bytes());
    }
    tile
}

/// `start + left · right` on a unit, as `f32`.
fn tile_product<U: TileUnit>(tiles: [&[u8; TILE_BYTES]; 3]) -> Vec<f32> {
    let mut result = [0u8; TILE_BYTES];
    // SAFETY: callers name a unit that the machine has; a tile has 16 rows of 64 bytes.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one product")]
    unsafe {
        let mut unit = U::configure();
        unit.load::<0>(tiles[0].as_ptr(), 64);
        unit.load::<1>(tiles[1].as_ptr(), 64);
        unit.load::<2>(tiles[2].as_ptr(), 64);
        unit.dot::<0, 1, 2>();
        unit.store::<0>(result.as_mut_ptr(), 64);
    }
    result.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn the_twin_adds_even_and_odd_depths_apart() {
    // Even depths sum to 2^24 + 1, which rounds to 2^24; odd depths to 1. Added in order, they would give 2^24 + 2.
    let left = half_tile(|_, depth| match depth {
        0 => 4096.0,
        1 | 2 => 1.0,
        _ => 0.0,
    });
    let right = half_tile(|pair, column| match (pair, column % 2) {
        (0, 0) => 4096.0,
        (0 | 1, _) => 1.0,
        _ => 0.0,
    });
    let zero = single_tile(|_, _| 0.0);
    let found = tile_product::<Twin>([&zero, &left, &right]);
    assert!(found.iter().all(|&sum| sum == 16_777_216.0), "{found:?}");
}

#[test]
fn the_twin_flushes_denormal_numbers() {
    let tiny = f32::MIN_POSITIVE;
    let one = half_tile(|_, depth| if depth == 0 { 1.0 } else { 0.0 });
    let right = half_tile(|pair, column| if pair == 0 && column % 2 == 0 { tiny } else { 0.0 });
    let zero = single_tile(|_, _| 0.0);
    assert!(tile_product::<Twin>([&zero, &one, &right]).iter().all(|&sum| sum == tiny));
    let half = half_tile(|_, depth| if depth == 0 { 0.5 } else { 0.0 });
    assert!(tile_product::<Twin>([&zero, &half, &right]).iter().all(|&sum| sum == 0.0));
    let denormal = single_tile(|_, _| tiny / 2.0);
    assert!(tile_product::<Twin>([&denormal, &one, &right]).iter().all(|&sum| sum == tiny));
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn the_twin_has_the_bits_of_the_tile_registers() {
    if !HalfUnit::Tiles.is_available() {
        return;
    }
    let mut noise = Noise(5);
    for round in 0..2000 {
        // Every third round has exponents around the least normal number.
        let scale = if round % 3 == 0 { 2f32.powi(-63) } else { 1.0 };
        let values: Vec<f32> = (0..1280).map(|_| noise.float() * scale).collect();
        let start = single_tile(|row, column| values[row * 16 + column] * scale);
        let left = half_tile(|row, depth| values[256 + row * 32 + depth]);
        let right = half_tile(|pair, column| values[768 + pair * 32 + column]);
        let of_twin = tile_product::<Twin>([&start, &left, &right]);
        let of_unit = tile_product::<super::tiles::Amx>([&start, &left, &right]);
        let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&of_twin), bits(&of_unit), "round {round}");
    }
}
