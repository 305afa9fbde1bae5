use super::*;

const ACTIVATIONS: [Activation; 4] =
    [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Sigmoid];

/// Every combination of scale, bias, activation and residual.
fn epilogues(problem: &Problem) -> Vec<Epilogue<'_>> {
    let mut all = Vec::new();
    for activation in ACTIVATIONS {
        let full = problem.epilogue(-0.37, activation);
        for scale in [1.0, -0.37] {
            all.push(Epilogue { scale, bias: None, residual: Residual::None, ..full });
            all.push(Epilogue { scale, residual: Residual::None, ..full });
            all.push(Epilogue { scale, bias: None, ..full });
            all.push(Epilogue { scale, ..full });
            all.push(Epilogue { scale, residual: Residual::Output, ..full });
            all.push(Epilogue { scale, bias: None, residual: Residual::Output, ..full });
        }
    }
    all
}

/// Whole tiles, tiles with tails, and depths of several blocks.
const SHAPES: [(usize, usize, usize); 5] =
    [(36, 24, 192), (19, 40, 83), (40, 1100, 61), (5, 2100, 130), (3, 0, 20)];

#[test]
fn every_combination() {
    for isa in Isa::available() {
        for (rows, depth, columns) in SHAPES {
            let problem = Problem::new(rows, depth, columns, 5);
            for epilogue in epilogues(&problem) {
                let found = problem.run(isa, 1, &epilogue);
                let (scale, activation) = (epilogue.scale, epilogue.activation);
                problem.check(&found, &epilogue, &format!("{isa:?} {scale} {activation:?}"));
            }
        }
    }
}

#[test]
fn nan_stays_in_its_row_and_passes_activations() {
    for isa in Isa::available() {
        for activation in ACTIVATIONS {
            let mut problem = Problem::new(20, 12, 50, 0);
            problem.left[12 * 3 + 4] = f32::NAN;
            let epilogue = problem.epilogue(1.0, activation);
            let found = problem.run(isa, 1, &epilogue);
            for (row, values) in found.chunks_exact(50).enumerate() {
                let expected = row == 3;
                assert!(values.iter().all(|x| x.is_nan() == expected), "{isa:?} {activation:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "one bias element per column")]
fn a_short_bias_is_refused() {
    let problem = Problem::new(4, 4, 10, 0);
    let epilogue = Epilogue { bias: Some(&problem.bias[1..]), ..Epilogue::NONE };
    problem.run(Isa::Portable, 1, &epilogue);
}

#[test]
#[should_panic(expected = "residual: 40 elements needed, 39 given")]
fn a_short_residual_is_refused() {
    let problem = Problem::new(4, 4, 10, 0);
    let residual = Residual::Rows { data: &problem.residual[1..], row_stride: 10 };
    problem.run(Isa::Portable, 1, &Epilogue { residual, ..Epilogue::NONE });
}

#[test]
#[should_panic(expected = "output: 40 elements needed, 39 given")]
fn a_short_output_is_refused() {
    let problem = Problem::new(4, 4, 10, 0);
    let mut output = vec![0.0; 39];
    let target = Output::new(&mut output, 10);
    let packed = problem.packed(Isa::Portable);
    gemm(&Pool::new(1), &problem.source(), &packed, &Epilogue::NONE, target);
}

#[test]
#[should_panic(expected = "depth of the left operand and of the weights")]
fn different_depths_are_refused() {
    let problem = Problem::new(4, 4, 10, 0);
    let packed = Problem::new(4, 5, 10, 0).packed(Isa::Portable);
    let mut output = problem.blank();
    let target = Output::new(&mut output, 10);
    gemm(&Pool::new(1), &problem.source(), &packed, &Epilogue::NONE, target);
}
