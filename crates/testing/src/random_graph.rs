//! Random graphs over most of the op set, for tests of passes, plans and backends.
//!
//! Functions that amplify rounding errors (exponential, division, rounding) are left out, so that two correct
//! evaluations stay close for any composition; the op cases cover those.

use std::collections::HashMap;

use cutout_graph::ops::{
    Attention, AttentionInputs, Conv2d, ConvTranspose2d, MaxPool2d, ResizeMode,
};
use cutout_graph::{BuildError, Builder, Graph, Reduced, Value, Weights};
use cutout_tensor::{DType, Shape, Tensor};

use crate::Random;

/// A graph with weights and inputs it can be run on.
pub struct RandomGraph {
    /// The graph.
    pub graph: Graph,
    /// Weights for all its parameters.
    pub weights: Weights,
    /// Tensors for all its inputs.
    pub inputs: Vec<(String, Tensor)>,
}

impl RandomGraph {
    /// The graph of a seed: the same on every machine. Most have axes of a few elements; every eighth is large.
    pub fn new(seed: u64) -> Result<Self, BuildError> {
        let builder = Builder::new();
        Generator::new(&builder, seed).generate();
        let graph = builder.finish()?;
        let mut random = Random::new(seed ^ 0x5eed);
        let mut tensor = |shape: &Shape, scale: f64| {
            let values = (0..shape.elements()).map(|_| (random.normal() * scale) as f32).collect();
            Tensor::from_vec(shape.clone(), values).expect("as many values as elements")
        };
        let inputs = graph
            .inputs()
            .map(|(name, id)| (name.to_owned(), tensor(&graph.ty(id).shape, 1.0)))
            .collect();
        let weights: HashMap<String, Tensor> = graph
            .parameters()
            .map(|(path, id)| (path.to_owned(), tensor(&graph.ty(id).shape, 0.4)))
            .collect();
        Ok(RandomGraph { graph, weights: Weights::new(weights), inputs })
    }

    /// The inputs as a run takes them.
    pub fn named_inputs(&self) -> Vec<(&str, &Tensor)> {
        self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
    }
}

/// Axes longer than one vector and one tile of any instruction set, none a multiple of either.
const LONG_AXES: [usize; 5] = [17, 33, 65, 130, 300];

/// Most pairs of tokens that an attention compares, which bounds the interpreter's time.
const MOST_SCORES: usize = 400_000;

struct Generator<'g> {
    builder: &'g Builder,
    random: Random,
    /// Whether axes may be long.
    large: bool,
    /// Most elements of a value.
    most_elements: usize,
    values: Vec<Value<'g>>,
    parameters: usize,
}

impl<'g> Generator<'g> {
    fn new(builder: &'g Builder, seed: u64) -> Self {
        let large = seed % 8 == 7;
        Generator {
            builder,
            random: Random::new(seed),
            large,
            most_elements: if large { 20_000 } else { 3000 },
            values: Vec::new(),
            parameters: 0,
        }
    }

    fn generate(&mut self) {
        for index in 0..1 + self.random.below(2) {
            let rank = 2 + self.random.below(3);
            let mut shape = vec![1; rank];
            for axis in 0..rank {
                shape[axis] = self.length(6, shape.iter().product());
            }
            let input = self.builder.input(&format!("x{index}"), DType::F32, shape);
            self.values.push(input);
        }
        for _ in 0..4 + self.random.below(22) {
            let x = self.pick();
            let y = self.step(x);
            if y.shape().elements() <= self.most_elements {
                self.values.push(y);
            }
        }
        let last = self.values[self.values.len() - 1];
        self.builder.output("last", last);
        let other = self.pick();
        self.builder.output("other", other);
    }

    /// Length of an axis: up to `usual`, in large graphs sometimes a long one if `others` times it is not too much.
    fn length(&mut self, usual: usize, others: usize) -> usize {
        let long = LONG_AXES[self.random.below(LONG_AXES.len())];
        if self.large && self.random.below(2) == 0 && others * long <= self.most_elements {
            return long;
        }
        1 + self.random.below(usual)
    }

    /// A random value, more often a recent one.
    fn pick(&mut self) -> Value<'g> {
        let count = self.values.len();
        let recent = self.random.below(count).max(self.random.below(count));
        self.values[recent]
    }

    fn parameter(&mut self, shape: impl Into<Shape>) -> Value<'g> {
        self.parameters += 1;
        self.builder.weights().at("layer").parameter(&format!("w{}", self.parameters), shape)
    }

    fn step(&mut self, x: Value<'g>) -> Value<'g> {
        match self.random.below(13) {
            0 | 1 => self.unary(x),
            2 | 3 => self.binary(x),
            4 | 5 => self.movement(x),
            6 | 7 => self.linear(x),
            8 => self.rowwise(x),
            9 => self.image(x),
            10 if x.shape().rows().pow(2) <= MOST_SCORES => self.attention(x),
            11 => self.two_way_attention(x),
            _ => self.weight_expression(x),
        }
    }

    fn unary(&mut self, x: Value<'g>) -> Value<'g> {
        match self.random.below(7) {
            0 => x.relu(),
            1 => x.gelu(),
            2 => x.sigmoid(),
            3 => x.tanh(),
            4 => -x,
            5 => x.abs(),
            _ => x.sin(),
        }
    }

    fn binary(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        match self.random.below(8) {
            0 => x * 0.5,
            1 => 1.5 - x,
            2 => x + self.parameter([shape.last_axis()]),
            3 => x * self.parameter([shape.last_axis()]),
            4 => x.maximum(self.builder.scalar(0.25)),
            5 => self.condition(x),
            _ => {
                let matching: Vec<Value<'g>> =
                    self.values.iter().copied().filter(|other| other.shape() == shape).collect();
                let other = matching[self.random.below(matching.len())];
                if self.random.below(2) == 0 { x + other } else { (x - other) * 0.5 }
            }
        }
    }

    /// A choice that depends on an input only: a rounding error must not change it.
    fn condition(&mut self, x: Value<'g>) -> Value<'g> {
        let first = self.values[0];
        let condition = first.max([0, 1], Reduced::Keep).mean([0, 1], Reduced::Keep);
        let rank = condition.shape().rank();
        let number = condition.max((0..rank).collect::<Vec<_>>(), Reduced::Drop);
        number.greater(self.builder.scalar(0.1)).select(x, x * 2.0)
    }

    fn movement(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        let rank = shape.rank();
        let axis = self.random.below(rank);
        match self.random.below(7) {
            0 => {
                let once = x.permute(self.order(rank));
                if self.random.below(2) == 0 { once } else { once.permute(self.order(rank)) }
            }
            1 => x.reshape([shape.rows(), shape.last_axis()]),
            2 => {
                let factor =
                    (1..=shape[axis]).rev().find(|f| *f < 4 && shape[axis].is_multiple_of(*f));
                let factor = factor.unwrap_or(1);
                let mut split = shape.to_vec();
                split.splice(axis..=axis, [shape[axis] / factor, factor]);
                x.reshape(split)
            }
            3 => {
                let start = self.random.below(shape[axis]);
                x.slice(axis, start..start + 1 + self.random.below(shape[axis] - start))
            }
            4 => Value::concat(&[x, x * 0.5], axis),
            5 => x.pad(vec![1; rank], vec![0; rank], 0.5),
            _ => {
                let mut larger = shape.to_vec();
                larger.insert(0, 2);
                x.broadcast(larger)
            }
        }
    }

    /// A random permutation of `0..count`.
    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            order.swap(i, self.random.below(i + 1));
        }
        order
    }

    /// A product, sometimes followed by what an epilogue can hold.
    fn linear(&mut self, x: Value<'g>) -> Value<'g> {
        let width = x.shape().last_axis();
        let rows = x.shape().rows();
        let outputs = if self.random.below(2) == 0 { width } else { self.length(9, rows) };
        let weight = self.parameter([outputs, width]);
        let mut y = x.linear(weight);
        self.values.extend((self.random.below(4) == 0).then_some(y));
        if self.random.below(3) == 0 {
            y = y * 0.3;
        }
        if self.random.below(2) == 0 {
            y = y + self.parameter([outputs]);
        }
        if self.random.below(3) == 0 {
            let shape = y.shape();
            y = y.reshape([1, shape.rows(), shape.last_axis()]);
        }
        y = match self.random.below(4) {
            0 => y.gelu(),
            1 => y.relu(),
            _ => y,
        };
        if y.shape() == x.shape() { x + y } else { y }
    }

    fn rowwise(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        let width = shape.last_axis();
        match self.random.below(5) {
            0 => x.softmax(),
            1 => x.layer_norm(self.parameter([width]), self.parameter([width]), 0.1),
            2 => x.mean([self.random.below(shape.rank())], Reduced::Keep),
            3 => x.sum([shape.rank() - 1], Reduced::Keep) * 0.2,
            _ => x.matmul_transposed(x * 0.3) * 0.3,
        }
    }

    fn image(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        if shape.rank() != 4 {
            return x.reshape([1, 1, shape.rows(), shape.last_axis()]);
        }
        let channels = shape[3];
        match self.random.below(5) {
            0 => {
                let outputs = self.length(5, shape.rows());
                let weight = self.parameter([outputs, channels, 1, 1]);
                let y = x.conv2d(weight, Conv2d::new(1, 0));
                (y + self.parameter([outputs])).gelu()
            }
            1 => {
                let weight = self.parameter([channels, channels, 3, 3]);
                x + x.conv2d(weight, Conv2d::new(1, 1))
            }
            2 => {
                let weight = self.parameter([channels, 2, 2, 2]);
                x.conv_transpose2d(weight, ConvTranspose2d::new(2, 0)).relu()
            }
            3 => x.apply(MaxPool2d { kernel: [2, 2], stride: [1, 1], padding: [1, 1] }, &[]),
            _ => x.resize(ResizeMode::Bilinear, [1 + self.random.below(6), 3]),
        }
    }

    fn attention(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        let width = shape.last_axis();
        let tokens = x.reshape([1, shape.rows(), width]);
        let weight = self.parameter([3 * width, width]);
        let qkv = tokens.linear(weight) + self.parameter([3 * width]);
        let [query, key, value] = qkv.split(2);
        AttentionInputs::new(query, key, value).attend(Attention::new(1, 0.4)).reshape(shape)
    }

    /// A few tokens attend to many, or many to few, all of them projected.
    fn two_way_attention(&mut self, x: Value<'g>) -> Value<'g> {
        let shape = x.shape();
        let width = shape.last_axis();
        let many = x.reshape([1, shape.rows(), width]);
        let few = self.parameter([1, 2, width]) + many.slice(1, 0..1);
        let (heads, inner) = (1 + self.random.below(2), 6);
        let few_look = self.random.below(2) == 0;
        let mut projected = |x: Value<'g>, outputs: usize| {
            let weight = self.parameter([outputs, x.shape().last_axis()]);
            let product = x.linear(weight);
            if self.random.below(3) > 0 { product + self.parameter([outputs]) } else { product }
        };
        let (queries, keys) = if few_look { (few, many) } else { (many, few) };
        let inputs = AttentionInputs::new(
            projected(queries, inner),
            projected(keys, inner),
            projected(keys, 2 * inner),
        );
        let mixed = inputs.attend(Attention::new(heads, 0.4));
        let result = projected(mixed, width);
        if result.shape() == many.shape() { many + result } else { result }
    }

    /// An expression of weights alone, which passes fold.
    fn weight_expression(&mut self, x: Value<'g>) -> Value<'g> {
        let width = x.shape().last_axis();
        let table = self.parameter([1, 2, width]).permute([1, 2, 0]);
        let row = table.sum([0, 2], Reduced::Drop).tanh() * 0.5;
        x * row + row
    }
}
