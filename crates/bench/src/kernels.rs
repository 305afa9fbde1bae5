//! The kernels and shapes that are measured.

mod attention;
mod compile;
mod compiled;
mod convolution;
mod float_product;
mod half_product;
mod memory_bound;
mod quantized_product;
mod rounded_attention;

use anyhow::Result;

use crate::bench::Bench;
use crate::goal::Goal;
use crate::outcome::Outcome;

type Measure = dyn Fn(&Bench) -> Result<Outcome>;

/// A planned measurement.
pub(crate) struct Task {
    pub(crate) kernel: &'static str,
    pub(crate) shape: String,
    pub(crate) run: Box<Measure>,
}

impl Task {
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.kernel, self.shape)
    }
}

/// Rows, depth and columns of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductShape {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) columns: usize,
}

impl ProductShape {
    const fn new(rows: usize, depth: usize, columns: usize) -> ProductShape {
        ProductShape { rows, depth, columns }
    }

    fn name(self) -> String {
        format!("{}x{}x{}", self.rows, self.depth, self.columns)
    }

    /// Number of multiplications and additions.
    fn operations(self) -> f64 {
        2.0 * self.rows as f64 * self.depth as f64 * self.columns as f64
    }
}

/// The products of the image encoders' large layers.
const LARGE: [ProductShape; 5] = [
    ProductShape::new(4096, 768, 2304),
    ProductShape::new(4096, 768, 3072),
    ProductShape::new(4096, 3072, 768),
    ProductShape::new(4096, 768, 768),
    ProductShape::new(5184, 1024, 4096),
];

/// Tall or thin products, and the few rows of a decoder.
const OTHERS: [(ProductShape, Goal); 4] = [
    (ProductShape::new(65536, 96, 288), Goal::Share(0.65)),
    (ProductShape::new(16384, 192, 768), Goal::Share(0.65)),
    (ProductShape::new(4096, 64, 28736), Goal::Share(0.55)),
    (ProductShape::new(7, 256, 4096), Goal::Gflops(120.0)),
];

/// Every measurement whose `kernel shape` contains `only`.
pub(crate) fn all(only: Option<&str>) -> Vec<Task> {
    let large = LARGE.iter().map(|&shape| (shape, Goal::ShareAndLead(0.8)));
    let mut tasks: Vec<Task> =
        large.chain(OTHERS).map(|(shape, goal)| float_product::task(shape, goal)).collect();
    tasks.extend(LARGE.iter().map(|&shape| half_product::task(shape)));
    tasks.extend(LARGE.iter().map(|&shape| quantized_product::task(shape)));
    tasks.extend(attention::scenarios().into_iter().map(compiled::task));
    tasks.extend(rounded_attention::tasks());
    tasks.extend(memory_bound::scenarios().into_iter().map(compiled::task));
    tasks.extend(convolution::scenarios().into_iter().map(compiled::task));
    tasks.push(compile::task());
    tasks.retain(|task| only.is_none_or(|text| task.name().contains(text)));
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_found_by_name() {
        assert_eq!(all(Some("gemm_f32")).len(), 9);
        assert_eq!(all(Some("gemm_f32 7x256x4096")).len(), 1);
        assert!(all(Some("nothing")).is_empty());
        let names: std::collections::HashSet<String> = all(None).iter().map(Task::name).collect();
        assert_eq!(names.len(), all(None).len(), "names are unique");
    }
}
