//! Kernels other than matrix products and convolutions: the same bits on any number of threads, special values, results in place,
//! strided inputs, refused values.

use std::collections::HashMap;

use cutout_cpu::{Cpu, Isa};
use cutout_graph::cases::{CaseInput, bools, integers, noise, values};
use cutout_graph::ops::{GroupNorm, LayerNorm};
use cutout_graph::{
    Backend, Builder, Graph, Profile, Program, Reduced, RunError, Value, Weights, interpret_in,
};
use cutout_tensor::{DType, Tensor, TensorType, Tolerance, compare};
use cutout_testing::input_tensor;

type Build = for<'g> fn(&[Value<'g>]) -> Value<'g>;

/// An expression over some inputs.
struct Expression {
    name: &'static str,
    inputs: Vec<CaseInput>,
    build: Build,
}

fn expression(
    name: &'static str,
    inputs: impl IntoIterator<Item = CaseInput>,
    build: Build,
) -> Expression {
    Expression { name, inputs: inputs.into_iter().collect(), build }
}

impl Expression {
    fn graph(&self) -> Graph {
        let builder = Builder::new();
        let input = |(i, input): (usize, &CaseInput)| {
            builder.input(&format!("x{i}"), input.ty.dtype, input.ty.shape.clone())
        };
        let inputs: Vec<Value<'_>> = self.inputs.iter().enumerate().map(input).collect();
        builder.output("y", (self.build)(&inputs));
        builder.finish().expect("expressions are well-formed")
    }

    fn tensors(&self) -> Vec<Tensor> {
        let tensor = |(i, input): (usize, &CaseInput)| input_tensor(input, i as u64);
        let tensors = self.inputs.iter().enumerate().map(tensor);
        tensors.collect::<Result<_, _>>().expect("inputs are small")
    }

    fn program(&self, cpu: &Cpu) -> Box<dyn Program> {
        cpu.compile(&self.graph(), &no_weights(), &Profile::default()).expect("expressions compile")
    }

    fn on(&self, cpu: &Cpu) -> Tensor {
        run(&*self.program(cpu), &self.tensors()).expect("expressions run")
    }

    /// Checks the result on every instruction set against the plain-loop definition.
    fn check(&self, tolerance: Tolerance) {
        let tensors = self.tensors();
        let expected = interpret_in::<f64>(&self.graph(), &no_weights(), &named(&tensors))
            .expect("expressions run")
            .remove(0)
            .1;
        for isa in Isa::available() {
            let actual = self.on(&Cpu::with_isa(isa, 2));
            let difference = compare(&actual, &expected, tolerance).expect("shapes agree");
            assert!(difference.within, "{} on {isa:?}: {difference}", self.name);
        }
    }
}

fn no_weights() -> Weights {
    Weights::new(HashMap::new())
}

const NAMES: [&str; 4] = ["x0", "x1", "x2", "x3"];

fn named(tensors: &[Tensor]) -> Vec<(&'static str, &Tensor)> {
    NAMES.into_iter().zip(tensors).collect()
}

fn run(program: &dyn Program, tensors: &[Tensor]) -> Result<Tensor, RunError> {
    Ok(program.run_named(&named(tensors))?.remove(0).1)
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.as_bytes().expect("results are contiguous").to_vec()
}

fn vectors(width: usize) -> [CaseInput; 2] {
    [noise([width]), noise([width])]
}

/// Normalisations and reductions, larger than one task.
fn normalisations_and_reductions() -> Vec<Expression> {
    let with = |x: CaseInput, width: usize| {
        let [weight, bias] = vectors(width);
        [x, weight, bias]
    };
    vec![
        expression("softmax", [noise([71, 700])], |x| x[0].softmax()),
        expression("layer_norm", with(noise([71, 700]), 700), |x| {
            x[0].layer_norm(x[1], x[2], 1e-6)
        }),
        expression("layer_norm_channel_first", with(noise([3, 37, 500]), 37), |x| {
            x[0].apply(LayerNorm { axis: 1, epsilon: 1e-6 }, &x[1..])
        }),
        expression("group_norm", with(noise([2, 29, 31, 36]), 36), |x| {
            x[0].group_norm(x[1], x[2], GroupNorm { groups: 4, epsilon: 1e-6 })
        }),
        expression("rope", [noise([5, 150, 66]), noise([50, 33]), noise([50, 33])], |x| {
            x[0].rope(x[1], x[2])
        }),
        expression("sum_rows", [noise([50, 1000])], |x| x[0].sum([1], Reduced::Drop)),
        expression("sum_columns", [noise([1000, 50])], |x| x[0].sum([0], Reduced::Keep)),
        expression("sum_wide_columns", [noise([9, 9001])], |x| x[0].sum([0], Reduced::Drop)),
        expression("sum_all", [noise([50_007])], |x| x[0].sum([0], Reduced::Drop)),
        expression("mean_apart", [noise([30, 40, 50])], |x| x[0].mean([0, 2], Reduced::Drop)),
        expression("mean_between", [noise([7, 300, 2, 17])], |x| x[0].mean([1, 3], Reduced::Keep)),
        expression("mean_middle", [noise([30, 40, 50])], |x| x[0].mean([1], Reduced::Drop)),
        expression("max_rows", [noise([50, 1000])], |x| x[0].max([1], Reduced::Drop)),
        expression("min_columns", [noise([1000, 50])], |x| x[0].min([0], Reduced::Drop)),
        expression("arg_max_rows", [noise([50, 1000])], |x| x[0].arg_max(1)),
        expression("arg_max_columns", [noise([40, 1300])], |x| x[0].arg_max(0)),
        expression("ties_in_rows", [noise([50, 1000])], |x| x[0].round().arg_max(1)),
        expression("ties_in_columns", [noise([40, 1300])], |x| x[0].round().arg_max(0)),
        expression("sums_of_rows", [noise([50, 1000])], |x| x[0].cumulative_sum(1)),
        expression("sums_of_columns", [noise([40, 1300])], |x| x[0].cumulative_sum(0)),
    ]
}

/// Elementwise ops and copies, larger than one task.
fn elementwise_and_copies() -> Vec<Expression> {
    let bytes = || integers([50_000], 0, 256).of(DType::U8);
    vec![
        expression("chain", [noise([60, 700]), noise([700]), noise([60, 1])], |x| {
            ((x[0] + x[1]) * x[2]).gelu() - 0.5
        }),
        expression("rows_of_3", [noise([17_000, 3]), noise([3])], |x| x[0] * x[1]),
        expression("columns_of_7", [noise([7_000, 7]), noise([7_000, 1])], |x| x[0] - x[1]),
        expression("every_way", [noise([90, 1, 20]), noise([30, 1]), noise([])], |x| {
            (x[0] - x[1]) * x[2]
        }),
        expression("one_column", [noise([40_000, 5])], |x| x[0].slice(1, 2..3).relu()),
        expression("gather", [noise([50, 170]), integers([300], 0, 50)], |x| x[0].gather(x[1])),
        expression("pad", [noise([5, 30, 20, 16])], |x| x[0].pad([1, 0, 2, 0], [0, 3, 1, 0], -1.0)),
        expression("to_half", [noise([50_000])], |x| x[0].cast(DType::F16)),
        expression("from_bytes", [bytes()], |x| x[0].cast(DType::F32)),
        expression("less", [noise([60, 700]), noise([700])], |x| x[0].less(x[1])),
        expression("equal", [bytes(), bytes()], |x| x[0].equal(x[1])),
        expression("select", [bools([60, 1]), noise([60, 700]), noise([])], |x| {
            x[0].select(x[1], x[2])
        }),
        expression("logic", [bools([60, 700]), bools([700]), bools([60, 1])], |x| {
            x[0].and(x[1]).or(x[2].logical_not())
        }),
    ]
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let all = [normalisations_and_reductions(), elementwise_and_copies()];
    for expression in all.into_iter().flatten() {
        for isa in Isa::available() {
            let one = bits(&expression.on(&Cpu::with_isa(isa, 1)));
            for threads in [2, 7] {
                let more = bits(&expression.on(&Cpu::with_isa(isa, threads)));
                assert!(one == more, "{} on {threads} threads of {isa:?}", expression.name);
            }
        }
    }
}

#[test]
fn large_inputs_match_the_definitions() {
    for expression in normalisations_and_reductions() {
        expression.check(Tolerance::FastMath);
    }
    for expression in elementwise_and_copies() {
        expression.check(Tolerance::FastMath);
    }
}

/// Adding one by one in single precision would be off by more than a percent.
#[test]
fn long_sums_are_accurate() {
    let count = 3_000_000;
    let tensor = Tensor::from_vec([count], vec![0.1f32; count]).unwrap();
    let exact = f64::from(0.1f32) * count as f64;
    for isa in Isa::available() {
        let sum = expression("sum", [noise([count])], |x| x[0].sum([0], Reduced::Drop));
        let sum =
            run(&*sum.program(&Cpu::with_isa(isa, 2)), std::slice::from_ref(&tensor)).unwrap();
        let error = (f64::from(sum.to_vec::<f32>().unwrap()[0]) - exact).abs() / exact;
        // Equal elements round alike: narrower vectors add more of them in each lane.
        assert!(error < 4e-6, "{isa:?}: {error:e}");
    }
}

/// Rows of 67 elements with special values at the start, in the middle and at the end.
fn special_rows() -> CaseInput {
    let (nan, highest, lowest) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    let mut rows = Vec::new();
    for special in [&[nan][..], &[highest], &[lowest], &[nan, highest], &[-nan, lowest, 0.0]] {
        for at in [0, 20, 65, 66] {
            let mut row: Vec<f64> = (0..67).map(|i| f64::from(i * 7 % 13) - 6.0).collect();
            for (i, &value) in special.iter().enumerate() {
                row[(at + i) % 67] = value;
            }
            rows.extend(row);
        }
    }
    for special in [lowest, highest, nan] {
        rows.extend([special; 67]);
    }
    values(TensorType::f32([rows.len() / 67, 67]), &rows)
}

#[test]
fn special_values_give_what_the_definitions_give() {
    let [weight, bias] = vectors(67);
    expression("softmax", [special_rows()], |x| x[0].softmax()).check(Tolerance::FastMath);
    let narrow: [Build; 2] =
        [|x| x[0].slice(1, 3..10).softmax(), |x| (x[0].slice(1, 3..10) * 0.5).softmax()];
    for model in narrow {
        expression("narrow_softmax", [special_rows()], model).check(Tolerance::FastMath);
    }
    expression("layer_norm", [special_rows(), weight.clone(), bias.clone()], |x| {
        x[0].layer_norm(x[1], x[2], 1e-6)
    })
    .check(Tolerance::FastMath);
    let [row_weight, row_bias] = vectors(23);
    expression("layer_norm_axis", [special_rows(), row_weight, row_bias], |x| {
        x[0].apply(LayerNorm { axis: 0, epsilon: 1e-6 }, &x[1..])
    })
    .check(Tolerance::FastMath);
    expression("group_norm", [special_rows(), weight, bias], |x| {
        x[0].group_norm(x[1], x[2], GroupNorm { groups: 67, epsilon: 1e-6 })
    })
    .check(Tolerance::FastMath);
    let exact: [(&str, Build); 10] = [
        ("max_rows", |x| x[0].max([1], Reduced::Drop)),
        ("max_columns", |x| x[0].max([0], Reduced::Drop)),
        ("min_rows", |x| x[0].min([1], Reduced::Drop)),
        ("min_columns", |x| x[0].min([0], Reduced::Drop)),
        ("arg_max_rows", |x| x[0].arg_max(1)),
        ("arg_max_columns", |x| x[0].arg_max(0)),
        ("less", |x| x[0].less(-x[0])),
        ("not_equal", |x| x[0].not_equal(x[0])),
        ("relu", |x| x[0].relu()),
        ("pad", |x| x[0].pad([0, 1], [1, 0], f32::NAN)),
    ];
    for (name, build) in exact {
        expression(name, [special_rows()], build).check(Tolerance::Exact);
    }
    let rounding: [(&str, Build); 4] = [
        ("sum_rows", |x| x[0].sum([1], Reduced::Drop)),
        ("mean_columns", |x| x[0].mean([0], Reduced::Drop)),
        ("sums_of_rows", |x| x[0].cumulative_sum(1)),
        ("sums_of_columns", |x| x[0].cumulative_sum(0)),
    ];
    for (name, build) in rounding {
        expression(name, [special_rows()], build).check(Tolerance::Rounding);
    }
}

#[test]
fn results_in_place_equal_results_in_new_memory() {
    let inputs = || {
        let [weight, bias] = vectors(66);
        [noise([3, 90, 66]), weight, bias, noise([90, 33])]
    };
    let steps: [(&str, Build); 4] = [
        ("softmax", |x| (x[0] * 3.0).softmax()),
        ("layer_norm", |x| (x[0] * 3.0).softmax().layer_norm(x[1], x[2], 1e-6)),
        ("rope", |x| (x[0] * 3.0).softmax().layer_norm(x[1], x[2], 1e-6).rope(x[3], x[3])),
        ("gelu", |x| {
            let y = (x[0] * 3.0).softmax().layer_norm(x[1], x[2], 1e-6).rope(x[3], x[3]);
            (y * x[1] + 1.0).gelu()
        }),
    ];
    for (name, build) in steps {
        let mut used = inputs().to_vec();
        used.truncate(match name {
            "softmax" => 1,
            "layer_norm" => 3,
            _ => 4,
        });
        let chain = expression(name, used, build);
        chain.check(Tolerance::FastMath);
        // One buffer for all steps.
        let bytes = 3 * 90 * 66 * 4;
        assert!(
            chain.program(&Cpu::new(2)).activation_bytes() < bytes + 64,
            "{name} is not in place"
        );
    }
}

/// The query, key or value of a joint projection, heads before tokens, as a view: [batch, tokens, 3, heads, width] to
/// [batch, heads, 1, tokens, width].
fn heads(x: Value<'_>, part: usize) -> Value<'_> {
    x.slice(2, part..part + 1).permute([0, 3, 2, 1, 4])
}

#[test]
fn strided_inputs_give_what_contiguous_ones_give() {
    const SHAPE: [usize; 5] = [2, 3, 1, 400, 32];
    let table = || noise([400, 16]);
    let all: [(&str, Build, Vec<CaseInput>); 6] = [
        ("softmax", |x| x[0].softmax(), vec![]),
        ("layer_norm", |x| x[0].layer_norm(x[1], x[2], 1e-6), vectors(32).to_vec()),
        ("rope", |x| x[0].rope(x[1], x[2]), vec![table(), table()]),
        ("gelu", |x| (x[0] * 2.0).gelu(), vec![]),
        ("add", |x| x[0] + x[1], vec![noise(SHAPE)]),
        ("less", |x| x[0].less(x[1]), vec![noise(SHAPE)]),
    ];
    let cpu = Cpu::new(2);
    let whole = input_tensor(&noise([2, 400, 3, 3, 32]), 0).unwrap();
    for (name, build, others) in all {
        let others: Vec<Tensor> =
            others.iter().map(|other| input_tensor(other, 9).unwrap()).collect();
        for part in 0..3 {
            let builder = Builder::new();
            let mut inputs = vec![heads(builder.input("x0", DType::F32, [2, 400, 3, 3, 32]), part)];
            for (name, other) in NAMES[1..].iter().zip(&others) {
                inputs.push(builder.input(name, other.dtype(), other.shape().clone()));
            }
            builder.output("y", build(&inputs));
            let graph = builder.finish().unwrap();
            let program = cpu.compile(&graph, &no_weights(), &Profile::default()).unwrap();
            let mut tensors = vec![whole.clone()];
            tensors.extend(others.clone());
            let (strided, steps) = program.run_named_timed(&named(&tensors)).unwrap();
            assert!(steps.iter().all(|step| step.op != "copy"), "{name} reads strides");

            let view = whole.slice(2, part..part + 1).unwrap().permute(&[0, 3, 2, 1, 4]).unwrap();
            tensors[0] = view.to_contiguous().unwrap();
            let inputs = tensors.iter().map(|tensor| noise(tensor.shape().clone())).collect();
            let plain = Expression { name, inputs, build }.program(&cpu);
            let expected = run(&*plain, &tensors).unwrap();
            assert!(bits(&strided[0].1) == bits(&expected), "{name} of part {part}");
        }
    }
}

#[test]
fn every_pair_of_types_is_cast_as_defined() {
    let edges = [
        0.0,
        -0.0,
        1.0,
        0.49,
        -0.51,
        1.7,
        -1.7,
        2.5,
        126.9,
        127.5,
        128.0,
        -128.9,
        200.0,
        255.9,
        256.0,
        65504.0,
        65520.0,
        -65536.0,
        16_777_217.0,
        2147483647.0,
        3e9,
        -3e9,
        1e20,
        -1e20,
        6e-8,
        1e-40,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let casts: [(DType, Build); 8] = [
        (DType::F32, |x| x[0].cast(DType::F32)),
        (DType::F16, |x| x[0].cast(DType::F16)),
        (DType::BF16, |x| x[0].cast(DType::BF16)),
        (DType::I8, |x| x[0].cast(DType::I8)),
        (DType::U8, |x| x[0].cast(DType::U8)),
        (DType::I32, |x| x[0].cast(DType::I32)),
        (DType::I64, |x| x[0].cast(DType::I64)),
        (DType::Bool, |x| x[0].cast(DType::Bool)),
    ];
    for from in DType::ALL {
        // More than a block, so that the last block is shorter.
        let numbers: Vec<f64> = edges.iter().cycle().take(29 * 40).copied().collect();
        let input = values(TensorType::new(from, [numbers.len()]), &numbers);
        for (_, build) in casts {
            expression(from.name(), [input.clone()], build).check(Tolerance::Exact);
        }
    }
}

#[test]
fn an_index_outside_the_table_is_an_error() {
    let gather =
        expression("gather", [noise([5, 3]), integers([2, 2], 0, 5)], |x| x[0].gather(x[1]));
    let program = gather.program(&Cpu::new(2));
    let table = gather.tensors().remove(0);
    for outside in [5, -1, i64::MAX, i64::MIN] {
        let indices = Tensor::from_vec([2, 2], vec![0, 4, outside, -9]).unwrap();
        let tensors = [table.clone(), indices];
        let error = run(&*program, &tensors).unwrap_err();
        let expected =
            interpret_in::<f32>(&gather.graph(), &no_weights(), &named(&tensors)).unwrap_err();
        assert_eq!(error, expected);
        let RunError::Value { reason, .. } = error else { panic!("{error} is of another kind") };
        assert_eq!(reason, format!("index {outside} at element 2 is outside a table of 5 rows"));
    }
    // The program still works.
    let indices = Tensor::from_vec([2, 2], vec![0i64, 4, 1, 1]).unwrap();
    assert!(run(&*program, &[table, indices]).is_ok());
}

#[test]
fn non_temporal_stores_give_the_same_results() {
    let (rows, width) = (2049, 4100);
    let numbers: Vec<f32> = (0..rows * width).map(|i| (i * 7919 % 1009) as f32 / 200.0).collect();
    let whole = Tensor::from_vec([rows, width], numbers).unwrap();
    let part = whole.slice(0, 0..64).unwrap().to_contiguous().unwrap();
    let [weight, bias] = vectors(width).map(|input| input_tensor(&input, 3).unwrap());
    let all: [(&str, Build); 4] = [
        ("softmax", |x| x[0].softmax()),
        ("layer_norm", |x| x[0].layer_norm(x[1], x[2], 1e-6)),
        ("rope", |x| x[0].rope(x[3], x[3])),
        ("chain", |x| (x[0] + x[1]).gelu()),
    ];
    let table = input_tensor(&noise([1, width / 2]), 4).unwrap();
    for (name, build) in all {
        let of = |x: &Tensor| {
            let builder = Builder::new();
            let tensors = [x.clone(), weight.clone(), bias.clone(), table.clone()];
            let inputs: Vec<Value<'_>> = named(&tensors)
                .iter()
                .map(|(name, tensor)| builder.input(name, DType::F32, tensor.shape().clone()))
                .collect();
            builder.output("y", build(&inputs));
            let graph = builder.finish().unwrap();
            let program = Cpu::new(2).compile(&graph, &no_weights(), &Profile::default()).unwrap();
            run(&*program, &tensors).unwrap()
        };
        let large = of(&whole).slice(0, 0..64).unwrap().to_contiguous().unwrap();
        assert!(bits(&large) == bits(&of(&part)), "{name}");
    }
}
