//! Cases: op, attributes and inputs that every backend is checked on, and that PyTorch's numbers are made for.

use cutout_tensor::{DType, Shape, Tensor, TensorError, TensorType, Tolerance};

use crate::Op;

/// What the elements of a case's input are.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Seeded noise, bell-shaped around 0 with deviation 1.
    Noise,
    /// Seeded uniform numbers (whole ones for integer types) from `low` up to, not including, `high`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Bound that is not reached.
        high: f64,
    },
    /// These values.
    Values(Vec<f64>),
}

/// One input of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseInput {
    /// Its type.
    pub ty: TensorType,
    /// Its elements.
    pub fill: Fill,
}

/// Bell-shaped `f32` noise.
pub fn noise(shape: impl Into<Shape>) -> CaseInput {
    CaseInput { ty: TensorType::f32(shape), fill: Fill::Noise }
}

/// Uniform `f32` numbers from `low` up to, not including, `high`.
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64) -> CaseInput {
    CaseInput { ty: TensorType::f32(shape), fill: Fill::Uniform { low, high } }
}

/// Uniform `i64` numbers from `low` up to, not including, `high`.
pub fn integers(shape: impl Into<Shape>, low: i64, high: i64) -> CaseInput {
    let fill = Fill::Uniform { low: low as f64, high: high as f64 };
    CaseInput { ty: TensorType::new(DType::I64, shape), fill }
}

/// Random truth values.
pub fn bools(shape: impl Into<Shape>) -> CaseInput {
    let fill = Fill::Uniform { low: 0.0, high: 2.0 };
    CaseInput { ty: TensorType::new(DType::Bool, shape), fill }
}

/// Given values of any type.
pub fn values(ty: TensorType, values: &[f64]) -> CaseInput {
    CaseInput { ty, fill: Fill::Values(values.to_vec()) }
}

impl CaseInput {
    /// The input in another element type.
    pub fn of(mut self, dtype: DType) -> Self {
        self.ty.dtype = dtype;
        self
    }

    /// The input with its elements under another shape.
    pub fn reshaped(mut self, shape: impl Into<Shape>) -> Self {
        self.ty.shape = shape.into();
        self
    }

    /// The tensor, the same for the same seed on every machine.
    pub fn tensor(&self, seed: u64) -> Result<Tensor, TensorError> {
        let count = self.ty.shape.checked_len()?;
        let mut random = Random::new(seed);
        let whole = self.ty.dtype.is_integer() || self.ty.dtype == DType::Bool;
        let numbers: Vec<f32> = match &self.fill {
            Fill::Noise => (0..count).map(|_| random.normal() as f32).collect(),
            Fill::Uniform { low, high } => (0..count)
                .map(|_| {
                    let value = low + (high - low) * random.unit();
                    (if whole { value.floor() } else { value }) as f32
                })
                .collect(),
            Fill::Values(values) => values.iter().map(|&value| value as f32).collect(),
        };
        Tensor::from_vec(self.ty.shape.clone(), numbers)?.cast(self.ty.dtype)
    }
}

/// One check of one op.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name, unique among the op's cases.
    pub name: &'static str,
    /// The op with its attributes.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<CaseInput>,
    /// How far a backend (and PyTorch) may be from the reference.
    pub tolerance: Tolerance,
}

impl Case {
    /// A case under the `Rounding` tolerance.
    pub fn new(
        name: &'static str,
        op: impl Into<Op>,
        inputs: impl IntoIterator<Item = CaseInput>,
    ) -> Self {
        let inputs = inputs.into_iter().collect();
        Case { name, op: op.into(), inputs, tolerance: Tolerance::Rounding }
    }

    /// The same case under another tolerance.
    pub fn within(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// `op/case`, as fixtures and messages name it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.op.name(), self.name)
    }

    /// The input tensors, seeded by the case's name.
    pub fn tensors(&self) -> Result<Vec<Tensor>, TensorError> {
        let seed = fnv1a(self.full_name().as_bytes());
        self.inputs
            .iter()
            .enumerate()
            .map(|(index, input)| input.tensor(seed.wrapping_add(index as u64)))
            .collect()
    }
}

/// The 64-bit FNV-1a hash: seeds from names.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// A small seeded generator (SplitMix64): the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform among `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Bell-shaped around 0 with deviation 1 (a sum of twelve uniforms: no transcendental function, so the same
    /// bits everywhere).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
