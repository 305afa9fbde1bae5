use half::f16;

use super::*;
use crate::core_kind::CoreKind;
use crate::gemm::split::Shape;
use crate::gemm::strassen::{MAX_LEVELS, Rule, Strassen};
use crate::gemm::writer::OutputWriter;

/// Block sizes for a small product such that it has several blocks in each direction, as large products do.
fn cut(problem: &Problem, isa: Isa, levels: usize) -> Strassen {
    let Problem { rows, columns, depth, .. } = *problem;
    let tile = Tile::choose(isa, columns);
    let shape = Shape { rows, columns, depth };
    let row_block = (2 << levels) * tile.rows;
    Strassen { shape, tile, levels, row_block, depth_block: 32, group_block: 2 }
}

fn run(problem: &Problem, cut: &Strassen, threads: usize, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let weights = problem.packed(cut.tile.isa);
    run_with(problem, &weights, cut, threads, epilogue)
}

fn run_with(
    problem: &Problem,
    weights: &PackedWeights,
    cut: &Strassen,
    threads: usize,
    epilogue: &Epilogue<'_>,
) -> Vec<f32> {
    let mut output = problem.blank();
    let target = Output::new(&mut output, problem.columns + problem.gap);
    let writer = OutputWriter::new(cut.shape, epilogue, target);
    cut.run(&Pool::new(threads), &problem.source(), weights, &writer);
    output
}

#[test]
fn every_tail_of_rows_and_panels() {
    for isa in Isa::available() {
        for columns in [40, 96, 100, 200, 290, 480, 700] {
            let tile = Tile::choose(isa, columns);
            for rows in [1, tile.rows, tile.rows + 1, 3 * tile.rows - 1, 8 * tile.rows, 70] {
                let problem = Problem::new(rows, 32, columns, 3);
                for levels in 1..=MAX_LEVELS {
                    let found = run(&problem, &cut(&problem, isa, levels), 1, &Epilogue::NONE);
                    let what = format!("{isa:?} {tile:?}, {levels} levels");
                    problem.check(&found, &Epilogue::NONE, &what);
                }
            }
        }
    }
}

#[test]
fn epilogues_over_one_and_several_blocks_of_depths() {
    for isa in Isa::available() {
        for depth in [16, 32, 48, 112] {
            let problem = Problem::new(61, depth, 230, 0);
            for epilogue in epilogues(&problem) {
                for levels in 1..=MAX_LEVELS {
                    let found = run(&problem, &cut(&problem, isa, levels), 1, &epilogue);
                    let what = format!("{isa:?} {:?}, {levels} levels", epilogue.activation);
                    problem.check(&found, &epilogue, &what);
                }
            }
        }
    }
}

#[test]
fn half_precision_multiplies_like_its_values() {
    for isa in Isa::available() {
        let problem = Problem::new(61, 96, 450, 0);
        let halves: Vec<f16> = problem.weight.iter().map(|&x| f16::from_f32(x)).collect();
        let singles: Vec<f32> = halves.iter().map(|x| x.to_f32()).collect();
        let [half, single] = [WeightData::F16(&halves), WeightData::F32(&singles)].map(|data| {
            let view = WeightView::output_major(data, problem.columns, problem.depth);
            PackedWeights::pack(&Pool::new(1), isa, &view).unwrap()
        });
        for levels in 1..=MAX_LEVELS {
            let cut = cut(&problem, isa, levels);
            let [found, expected] = [&half, &single]
                .map(|weights| run_with(&problem, weights, &cut, 1, &Epilogue::NONE));
            assert!(found == expected, "{isa:?}, {levels} levels");
        }
    }
}

/// Combinations of bias, activation and residual that partial sums allow.
fn epilogues(problem: &Problem) -> [Epilogue<'_>; 4] {
    let linear = problem.epilogue(-0.37, Activation::Identity);
    let gelu = problem.epilogue(-0.37, Activation::Gelu);
    let output = Epilogue { residual: Residual::Output, ..linear };
    [linear, gelu, output, Epilogue { bias: None, ..gelu }]
}

/// Root mean square error of a product.
fn root_mean_square(problem: &Problem, found: &[f32]) -> f64 {
    let (columns, depth) = (problem.columns, problem.depth);
    let squares = found.iter().enumerate().map(|(place, &value)| {
        let left = &problem.left[place / columns * depth..][..depth];
        let weight = &problem.weight[place % columns * depth..][..depth];
        let products = left.iter().zip(weight).map(|(&a, &b)| f64::from(a) * f64::from(b));
        (f64::from(value) - products.sum::<f64>()).powi(2)
    });
    (squares.sum::<f64>() / found.len() as f64).sqrt()
}

#[test]
fn errors_stay_near_those_of_the_plain_sum() {
    for isa in Isa::available() {
        for depth in [256, 1024] {
            let problem = Problem::new(84, depth, 256, 0);
            let usual = root_mean_square(&problem, &problem.run(isa, 1, &Epilogue::NONE));
            for (levels, most) in [(1, 1.5), (2, 2.4)] {
                let cut = Strassen { depth_block: depth, ..cut(&problem, isa, levels) };
                let found = root_mean_square(&problem, &run(&problem, &cut, 1, &Epilogue::NONE));
                let growth = found / usual;
                let what = format!("{isa:?}, depth {depth}, {levels} levels");
                assert!((0.8..most).contains(&growth), "{what}: {growth} times");
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for isa in Isa::available() {
        for levels in 1..=MAX_LEVELS {
            let problem = Problem::new(300, 96, 500, 0);
            let epilogue = problem.epilogue(0.7, Activation::Gelu);
            let cut = cut(&problem, isa, levels);
            let one = run(&problem, &cut, 1, &epilogue);
            for threads in [2, 7] {
                let more = run(&problem, &cut, threads, &epilogue);
                let equal = one.iter().zip(&more).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(equal, "{isa:?}, {levels} levels, on {threads} threads");
            }
        }
    }
}

#[test]
fn only_large_products_use_strassen() {
    for isa in Isa::available() {
        let cut = |rows, depth, columns| {
            let (shape, tile) = (Shape { rows, columns, depth }, Tile::choose(isa, columns));
            Strassen::new(shape, tile, Rule::of(CoreKind::Zen4, isa))
        };
        for (rows, depth, columns, levels) in [
            (4096, 768, 3072, 2),
            (5184, 4736, 1024, 2),
            (3072, 768, 768, 2),
            (3072, 752, 768, 1),
            (4096, 768, 752, 1),
            (3072, 256, 256, 1),
        ] {
            let cut = cut(rows, depth, columns).unwrap();
            assert_eq!(cut.levels, levels, "{isa:?} {rows}x{depth}x{columns}");
            assert_eq!(cut.row_block % (cut.tile.rows << levels), 0);
            assert_eq!(cut.depth_block % 16, 0);
            assert!(cut.row_block > 0 && cut.group_block > 0);
            assert_eq!(cut.is_partial(), depth > 1024);
        }
        for (rows, depth, columns) in [(1024, 768, 3072), (4096, 250, 768), (4096, 768, 64)] {
            assert!(cut(rows, depth, columns).is_none(), "{isa:?} {rows}x{depth}x{columns}");
        }
    }
}

#[test]
fn two_multiply_adds_per_cycle_leave_less_to_gain() {
    let levels = |rows, depth, columns| {
        let shape = Shape { rows, columns, depth };
        let rule = Rule::of(CoreKind::Intel, Isa::Avx512);
        let strassen = Strassen::new(shape, Tile::choose(Isa::Avx512, columns), rule);
        strassen.map_or(0, |strassen| strassen.levels)
    };
    for (rows, depth, columns, expected) in [
        (4096, 768, 2304, 1),
        (5184, 1024, 4736, 1),
        (4096, 768, 768, 0),
        (4096, 3072, 768, 0),
        (5184, 4736, 1024, 0),
        (5184, 1040, 4736, 0),
    ] {
        assert_eq!(levels(rows, depth, columns), expected, "{rows}x{depth}x{columns}");
    }
}

/// The output cannot hold partial sums if it holds the residual of an activation: such a product does not use Strassen.
#[test]
fn a_large_product_that_overwrites_its_residual_is_right() {
    let problem = Problem::new(3072, 1040, 256, 0);
    let rows = problem.epilogue(0.01, Activation::Gelu);
    let output = Epilogue { residual: Residual::Output, ..rows };
    let isa = Isa::detect();
    let rule = Rule::of(CoreKind::Zen4, isa);
    let strassen = Strassen::new(cut(&problem, isa, 1).shape, Tile::choose(isa, 256), rule);
    assert!(strassen.unwrap().is_partial());
    let (apart, within) = (problem.run(isa, 2, &rows), problem.run(isa, 2, &output));
    for (a, b) in apart.iter().zip(&within) {
        assert!((a - b).abs() <= 2e-5, "{a} {b}");
    }
}

#[test]
fn a_nan_stays_in_its_row() {
    for isa in Isa::available() {
        for levels in 1..=MAX_LEVELS {
            for (bad, value) in [(5, f32::NAN), (60, f32::INFINITY)] {
                let mut problem = Problem::new(61, 112, 230, 3);
                let depth = problem.depth;
                problem.left[bad * (depth + 3) + 40] = value;
                problem.weight.iter_mut().for_each(|x| *x = if *x == 0.0 { 1.0 } else { *x });
                let output = run(&problem, &cut(&problem, isa, levels), 2, &Epilogue::NONE);
                let row = &output[bad * 233..][..230];
                assert!(row.iter().all(|x| !x.is_finite()), "{isa:?}, {levels} levels");
                let others = output.iter().enumerate().filter(|(index, _)| index / 233 != bad);
                let whole = others.filter(|(index, _)| index % 233 < 230);
                assert!(whole.clone().all(|(_, x)| x.is_finite()), "{isa:?}, {levels} levels");
            }
        }
    }
}

#[test]
fn a_nan_in_a_weight_stays_in_its_column() {
    let mut problem = Problem::new(3072, 256, 256, 0);
    problem.weight[7 * 256 + 100] = f32::NAN;
    let output = problem.run(Isa::detect(), 2, &Epilogue::NONE);
    for (index, value) in output.iter().enumerate() {
        assert_eq!(value.is_nan(), index % 256 == 7, "element {index}");
    }
}

#[test]
fn weights_packed_apart_are_not_combined() {
    // Every kind of core combines weights of this shape.
    let problem = Problem::new(3072, 256, 2304, 0);
    let isa = Isa::detect();
    let product = |weights: &PackedWeights| {
        let mut output = problem.blank();
        let target = Output::new(&mut output, problem.columns);
        gemm(&Pool::new(2), &problem.source(), weights, &Epilogue::NONE, target);
        output
    };
    let combined = product(&problem.packed(isa));
    let apart = product(&problem.packed(isa).apart());
    problem.check(&apart, &Epilogue::NONE, "apart");
    assert_ne!(combined, apart, "the sums are rounded in another order");
}
