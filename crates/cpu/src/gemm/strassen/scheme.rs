//! Strassen's scheme: which sums of blocks are multiplied, and which output blocks each product contributes to.

use std::sync::LazyLock;

use crate::gemm::terms::Use;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// A quarter of the left or right matrix, or the sum or difference of two quarters.
#[derive(Clone, Copy)]
enum Operand {
    /// The quarter itself.
    Quarter(usize),
    /// `first + second`.
    Sum(usize, usize),
    /// `first - second`.
    Difference(usize, usize),
}

use Operand::{Difference, Quarter, Sum};
use Use::{Add, Overwrite, Subtract};

/// The seven products of one level: left operand, right operand, and the quarters of the output they contribute to.
const PRODUCTS: [(Operand, Operand, &[Use]); 7] = [
    (Sum(0, 3), Sum(0, 3), &[Overwrite(0), Overwrite(3)]),
    (Sum(2, 3), Quarter(0), &[Overwrite(2), Subtract(3)]),
    (Quarter(0), Difference(1, 3), &[Overwrite(1), Add(3)]),
    (Quarter(3), Difference(2, 0), &[Add(0), Add(2)]),
    (Sum(0, 1), Quarter(3), &[Subtract(0), Add(1)]),
    (Difference(2, 0), Sum(0, 1), &[Add(3)]),
    (Difference(1, 3), Sum(2, 3), &[Add(0)]),
];

/// Most levels of recursion.
pub(crate) const MAX_LEVELS: usize = 2;

/// A term of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A block of the matrix.
    Block(usize),
    /// An intermediate sum, of a level before the last.
    Sum(usize),
}

/// A block, or the sum or difference of two.
struct BlockSum {
    first: Source,
    second: Option<(Source, Sign)>,
}

/// Sign of the second term.
#[derive(Clone, Copy)]
enum Sign {
    Plus,
    Minus,
}

/// How the left or right operands of all products are computed.
pub(super) struct OperandSums {
    /// Sums that other sums are computed from.
    intermediates: Vec<BlockSum>,
    /// The operand of each product, in the order in which the products read them.
    operands: Vec<BlockSum>,
}

/// The products of matrices that are halved in both directions, once for each level.
pub(super) struct Scheme {
    pub(super) left: OperandSums,
    pub(super) right: OperandSums,
    /// Contributions of each product to the blocks of the output.
    pub(super) uses: Vec<Vec<Use>>,
}

static SCHEMES: [LazyLock<Scheme>; MAX_LEVELS] =
    [LazyLock::new(|| Scheme::new(1)), LazyLock::new(|| Scheme::new(2))];

impl Scheme {
    /// The scheme of `levels` levels, at least one.
    pub(super) fn of(levels: usize) -> &'static Scheme {
        &SCHEMES[levels - 1]
    }

    fn new(levels: usize) -> Scheme {
        let left = OperandSums::new(levels, |product| PRODUCTS[product].0);
        let right = OperandSums::new(levels, |product| PRODUCTS[product].1);
        Scheme { left, right, uses: uses(levels) }
    }
}

/// Block numbers of a square of `length` by `length` blocks, row by row.
fn all_blocks(length: usize) -> impl Iterator<Item = usize> {
    0..length * length
}

/// The blocks of one quarter of a square of blocks.
fn quarter<T: Copy>(blocks: &[T], number: usize) -> Vec<T> {
    let length = blocks.len().isqrt();
    let half = length / 2;
    let (row, column) = (number / 2 * half, number % 2 * half);
    let index = |i: usize| (row + i / half) * length + column + i % half;
    all_blocks(half).map(|i| blocks[index(i)]).collect()
}

impl OperandSums {
    fn new(levels: usize, operand: impl Fn(usize) -> Operand) -> OperandSums {
        let mut intermediates = Vec::new();
        let mut squares = vec![all_blocks(1 << levels).map(Source::Block).collect::<Vec<_>>()];
        for _ in 1..levels {
            let mut smaller = Vec::new();
            for square in &squares {
                for product in 0..PRODUCTS.len() {
                    let sums = operate(operand(product), square);
                    smaller
                        .push(sums.into_iter().map(|sum| keep(sum, &mut intermediates)).collect());
                }
            }
            squares = smaller;
        }
        let products = |square: &Vec<Source>| {
            (0..PRODUCTS.len())
                .flat_map(|product| operate(operand(product), square))
                .collect::<Vec<_>>()
        };
        let operands = squares.iter().flat_map(products).collect();
        OperandSums { intermediates, operands }
    }

    /// Number of operands: one for each product.
    pub(super) fn operands(&self) -> usize {
        self.operands.len()
    }

    /// Number of intermediate sums.
    pub(super) fn intermediates(&self) -> usize {
        self.intermediates.len()
    }

    /// Fills `out` with the operands, one after the other. `intermediates` is scratch memory.
    pub(super) fn compute<'a>(
        &self,
        isa: Isa,
        out: &mut [f32],
        intermediates: &mut [f32],
        block: impl Fn(usize) -> &'a [f32],
    ) {
        let size = out.len() / self.operands();
        for (index, sum) in self.intermediates.iter().enumerate() {
            let (known, rest) = intermediates.split_at_mut(index * size);
            sum.run(isa, &mut rest[..size], |source| find(source, known, size, &block));
        }
        for (sum, out) in self.operands.iter().zip(out.chunks_exact_mut(size)) {
            sum.run(isa, out, |source| find(source, intermediates, size, &block));
        }
    }
}

/// The elements of a term.
fn find<'b, 'a: 'b>(
    source: Source,
    sums: &'b [f32],
    size: usize,
    block: &impl Fn(usize) -> &'a [f32],
) -> &'b [f32] {
    match source {
        Source::Block(number) => block(number),
        Source::Sum(number) => &sums[number * size..][..size],
    }
}

impl BlockSum {
    fn run<'b>(&self, isa: Isa, out: &mut [f32], find: impl Fn(Source) -> &'b [f32]) {
        let first = find(self.first);
        match self.second {
            None => out.copy_from_slice(first),
            Some((second, sign)) => {
                dispatch(isa, AddBlocks { first, second: find(second), sign, out })
            }
        }
    }
}

/// How each block of an operand is computed from a square of blocks four times as large.
fn operate(operand: Operand, square: &[Source]) -> Vec<BlockSum> {
    let (first, second, sign) = match operand {
        Quarter(number) => {
            let unchanged = |first| BlockSum { first, second: None };
            return quarter(square, number).into_iter().map(unchanged).collect();
        }
        Sum(first, second) => (first, second, Sign::Plus),
        Difference(first, second) => (first, second, Sign::Minus),
    };
    let pairs = quarter(square, first).into_iter().zip(quarter(square, second));
    pairs.map(|(first, second)| BlockSum { first, second: Some((second, sign)) }).collect()
}

/// The source that a block is read from: the block itself, or a new intermediate sum.
fn keep(sum: BlockSum, intermediates: &mut Vec<BlockSum>) -> Source {
    if sum.second.is_none() {
        return sum.first;
    }
    intermediates.push(sum);
    Source::Sum(intermediates.len() - 1)
}

/// Blocks of the output that a product contributes to, at some level of the recursion.
struct Target {
    blocks: Vec<usize>,
    overwrites: bool,
    negative: bool,
}

/// Contributions of all products of `levels` levels. The first product written to an output block overwrites it; later ones
/// accumulate.
fn uses(levels: usize) -> Vec<Vec<Use>> {
    let blocks = all_blocks(1 << levels).collect();
    let mut products = vec![vec![Target { blocks, overwrites: true, negative: false }]];
    for _ in 0..levels {
        let smaller = |targets: &Vec<Target>| PRODUCTS.map(|(.., uses)| narrowed(targets, uses));
        products = products.iter().flat_map(smaller).collect();
    }
    let to_use = |target: Target| match target {
        Target { blocks, overwrites: true, .. } => Overwrite(blocks[0]),
        Target { blocks, negative: true, .. } => Subtract(blocks[0]),
        Target { blocks, .. } => Add(blocks[0]),
    };
    products.into_iter().map(|targets| targets.into_iter().map(to_use).collect()).collect()
}

fn narrowed(targets: &[Target], uses: &[Use]) -> Vec<Target> {
    let narrow = |target: &Target, wanted: Use| {
        let (number, overwrites, negative) = match wanted {
            Overwrite(number) => (number, target.overwrites, target.negative),
            Add(number) => (number, false, target.negative),
            Subtract(number) => (number, false, !target.negative),
        };
        Target { blocks: quarter(&target.blocks, number), overwrites, negative }
    };
    targets
        .iter()
        .flat_map(|target| uses.iter().map(move |&wanted| narrow(target, wanted)))
        .collect()
}

/// `out = first ± second`.
struct AddBlocks<'a> {
    first: &'a [f32],
    second: &'a [f32],
    sign: Sign,
    out: &'a mut [f32],
}

impl Kernel for AddBlocks<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let terms = self.first.iter().zip(self.second);
        match self.sign {
            Sign::Plus => {
                for (out, (first, second)) in self.out.iter_mut().zip(terms) {
                    *out = first + second;
                }
            }
            Sign::Minus => {
                for (out, (first, second)) in self.out.iter_mut().zip(terms) {
                    *out = first - second;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The coefficient of each block in a sum.
    fn coefficients(operands: &OperandSums, sum: &BlockSum, blocks: usize) -> Vec<i32> {
        let of = |source: Source| match source {
            Source::Block(number) => (0..blocks).map(|block| i32::from(block == number)).collect(),
            Source::Sum(number) => coefficients(operands, &operands.intermediates[number], blocks),
        };
        let (second, sign) = match sum.second {
            None => return of(sum.first),
            Some((second, Sign::Plus)) => (of(second), 1),
            Some((second, Sign::Minus)) => (of(second), -1),
        };
        of(sum.first).iter().zip(second).map(|(a, b)| a + sign * b).collect()
    }

    /// For each output block, the coefficient of each product of a left block and a right block.
    fn products(levels: usize) -> Vec<Vec<i32>> {
        let (scheme, blocks) = (Scheme::of(levels), 1 << (2 * levels));
        let mut found = vec![Vec::new(); blocks];
        for (product, uses) in scheme.uses.iter().enumerate() {
            let left = coefficients(&scheme.left, &scheme.left.operands[product], blocks);
            let right = coefficients(&scheme.right, &scheme.right.operands[product], blocks);
            let terms = || left.iter().flat_map(|a| right.iter().map(move |b| a * b));
            for wanted in uses {
                let (output, sign) = match *wanted {
                    Overwrite(output) => (output, 1),
                    Add(output) => (output, 1),
                    Subtract(output) => (output, -1),
                };
                let overwrites = matches!(wanted, Overwrite(_));
                assert_eq!(overwrites, found[output].is_empty(), "only the first use overwrites");
                if overwrites {
                    found[output] = vec![0; blocks * blocks];
                }
                for (sum, term) in found[output].iter_mut().zip(terms()) {
                    *sum += sign * term;
                }
            }
        }
        found
    }

    /// Every output block is the sum of its row of left blocks times its column of right blocks, with no other term.
    #[test]
    fn the_products_add_up_to_the_plain_product() {
        for levels in 1..=MAX_LEVELS {
            let (length, scheme) = (1 << levels, Scheme::of(levels));
            let blocks: usize = length * length;
            assert_eq!(scheme.uses.len(), [7, 49][levels - 1]);
            assert_eq!(scheme.left.operands(), scheme.uses.len());
            assert_eq!(scheme.right.intermediates(), [0, 20][levels - 1]);
            for (output, found) in products(levels).iter().enumerate() {
                let (row, column) = (output / length, output % length);
                let wanted = (0..blocks * blocks).map(|pair| {
                    let (left, right) = (pair / blocks, pair % blocks);
                    let meet = left % length == right / length;
                    i32::from(meet && left / length == row && right % length == column)
                });
                assert!(wanted.eq(found.iter().copied()), "{levels} levels, block {output}");
            }
        }
    }
}
