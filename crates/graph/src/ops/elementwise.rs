//! A chain of elementwise functions in one op.

use cutout_tensor::{TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{noise, uniform};
use crate::dense::broadcast_position;
use crate::op::{broadcast_all, expect_f32};
use crate::ops::{BinaryKind, UnaryKind};
use crate::{Case, DenseTensor, OpDef, OpError, Real};

/// What a step of a chain reads.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub enum Operand {
    /// An input of the op.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
    /// A number.
    Number(f32),
}

/// One function of a chain.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub enum Step {
    /// A function of one element.
    Unary(UnaryKind, Operand),
    /// A function of two elements.
    Binary(BinaryKind, Operand, Operand),
}

impl Step {
    /// What it reads.
    pub fn operands(&self) -> impl Iterator<Item = Operand> {
        let (first, second) = match *self {
            Step::Unary(_, operand) => (operand, None),
            Step::Binary(_, a, b) => (a, Some(b)),
        };
        std::iter::once(first).chain(second)
    }

    /// The same function of other operands.
    pub fn map(&self, operand: impl Fn(Operand) -> Operand) -> Step {
        match *self {
            Step::Unary(kind, x) => Step::Unary(kind, operand(x)),
            Step::Binary(kind, a, b) => Step::Binary(kind, operand(a), operand(b)),
        }
    }

    /// Whether it works on truth values, which a chain does not have.
    fn is_logical(&self) -> bool {
        match self {
            Step::Unary(kind, _) => *kind == UnaryKind::Not,
            Step::Binary(kind, _, _) => kind.is_logical(),
        }
    }
}

/// A fused chain of elementwise functions over `f32` inputs that broadcast to one shape; the result is the last step.
/// Every input is used; a step reads only earlier steps.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Elementwise {
    /// The functions, in order.
    pub steps: Vec<Step>,
}

impl Elementwise {
    /// Checks what the steps read, given the number of inputs.
    fn check_steps(&self, inputs: usize) -> Result<(), OpError> {
        if self.steps.is_empty() {
            return Err(OpError::Attribute("a chain needs at least one step".into()));
        }
        let mut used = vec![false; inputs];
        for (i, step) in self.steps.iter().enumerate() {
            if step.is_logical() {
                return Err(OpError::Attribute(format!("step {i} is logical: {step:?}")));
            }
            for operand in step.operands() {
                let exists = match operand {
                    Operand::Input(input) => used.get_mut(input).map(|used| *used = true).is_some(),
                    Operand::Step(earlier) => earlier < i,
                    Operand::Number(_) => true,
                };
                if !exists {
                    return Err(OpError::Attribute(format!("step {i} cannot read {operand:?}")));
                }
            }
        }
        match used.iter().position(|used| !used) {
            Some(input) => Err(OpError::Attribute(format!("input {input} is not used"))),
            None => Ok(()),
        }
    }
}

impl OpDef for Elementwise {
    const NAME: &'static str = "elementwise";

    fn steps(&self) -> Option<Vec<Step>> {
        Some(self.steps.clone())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        if inputs.is_empty() {
            return Err(OpError::Arity { expected: 1, found: 0 });
        }
        inputs.iter().try_for_each(|input| expect_f32("every input", input))?;
        self.check_steps(inputs.len())?;
        countable(TensorType::f32(broadcast_all(inputs)?))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let shape = inputs.iter().fold(inputs[0].shape.clone(), |shape, input| {
            shape.broadcast(&input.shape).expect("inference has checked the shapes")
        });
        let chain = |i: usize| {
            let mut results: Vec<T> = Vec::with_capacity(self.steps.len());
            for step in &self.steps {
                let read = |operand| match operand {
                    Operand::Input(input) => {
                        let input: &DenseTensor<T> = inputs[input];
                        input.real()[broadcast_position(i, &input.shape, &shape)]
                    }
                    Operand::Step(earlier) => results[earlier],
                    Operand::Number(number) => T::of(f64::from(number)),
                };
                let result = match *step {
                    Step::Unary(kind, x) => kind.apply(read(x)),
                    Step::Binary(kind, a, b) => kind.apply(read(a), read(b)),
                };
                results.push(result);
            }
            *results.last().expect("inference refuses a chain without steps")
        };
        let values = (0..shape.elements()).map(chain).collect();
        DenseTensor::from_real(shape, values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        (self.steps.len() as u64).saturating_mul(output.shape.elements() as u64)
    }

    fn cases() -> Vec<Case> {
        use Operand::{Input, Number, Step as Result};
        let unary = |kind, x| Step::Unary(kind, x);
        let binary = |kind, a, b| Step::Binary(kind, a, b);
        let case = |name, steps: &[Step], inputs: Vec<_>| {
            Case::new(name, Elementwise { steps: steps.to_vec() }, inputs)
                .within(Tolerance::FastMath)
        };
        let affine = [
            binary(BinaryKind::Multiply, Input(0), Input(1)),
            binary(BinaryKind::Add, Result(0), Input(2)),
        ];
        let gate = [
            unary(UnaryKind::Silu, Input(0)),
            binary(BinaryKind::Multiply, Result(0), Input(1)),
            binary(BinaryKind::Subtract, Number(1.5), Result(1)),
        ];
        let shared = [
            unary(UnaryKind::Gelu, Input(0)),
            binary(BinaryKind::Multiply, Result(0), Result(0)),
            binary(BinaryKind::Maximum, Result(0), Result(1)),
            binary(BinaryKind::Divide, Result(2), Number(3.0)),
            binary(BinaryKind::Add, Result(3), Input(0)),
        ];
        let every = |kinds: &[UnaryKind]| -> Vec<Step> {
            let step = |(i, &kind): (usize, &UnaryKind)| {
                unary(kind, if i == 0 { Input(0) } else { Result(i - 1) })
            };
            kinds.iter().enumerate().map(step).collect()
        };
        let long = every(&[UnaryKind::Abs, UnaryKind::Sqrt, UnaryKind::Sin, UnaryKind::Exp]);
        let longer = every(&[UnaryKind::Log, UnaryKind::Tanh, UnaryKind::Sigmoid, UnaryKind::Cos]);
        vec![
            case("one", &[unary(UnaryKind::Relu, Input(0))], vec![noise([3, 37])]),
            case("affine", &affine, vec![noise([2, 5, 19]), noise([19]), noise([19])]),
            case("affine_columns", &affine, vec![noise([5, 19]), noise([5, 1]), noise([])]),
            case("both_ways", &affine, vec![noise([2, 1, 7]), noise([3, 1]), noise([7])]),
            case("gate", &gate, vec![noise([3, 37]), noise([3, 37])]),
            case("shared_steps", &shared, vec![noise([1031])]),
            case("long_chain", &long, vec![noise([3, 37])]),
            case("longer_chain", &longer, vec![uniform([3, 37], 0.1, 9.0)]),
            case("scalar", &gate, vec![noise([]), noise([])]),
            case("empty", &gate, vec![noise([0, 4]), noise([4])]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_chains_are_refused() {
        let x = TensorType::f32([2]);
        let check = |steps: &[Step], inputs: &[&TensorType]| {
            Elementwise { steps: steps.to_vec() }.infer(inputs)
        };
        let relu = |operand| Step::Unary(UnaryKind::Relu, operand);
        assert!(check(&[relu(Operand::Input(0))], &[&x]).is_ok());
        let malformed: [(&[Step], &[&TensorType]); 7] = [
            (&[], &[&x]),
            (&[relu(Operand::Number(1.0))], &[]),
            (&[relu(Operand::Input(1))], &[&x]),
            (&[relu(Operand::Input(0))], &[&x, &x]),
            (&[relu(Operand::Input(0)), relu(Operand::Step(1))], &[&x]),
            (&[Step::Unary(UnaryKind::Not, Operand::Input(0))], &[&x]),
            (&[Step::Binary(BinaryKind::And, Operand::Input(0), Operand::Input(0))], &[&x]),
        ];
        for (steps, inputs) in malformed {
            assert!(check(steps, inputs).is_err(), "{steps:?}");
        }
    }
}
