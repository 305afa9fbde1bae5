//! Attention in so many windows that their tasks are grouped: one thread runs several of them one after the other.

use cutout_cpu::{Cpu, Isa};
use cutout_graph::ops::{Attention, Windows};
use cutout_graph::{Backend, Builder, Graph, Profile, Weights, interpret_in};
use cutout_tensor::{DType, Tensor, Tolerance, compare};
use cutout_testing::Random;

const HEADS: usize = 3;
/// Wide enough for each head to be a task.
const WIDTH: usize = 48;

fn graph(windows: Windows) -> Graph {
    let builder = Builder::new();
    let tokens = |name, [height, width]: [usize; 2]| {
        builder.input(name, DType::F32, [1, height * width, HEADS * WIDTH])
    };
    let query = tokens("query", windows.query_grid);
    let (key, value) = (tokens("key", windows.key_grid), tokens("value", windows.key_grid));
    let op = Attention {
        heads: HEADS,
        scale: 0.15,
        key_mask: false,
        causal: false,
        bias: None,
        rope: None,
        windows: Some(windows),
    };
    builder.output("y", query.attention(key, value, op));
    builder.finish().unwrap()
}

fn check(windows: Windows) {
    let (graph, weights) = (graph(windows), Weights::default());
    let mut random = Random::new(5);
    let mut noise = |[height, width]: [usize; 2]| {
        let shape = vec![1, height * width, HEADS * WIDTH];
        let values: Vec<f32> =
            (0..height * width * HEADS * WIDTH).map(|_| random.normal() as f32).collect();
        Tensor::from_vec(shape, values).unwrap()
    };
    let given = [noise(windows.query_grid), noise(windows.key_grid), noise(windows.key_grid)];
    let given: Vec<(&str, &Tensor)> = ["query", "key", "value"].into_iter().zip(&given).collect();
    let expected = interpret_in::<f64>(&graph, &weights, &given).unwrap().remove(0).1;
    for isa in Isa::available() {
        for threads in [1, 2] {
            let cpu = Cpu::with_isa(isa, threads);
            let program = cpu.compile(&graph, &weights, &Profile::default()).unwrap();
            let found = program.run_named(&given).unwrap().remove(0).1;
            let difference = compare(&found, &expected, Tolerance::FastMath).unwrap();
            assert!(difference.within, "{isa:?}, {threads} threads: {difference}");
        }
    }
}

/// 35 windows in 3 heads: groups of three tasks.
#[test]
fn windows_of_one_size() {
    let grid = [5 * 8, 7 * 4];
    let window = [8, 4];
    check(Windows { query_grid: grid, key_grid: grid, query_window: window, key_window: window });
}

/// 25 windows in 3 heads, so that the last of the groups of two has one task.
#[test]
fn windows_of_fewer_queries_than_keys() {
    check(Windows {
        query_grid: [10, 20],
        key_grid: [20, 40],
        query_window: [2, 4],
        key_window: [4, 8],
    });
}
