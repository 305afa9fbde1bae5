//! Products in bf16 against plain loops in `f64` over the rounded inputs, on every unit and instruction set of the machine.

use cutout_parallel::Pool;
use cutout_tensor::Tensor;
use cutout_testing::skip;
use half::bf16;

use super::*;
use crate::gemm::tests::{Packed as NotInPlace, Problem};
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
        return skip("no tile registers (AMX): products in bf16 ran on their twin only");
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
