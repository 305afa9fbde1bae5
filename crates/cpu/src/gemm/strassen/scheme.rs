//! Which sums of blocks are multiplied, and what becomes of the products.

use std::sync::LazyLock;

use crate::gemm::terms::Use;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// A quarter of the left or right side, or the sum or difference of two.
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
use Use::{Added, Begins, Subtracted};

/// The seven products of one level: left operand, right operand, and the quarters of the output they go to.
const PRODUCTS: [(Operand, Operand, &[Use]); 7] = [
    (Sum(0, 3), Sum(0, 3), &[Begins(0), Begins(3)]),
    (Sum(2, 3), Quarter(0), &[Begins(2), Subtracted(3)]),
    (Quarter(0), Difference(1, 3), &[Begins(1), Added(3)]),
    (Quarter(3), Difference(2, 0), &[Added(0), Added(2)]),
    (Sum(0, 1), Quarter(3), &[Subtracted(0), Added(1)]),
    (Difference(2, 0), Sum(0, 1), &[Added(3)]),
    (Difference(1, 3), Sum(2, 3), &[Added(0)]),
];

/// The most often that sides are halved.
pub(crate) const MAX_LEVELS: usize = 2;

/// What a sum is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A block of the side.
    Block(usize),
    /// A sum of a level before the last.
    Sum(usize),
}

/// A sum, or what it would be with nothing added.
struct Making {
    first: Place,
    second: Option<(Place, Sign)>,
}

/// What becomes of a second term.
#[derive(Clone, Copy)]
enum Sign {
    Plus,
    Minus,
}

/// One side of all products.
pub(super) struct Side {
    /// Sums that only others are made of.
    before: Vec<Making>,
    /// The operand of each product. They lie in the order of the products, so that one is read after the other.
    operands: Vec<Making>,
}

/// The products of sides that are halved both ways so many times, each half like the whole.
pub(super) struct Scheme {
    pub(super) left: Side,
    pub(super) right: Side,
    /// The blocks of the output that each product goes to.
    pub(super) uses: Vec<Vec<Use>>,
}

static SCHEMES: [LazyLock<Scheme>; MAX_LEVELS] =
    [LazyLock::new(|| Scheme::new(1)), LazyLock::new(|| Scheme::new(2))];

impl Scheme {
    /// The scheme of one level or more.
    pub(super) fn of(levels: usize) -> &'static Scheme {
        &SCHEMES[levels - 1]
    }

    fn new(levels: usize) -> Scheme {
        let left = Side::new(levels, |product| PRODUCTS[product].0);
        let right = Side::new(levels, |product| PRODUCTS[product].1);
        Scheme { left, right, uses: uses(levels) }
    }
}

/// Numbers of the blocks of a square of `length` by `length` blocks, row by row.
fn all_blocks(length: usize) -> impl Iterator<Item = usize> {
    0..length * length
}

/// A quarter of a square of blocks.
fn quarter<T: Copy>(blocks: &[T], number: usize) -> Vec<T> {
    let length = blocks.len().isqrt();
    let half = length / 2;
    let (row, column) = (number / 2 * half, number % 2 * half);
    let place = |i: usize| (row + i / half) * length + column + i % half;
    all_blocks(half).map(|i| blocks[place(i)]).collect()
}

impl Side {
    fn new(levels: usize, operand: impl Fn(usize) -> Operand) -> Side {
        let mut before = Vec::new();
        let mut squares = vec![all_blocks(1 << levels).map(Place::Block).collect::<Vec<_>>()];
        for _ in 1..levels {
            let mut smaller = Vec::new();
            for square in &squares {
                for product in 0..PRODUCTS.len() {
                    let makings = operate(operand(product), square);
                    smaller.push(
                        makings.into_iter().map(|making| keep(making, &mut before)).collect(),
                    );
                }
            }
            squares = smaller;
        }
        let products = |square: &Vec<Place>| {
            (0..PRODUCTS.len())
                .flat_map(|product| operate(operand(product), square))
                .collect::<Vec<_>>()
        };
        let operands = squares.iter().flat_map(products).collect();
        Side { before, operands }
    }

    /// How many operands there are: one for each product.
    pub(super) fn operands(&self) -> usize {
        self.operands.len()
    }

    /// How many sums have to be made before.
    pub(super) fn before(&self) -> usize {
        self.before.len()
    }

    /// Fills `out` with the operands, one after the other, by way of `before`, whose contents do not matter.
    pub(super) fn make<'a>(
        &self,
        isa: Isa,
        out: &mut [f32],
        before: &mut [f32],
        block: impl Fn(usize) -> &'a [f32],
    ) {
        let size = out.len() / self.operands();
        for (index, making) in self.before.iter().enumerate() {
            let (known, rest) = before.split_at_mut(index * size);
            making.run(isa, &mut rest[..size], |place| find(place, known, size, &block));
        }
        for (making, out) in self.operands.iter().zip(out.chunks_exact_mut(size)) {
            making.run(isa, out, |place| find(place, before, size, &block));
        }
    }
}

fn find<'b, 'a: 'b>(
    place: Place,
    sums: &'b [f32],
    size: usize,
    block: &impl Fn(usize) -> &'a [f32],
) -> &'b [f32] {
    match place {
        Place::Block(number) => block(number),
        Place::Sum(number) => &sums[number * size..][..size],
    }
}

impl Making {
    fn run<'b>(&self, isa: Isa, out: &mut [f32], find: impl Fn(Place) -> &'b [f32]) {
        let first = find(self.first);
        match self.second {
            None => out.copy_from_slice(first),
            Some((second, sign)) => dispatch(isa, Add { first, second: find(second), sign, out }),
        }
    }
}

/// An operand of a square of blocks: how each block of a quarter of its size is made.
fn operate(operand: Operand, square: &[Place]) -> Vec<Making> {
    let (first, second, sign) = match operand {
        Quarter(number) => {
            let made = |first| Making { first, second: None };
            return quarter(square, number).into_iter().map(made).collect();
        }
        Sum(first, second) => (first, second, Sign::Plus),
        Difference(first, second) => (first, second, Sign::Minus),
    };
    let pairs = quarter(square, first).into_iter().zip(quarter(square, second));
    pairs.map(|(first, second)| Making { first, second: Some((second, sign)) }).collect()
}

/// Where a block will lie: where it is, or among the sums that are made before.
fn keep(making: Making, before: &mut Vec<Making>) -> Place {
    if making.second.is_none() {
        return making.first;
    }
    before.push(making);
    Place::Sum(before.len() - 1)
}

/// Blocks of the output that a product goes to, while they are halved.
struct Target {
    blocks: Vec<usize>,
    begins: bool,
    negative: bool,
}

/// Where the products of so many levels go. An output's first use begins it: of each level the first does.
fn uses(levels: usize) -> Vec<Vec<Use>> {
    let blocks = all_blocks(1 << levels).collect();
    let mut products = vec![vec![Target { blocks, begins: true, negative: false }]];
    for _ in 0..levels {
        let smaller = |targets: &Vec<Target>| PRODUCTS.map(|(.., uses)| narrowed(targets, uses));
        products = products.iter().flat_map(smaller).collect();
    }
    let to_use = |target: Target| match target {
        Target { blocks, begins: true, .. } => Begins(blocks[0]),
        Target { blocks, negative: true, .. } => Subtracted(blocks[0]),
        Target { blocks, .. } => Added(blocks[0]),
    };
    products.into_iter().map(|targets| targets.into_iter().map(to_use).collect()).collect()
}

fn narrowed(targets: &[Target], uses: &[Use]) -> Vec<Target> {
    let narrow = |target: &Target, wanted: Use| {
        let (number, begins, negative) = match wanted {
            Begins(number) => (number, target.begins, target.negative),
            Added(number) => (number, false, target.negative),
            Subtracted(number) => (number, false, !target.negative),
        };
        Target { blocks: quarter(&target.blocks, number), begins, negative }
    };
    targets
        .iter()
        .flat_map(|target| uses.iter().map(move |&wanted| narrow(target, wanted)))
        .collect()
}

/// `out = first ± second`.
struct Add<'a> {
    first: &'a [f32],
    second: &'a [f32],
    sign: Sign,
    out: &'a mut [f32],
}

impl Kernel for Add<'_> {
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
    fn coefficients(side: &Side, making: &Making, blocks: usize) -> Vec<i32> {
        let of = |place: Place| match place {
            Place::Block(number) => (0..blocks).map(|block| i32::from(block == number)).collect(),
            Place::Sum(number) => coefficients(side, &side.before[number], blocks),
        };
        let (second, sign) = match making.second {
            None => return of(making.first),
            Some((second, Sign::Plus)) => (of(second), 1),
            Some((second, Sign::Minus)) => (of(second), -1),
        };
        of(making.first).iter().zip(second).map(|(a, b)| a + sign * b).collect()
    }

    /// Of each output block: how often each left block times each right block is in it.
    fn products(levels: usize) -> Vec<Vec<i32>> {
        let (scheme, blocks) = (Scheme::of(levels), 1 << (2 * levels));
        let mut found = vec![Vec::new(); blocks];
        for (product, uses) in scheme.uses.iter().enumerate() {
            let left = coefficients(&scheme.left, &scheme.left.operands[product], blocks);
            let right = coefficients(&scheme.right, &scheme.right.operands[product], blocks);
            let terms = || left.iter().flat_map(|a| right.iter().map(move |b| a * b));
            for wanted in uses {
                let (output, sign) = match *wanted {
                    Begins(output) => (output, 1),
                    Added(output) => (output, 1),
                    Subtracted(output) => (output, -1),
                };
                let begins = matches!(wanted, Begins(_));
                assert_eq!(begins, found[output].is_empty(), "the first use begins an output");
                if begins {
                    found[output] = vec![0; blocks * blocks];
                }
                for (sum, term) in found[output].iter_mut().zip(terms()) {
                    *sum += sign * term;
                }
            }
        }
        found
    }

    /// Every output block is the sum of its row of left blocks times its column of right blocks, and of nothing else.
    #[test]
    fn the_products_add_up_to_the_usual_sum() {
        for levels in 1..=MAX_LEVELS {
            let (length, scheme) = (1 << levels, Scheme::of(levels));
            let blocks: usize = length * length;
            assert_eq!(scheme.uses.len(), [7, 49][levels - 1]);
            assert_eq!(scheme.left.operands(), scheme.uses.len());
            assert_eq!(scheme.right.before(), [0, 20][levels - 1]);
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
