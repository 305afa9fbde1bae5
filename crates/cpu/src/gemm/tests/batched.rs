use super::*;

/// A batch of problems of one shape, whose right operands are their weights.
struct Batch {
    problems: Vec<Problem>,
    left: Vec<f32>,
    /// `[batch, columns, depth]`
    transposed: Vec<f32>,
    /// `[batch, depth, columns]`
    plain: Vec<f32>,
}

impl Batch {
    fn new(batch: usize, rows: usize, depth: usize, columns: usize) -> Batch {
        let mut noise = Noise((batch + rows) as u64);
        let mut problems: Vec<Problem> =
            (0..batch).map(|_| Problem::new(rows, depth, columns, 0)).collect();
        let mut plain = vec![0.0; batch * depth * columns];
        for (index, problem) in problems.iter_mut().enumerate() {
            problem.left = noise.floats(rows * depth);
            problem.weight = noise.floats(columns * depth);
            for (at, &value) in problem.weight.iter().enumerate() {
                plain[(index * depth + at % depth) * columns + at / depth] = value;
            }
        }
        let left = problems.iter().flat_map(|problem| problem.left.clone()).collect();
        let transposed = problems.iter().flat_map(|problem| problem.weight.clone()).collect();
        Batch { problems, left, transposed, plain }
    }

    fn product(&self, isa: Isa, right: BatchedRight<'static>) -> BatchedProduct<'_> {
        let Problem { rows, columns, depth, .. } = self.problems[0];
        let left = BatchedLeft { data: &self.left, batch_stride: rows * depth, row_stride: depth };
        let data = if right.depth_stride == 1 { &self.transposed } else { &self.plain };
        let right = BatchedRight { data, ..right };
        BatchedProduct { isa, batch: self.problems.len(), rows, columns, depth, left, right }
    }

    /// The strides of `[columns, depth]` and of `[depth, columns]`.
    fn orders(&self) -> [BatchedRight<'static>; 2] {
        let Problem { columns, depth, .. } = self.problems[0];
        let batch_stride = columns * depth;
        [
            BatchedRight { data: &[], batch_stride, depth_stride: 1, column_stride: depth },
            BatchedRight { data: &[], batch_stride, depth_stride: columns, column_stride: 1 },
        ]
    }

    fn run(
        &self,
        threads: usize,
        product: &BatchedProduct<'_>,
        epilogue: &Epilogue<'_>,
    ) -> Vec<f32> {
        let mut output: Vec<f32> = self.problems.iter().flat_map(Problem::blank).collect();
        let (row_stride, batch_stride) = (product.columns, product.rows * product.columns);
        let target = BatchedOutput { data: &mut output, batch_stride, row_stride };
        batched_gemm(&Pool::new(threads), product, epilogue, target);
        output
    }

    fn check(&self, found: &[f32], epilogue: &Epilogue<'_>, what: &str) {
        let size = self.problems[0].rows * self.problems[0].columns;
        for (problem, values) in self.problems.iter().zip(found.chunks_exact(size)) {
            problem.check(values, epilogue, what);
        }
    }
}

#[test]
fn either_memory_order_of_the_right_operand() {
    for isa in Isa::available() {
        for (batch, rows, depth, columns) in
            [(1, 1, 1, 1), (3, 20, 33, 50), (2, 70, 64, 300), (2, 9, 1100, 33), (4, 601, 8, 17)]
        {
            let batch = Batch::new(batch, rows, depth, columns);
            for order in batch.orders() {
                let product = batch.product(isa, order);
                let found = batch.run(1, &product, &Epilogue::NONE);
                batch.check(&found, &Epilogue::NONE, &format!("{isa:?}"));
                let threaded = batch.run(7, &product, &Epilogue::NONE);
                assert!(found == threaded, "{isa:?} {rows}x{depth}x{columns}");
            }
        }
    }
}

#[test]
fn epilogues_apply_to_each_product() {
    for isa in Isa::available() {
        for depth in [30, 1200] {
            let batch = Batch::new(3, 20, depth, 40);
            for activation in [Activation::Identity, Activation::Relu, Activation::Gelu] {
                let bias = batch.problems[0].bias.clone();
                let epilogue = Epilogue {
                    scale: 0.3,
                    bias: Some(&bias),
                    activation,
                    residual: Residual::Output,
                };
                let found = batch.run(2, &batch.product(isa, batch.orders()[0]), &epilogue);
                batch.check(&found, &epilogue, &format!("{isa:?} {activation:?}"));
            }
        }
    }
}

#[test]
fn outputs_may_interleave_and_operands_may_be_shared() {
    for isa in Isa::available() {
        let (heads, rows, depth, columns) = (3, 25, 16, 20);
        let batch = Batch::new(heads, rows, depth, columns);
        let mut product = batch.product(isa, batch.orders()[0]);
        product.left.batch_stride = 0;
        let mut output = vec![UNTOUCHED; rows * heads * columns];
        let target =
            BatchedOutput { data: &mut output, batch_stride: columns, row_stride: heads * columns };
        batched_gemm(&Pool::new(2), &product, &Epilogue::NONE, target);
        let mut expected = Vec::new();
        for problem in &batch.problems {
            let mut shared = Problem::new(rows, depth, columns, 0);
            shared.left = batch.problems[0].left.clone();
            shared.weight = problem.weight.clone();
            expected.push(shared.run(isa, 1, &Epilogue::NONE));
        }
        for row in 0..rows {
            for (head, expected) in expected.iter().enumerate() {
                let found = &output[(row * heads + head) * columns..][..columns];
                assert_eq!(found, &expected[row * columns..][..columns], "{isa:?} {row} {head}");
            }
        }
    }
}

#[test]
fn depth_zero_and_empty_products() {
    for isa in Isa::available() {
        let batch = Batch::new(2, 3, 0, 5);
        let bias = vec![2.0; 5];
        let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::NONE };
        assert_eq!(batch.run(1, &batch.product(isa, batch.orders()[1]), &epilogue), [2.0; 30]);
        let mut product = batch.product(isa, batch.orders()[1]);
        product.batch = 0;
        assert_eq!(batch.run(1, &product, &epilogue).len(), 30);
    }
}

#[test]
#[should_panic(expected = "the outputs overlap")]
fn overlapping_outputs_are_refused() {
    let batch = Batch::new(2, 3, 4, 5);
    let product = batch.product(Isa::Portable, batch.orders()[0]);
    let mut output = vec![0.0; 100];
    let target = BatchedOutput { data: &mut output, batch_stride: 4, row_stride: 50 };
    batched_gemm(&Pool::new(1), &product, &Epilogue::NONE, target);
}

#[test]
#[should_panic(expected = "right operand: element 39 needed")]
fn a_short_right_operand_is_refused() {
    let batch = Batch::new(2, 3, 4, 5);
    let mut product = batch.product(Isa::Portable, batch.orders()[0]);
    product.right.data = &product.right.data[1..];
    batch.run(1, &product, &Epilogue::NONE);
}
