//! Which products a kind of core multiplies faster by Strassen's algorithm, as measured (`docs/performance-notes.md`).

use super::scheme::MAX_LEVELS;
use crate::core_kind::CoreKind;
use crate::gemm::split::Shape;
use crate::simd::Isa;

/// The products that use a level.
#[derive(Clone, Copy)]
struct Level {
    least: Shape,
    /// Deeper ones would keep partial sums in the output.
    most_depth: usize,
}

/// How many levels products use.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct Rule {
    levels: &'static [Level],
    reason: &'static str,
}

/// Below these sizes the sums cost more than they save, and there are too few tasks.
const TWO_LEVELS: Rule = Rule {
    levels: &[
        Level { least: Shape { rows: 3072, columns: 256, depth: 256 }, most_depth: usize::MAX },
        Level { least: Shape { rows: 3072, columns: 768, depth: 768 }, most_depth: usize::MAX },
    ],
    reason: "measured on Zen 4 and Zen 5",
};

/// Multiplications are twice as fast here, sums are not; Zen 5 has faster caches and gains all the same.
const WIDE_ONLY: Rule = Rule {
    levels: &[Level {
        least: Shape { rows: 3072, columns: 2304, depth: 256 },
        most_depth: super::MAX_DEPTH,
    }],
    reason: "measured on Emerald Rapids, where two 512-bit multiply-adds start per cycle",
};

impl Rule {
    /// The rule for an instruction set on this machine's cores.
    pub(in crate::gemm) fn detect(isa: Isa) -> Rule {
        Rule::of(CoreKind::detect(), isa)
    }

    pub(in crate::gemm) fn of(kind: CoreKind, isa: Isa) -> Rule {
        match (isa, kind) {
            (Isa::Avx512, CoreKind::Amd | CoreKind::Intel | CoreKind::Other) => WIDE_ONLY,
            (Isa::Avx512, CoreKind::Zen4 | CoreKind::Zen5) | (Isa::Avx2 | Isa::Portable, _) => {
                TWO_LEVELS
            }
        }
    }

    /// Levels for a product.
    pub(super) fn levels(&self, shape: Shape) -> usize {
        let large = |level: &&Level| {
            let Level { least, most_depth } = level;
            shape.rows >= least.rows
                && shape.columns >= least.columns
                && (least.depth..=*most_depth).contains(&shape.depth)
        };
        self.levels.iter().take_while(large).count()
    }

    /// For people.
    fn description(&self) -> String {
        let counts = ["7 multiplications for 8", "49 for 64"];
        const { assert!(MAX_LEVELS == 2) };
        let levels = self.levels.iter().zip(counts).map(|(level, count)| {
            let Level { least: Shape { rows, columns, depth }, most_depth } = level;
            let most = match *most_depth {
                usize::MAX => String::new(),
                most => format!(" up to depth {most}"),
            };
            format!("{count} from {rows} rows × {depth} deep × {columns} columns{most}")
        });
        let levels: Vec<String> = levels.collect();
        let reason = self.reason;
        format!("{} ({reason}); `strassen = false` in a profile turns it off", levels.join(", "))
    }
}

/// Which products of `f32` are multiplied by Strassen's algorithm on this machine, and why, for people.
pub fn strassen_rule() -> String {
    Rule::detect(Isa::detect()).description()
}
