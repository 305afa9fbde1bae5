//! Runs every op case against PyTorch's numbers and on every backend.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cutout_graph::passes::{Context, optimize};
use cutout_graph::{
    Backend, Builder, Case, DenseTensor, Graph, Named, Op, Precision, Profile, RunError, Value,
    Weights, interpret_in, unravel,
};
use cutout_tensor::{DType, Tensor, TensorType, Tolerance, compare};

use crate::case_tensors;
use crate::fixtures::{Expected, HINT, digest};
use crate::quantized::interpret_quantized;
use crate::rounded::{rounds_inside, with_rounded_products};

/// All failures of a run of checks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Report {
    /// What was checked: "reference against PyTorch", a backend's name.
    pub subject: String,
    /// Checks made.
    pub checks: usize,
    /// One line for each that failed.
    pub failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, checks) = (self.failures.len(), self.checks);
        write!(f, "{}: {failed} of {checks} checks failed", self.subject)?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Collects the outcomes of checks.
struct Checks {
    report: Report,
}

impl Checks {
    fn new(subject: &str) -> Self {
        Checks { report: Report { subject: subject.to_owned(), checks: 0, failures: Vec::new() } }
    }

    fn add(&mut self, what: &str, outcome: Result<(), String>) {
        self.report.checks += 1;
        if let Err(failure) = outcome {
            self.report.failures.push(format!("{what}: {failure}"));
        }
    }

    /// The number of checks, or all failures.
    fn finish(self) -> Result<usize, Report> {
        if self.report.failures.is_empty() { Ok(self.report.checks) } else { Err(self.report) }
    }
}

/// Compares each case's reference, in double precision, with the number PyTorch gives, under the case's tolerance.
/// Fails too for a case without a fixture, a fixture without a case, and a fixture made from other inputs or
/// attributes. Returns the number of cases, or all failures.
pub fn check_reference_against_fixtures() -> Result<usize, Report> {
    let mut checks = Checks::new("references against PyTorch");
    match Expected::load(&Expected::path()) {
        Ok(expected) => check_against(&expected, &Op::all_cases(), &mut checks),
        Err(error) => checks.add("fixtures", Err(error.to_string())),
    }
    checks.finish()
}

fn check_against(expected: &Expected, cases: &[Case], checks: &mut Checks) {
    let names: HashSet<String> = cases.iter().map(Case::full_name).collect();
    for case in cases {
        checks.add(&case.full_name(), check_fixture(expected, case));
    }
    let mut unknown: Vec<&String> =
        expected.outputs.keys().filter(|name| !names.contains(*name)).collect();
    unknown.sort();
    for name in unknown {
        checks.add(name, Err(format!("a fixture without a case; {HINT}")));
    }
}

fn check_fixture(expected: &Expected, case: &Case) -> Result<(), String> {
    let name = case.full_name();
    let Some(output) = expected.outputs.get(&name) else {
        return Err(format!("a case without a fixture; {HINT}"));
    };
    let digest = digest(case).map_err(|error| error.to_string())?;
    if expected.digests.get(&name) != Some(&digest) {
        return Err(format!("its fixture was made from other inputs or attributes; {HINT}"));
    }
    let (ty, actual) = reference(case)?;
    let kept = if ty.dtype.is_float() { DType::F32 } else { ty.dtype };
    if output.dtype() != kept {
        return Err(format!("PyTorch gives {}, the reference {ty}", output.ty()));
    }
    expect_close(&actual, output, case.tolerance)
}

/// The type and value of a case's output by its reference in double precision.
fn reference(case: &Case) -> Result<(TensorType, Tensor), String> {
    let tensors = case_tensors(case).map_err(|error| error.to_string())?;
    let types: Vec<&TensorType> = tensors.iter().map(Tensor::ty).collect();
    let ty = case.op.infer(&types).map_err(|error| error.to_string())?;
    let inputs = tensors
        .iter()
        .map(DenseTensor::<f64>::from_tensor)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let inputs: Vec<&DenseTensor<f64>> = inputs.iter().collect();
    case.op.check_values(&inputs)?;
    let output = case.op.reference(&inputs).to_tensor(&ty).map_err(|error| error.to_string())?;
    Ok((ty, output))
}

fn expect_close(actual: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    let difference = compare(actual, expected, tolerance).map_err(|error| error.to_string())?;
    if difference.within {
        return Ok(());
    }
    let index = unravel(difference.worst_index, expected.shape());
    Err(format!("{difference} (index {index:?}, tolerance {tolerance:?})"))
}

/// Where the operands of a one-op graph come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    /// All of them are given at each run.
    Inputs,
    /// The `f32` ones but the first are weights, which a backend may pack or fold.
    Parameters,
}

impl Operands {
    /// Whether an operand is a weight.
    fn is_parameter(self, index: usize, ty: &TensorType) -> bool {
        self == Operands::Parameters && index > 0 && ty.dtype == DType::F32
    }
}

/// Runs every case as a one-op graph on a backend, with its operands as inputs and once more with weights, and
/// compares with the reference in double precision under the case's tolerance. With precision bf16, the reference is that of the
/// rounded inputs; with int8, that of the graph whose weights are quantised. Returns the number of checks, or all failures.
pub fn check_backend(
    name: &str,
    backend: &dyn Backend,
    profile: &Profile,
) -> Result<usize, Report> {
    Subject { backend, profile, interpret: interpret_in::<f64> }.check(name)
}

/// The same in int8 for a backend that quantises all convolutions; see [`interpret_quantized`].
pub fn check_quantized(name: &str, backend: &dyn Backend) -> Result<usize, Report> {
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    Subject { backend, profile: &profile, interpret: interpret_quantized }.check(name)
}

/// Runs a graph by definitions.
type Interpret = fn(&Graph, &Weights, &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError>;

/// A backend, and the definition that it is compared with.
struct Subject<'a> {
    backend: &'a dyn Backend,
    profile: &'a Profile,
    interpret: Interpret,
}

impl Subject<'_> {
    fn check(&self, name: &str) -> Result<usize, Report> {
        let mut checks = Checks::new(name);
        for case in Op::all_cases() {
            for operands in [Operands::Inputs, Operands::Parameters] {
                let any = |(index, input): (usize, &cutout_graph::cases::CaseInput)| {
                    operands.is_parameter(index, &input.ty)
                };
                if operands == Operands::Parameters && !case.inputs.iter().enumerate().any(any) {
                    continue;
                }
                let run = || self.check_case(&case, operands);
                let outcome = catch_unwind(AssertUnwindSafe(run))
                    .unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))));
                checks.add(&format!("{} ({operands:?})", case.full_name()), outcome);
            }
        }
        checks.finish()
    }

    fn check_case(&self, case: &Case, operands: Operands) -> Result<(), String> {
        let Subject { backend, profile, interpret } = *self;
        let OneOp { graph, weights, inputs } = one_op(case, operands)?;
        let inputs: Vec<(&str, &Tensor)> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let definition = match profile.precision {
            Precision::Bf16 => with_rounded_products(&graph),
            Precision::Int8 => {
                let context = Context::new(Some(&weights), profile);
                optimize(&graph, &[], &context).map_err(|error| format!("the passes: {error}"))?
            }
            Precision::Auto | Precision::F32 | Precision::F16 => graph.clone(),
        };
        let expected = interpret(&definition, &weights, &inputs)
            .map_err(|error| format!("the reference: {error}"))?;
        let program = backend
            .compile(&graph, &weights, profile)
            .map_err(|error| format!("does not compile: {error}"))?;
        let actual =
            program.run_named(&inputs).map_err(|error| format!("does not run: {error}"))?;
        let ([(name, actual)], [(_, expected)]) = (&actual[..], &expected[..]) else {
            return Err(format!("{} outputs instead of one", actual.len()));
        };
        if name != "result" || actual.ty() != expected.ty() {
            let (found, wanted) = (actual.ty(), expected.ty());
            return Err(format!("gives {name}: {found} instead of result: {wanted}"));
        }
        match largest_error(profile.precision).filter(|_| rounds_inside(&case.op)) {
            Some(largest) => expect_close_on_average(actual, expected, largest),
            None => expect_close(actual, expected, case.tolerance),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A graph of one op, and the tensors it runs on.
struct OneOp {
    graph: Graph,
    weights: Weights,
    inputs: Vec<(String, Tensor)>,
}

fn one_op(case: &Case, operands: Operands) -> Result<OneOp, String> {
    let tensors = case_tensors(case).map_err(|error| error.to_string())?;
    let builder = Builder::new();
    let (mut weights, mut inputs) = (HashMap::new(), Vec::new());
    let mut values: Vec<Value<'_>> = Vec::new();
    for (index, tensor) in tensors.into_iter().enumerate() {
        let name = format!("operand{index}");
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        if operands.is_parameter(index, tensor.ty()) {
            values.push(builder.weights().parameter(&name, shape));
            weights.insert(name, tensor);
        } else {
            values.push(builder.input(&name, dtype, shape));
            inputs.push((name, tensor));
        }
    }
    let (first, others) = values.split_first().ok_or("a case without inputs")?;
    builder.output("result", first.apply(case.op.clone(), others));
    let graph = builder.finish().map_err(|error| error.to_string())?;
    Ok(OneOp { graph, weights: Weights::new(weights), inputs })
}

/// The largest error on average of an op that rounds numbers inside. Rounding to bf16 changes a number by at most 1 / 512 of itself.
/// Rounding to bytes changes a number of a query or key by at most 1 / 254 of the largest, a third of which counts on average: 1 / 100
/// of a score of noise, which softmax turns into as many parts of a result as the score has units.
fn largest_error(precision: Precision) -> Option<f64> {
    match precision {
        Precision::Bf16 => Some(8e-3),
        Precision::Int8 => Some(4e-2),
        Precision::Auto | Precision::F32 | Precision::F16 => None,
    }
}

/// For results of numbers that were rounded inside an op: errors are random, and relative to all elements together.
fn expect_close_on_average(actual: &Tensor, expected: &Tensor, largest: f64) -> Result<(), String> {
    let difference =
        compare(actual, expected, Tolerance::HalfPrecision).map_err(|error| error.to_string())?;
    let error = difference.normalised_square_error.sqrt();
    if difference.within || error <= largest {
        return Ok(());
    }
    Err(format!("{difference} (error {error:.1e} on average)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixtures_and_cases_that_do_not_match_are_reported() {
        let mut expected = Expected::load(&Expected::path()).unwrap();
        expected.outputs.remove("permute/heads").unwrap();
        expected.outputs.insert("permute/forgotten".to_owned(), Tensor::scalar(1.0f32));
        expected.digests.insert("resize/bilinear_up".to_owned(), "0".to_owned());
        expected.outputs.insert("arg_max/vector".to_owned(), Tensor::scalar(1.0f32));
        expected.outputs.insert("arg_max/one".to_owned(), Tensor::scalar(0i64));
        let mut checks = Checks::new("tampered");
        check_against(&expected, &Op::all_cases(), &mut checks);
        let report = checks.finish().unwrap_err();
        let other = "its fixture was made from other inputs or attributes";
        assert_eq!(
            report.failures,
            [
                "arg_max/vector: PyTorch gives f32[], the reference i64[]".to_owned(),
                "arg_max/one: cannot compare i64[2, 3] with i64[]".to_owned(),
                format!("permute/heads: a case without a fixture; {HINT}"),
                format!("resize/bilinear_up: {other}; {HINT}"),
                format!("permute/forgotten: a fixture without a case; {HINT}"),
            ]
        );
    }
}
