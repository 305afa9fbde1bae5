use cutout_parallel::AlignedBuffer;

use super::*;
use crate::gemm::split::{Shape, Split, Tasks};

#[test]
fn random_shapes_up_to_one_hundred() {
    for isa in Isa::available() {
        let mut noise = Noise(7);
        for _ in 0..60 {
            let (rows, depth, columns) = (noise.up_to(100), noise.up_to(100), noise.up_to(100));
            let problem = Problem::new(rows, depth, columns, noise.up_to(4) - 1);
            let found = problem.run(isa, 1, &Epilogue::NONE);
            problem.check(&found, &Epilogue::NONE, &format!("{isa:?}"));
        }
    }
}

#[test]
fn every_tail_of_every_tile() {
    for isa in Isa::available() {
        for columns in [1, 8, 16, 24, 32, 48, 64, 100] {
            let tile = Tile::choose(isa, columns);
            for rows in 1..=2 * tile.rows {
                let problem = Problem::new(rows, 5, columns, 1);
                let found = problem.run(isa, 1, &Epilogue::NONE);
                problem.check(&found, &Epilogue::NONE, &format!("{isa:?} {tile:?}"));
            }
        }
    }
}

#[test]
fn depths_of_several_blocks() {
    for isa in Isa::available() {
        for depth in [1023, 1024, 1025, 2049, 3072] {
            let problem = Problem::new(20, depth, 70, 3);
            let found = problem.run(isa, 1, &Epilogue::NONE);
            problem.check(&found, &Epilogue::NONE, &format!("{isa:?}"));
        }
    }
}

#[test]
fn depth_zero_applies_the_epilogue_to_zero() {
    for isa in Isa::available() {
        let problem = Problem::new(5, 0, 19, 2);
        let epilogue = problem.epilogue(2.0, Activation::Gelu);
        problem.check(&problem.run(isa, 2, &epilogue), &epilogue, &format!("{isa:?}"));
    }
}

#[test]
fn no_rows_or_columns_write_nothing() {
    for isa in Isa::available() {
        for (rows, columns) in [(0, 5), (5, 0), (0, 0)] {
            let problem = Problem::new(rows, 3, columns, 2);
            let found = problem.run(isa, 2, &Epilogue::NONE);
            assert!(found.iter().all(|&x| x == UNTOUCHED), "{isa:?}");
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for isa in Isa::available() {
        for (rows, depth, columns) in
            [(1, 300, 1000), (7, 256, 999), (700, 90, 290), (150, 1500, 60)]
        {
            let problem = Problem::new(rows, depth, columns, 0);
            let epilogue = problem.epilogue(0.7, Activation::Gelu);
            let one = problem.run(isa, 1, &epilogue);
            for threads in [2, 7] {
                let more = problem.run(isa, threads, &epilogue);
                let equal = one.iter().zip(&more).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(equal, "{isa:?} {rows}x{depth}x{columns} on {threads} threads");
            }
        }
    }
}

#[test]
fn non_temporal_stores_give_the_same_bits() {
    let (rows, columns) = (2048, 6400);
    for isa in Isa::available() {
        let problem = Problem::new(rows, 3, columns, 0);
        let epilogue = Epilogue { bias: Some(&problem.bias), ..Epilogue::NONE };
        let packed = problem.packed(isa);
        let pool = Pool::new(2);
        let mut streamed = AlignedBuffer::<f32>::zeroed(rows * columns);
        let target = Output::new(&mut streamed, columns);
        gemm(&pool, &problem.source(), &packed, &epilogue, target);
        // One element further on the output is not aligned, and ordinary stores are used.
        let mut ordinary = AlignedBuffer::<f32>::zeroed(rows * columns + 1);
        let target = Output::new(&mut ordinary[1..], columns);
        gemm(&pool, &problem.source(), &packed, &epilogue, target);
        assert!(streamed[..] == ordinary[1..], "{isa:?}");
    }
}

#[test]
fn tasks_cover_the_output_exactly_once() {
    let mut noise = Noise(11);
    for round in 0..300 {
        let limit = [20, 1000, 70_000][round % 3];
        let shape = Shape {
            rows: noise.up_to(limit),
            columns: noise.up_to(5000),
            depth: noise.up_to(4000),
        };
        let tile = Tile::choose(Isa::ALL[round % 3], shape.columns);
        let split = Split::new(shape, tile);
        let tasks = Tasks::new(shape, tile, split);
        assert_eq!(split.row_block % tile.rows, 0, "{shape:?}");
        let mut covered = 0;
        for task in 0..tasks.count() {
            let (rows, panels) = tasks.get(task);
            assert!(rows.start.is_multiple_of(split.row_block) && !rows.is_empty(), "{shape:?}");
            assert!(panels.start.is_multiple_of(split.panel_block), "{shape:?}");
            covered += rows.len() * panels.len();
        }
        assert_eq!(covered, shape.rows * shape.columns.div_ceil(tile.columns()), "{shape:?}");
    }
}
