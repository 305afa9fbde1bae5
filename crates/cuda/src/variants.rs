//! Which kernels are compiled, for which cards.
//!
//! `cargo xtask kernels` compiles each [`Unit`] with NVRTC and packs the results into the bundles. The `.cuh` files of the kernel
//! folder can be included by name. One unit may export several `extern "C"` kernels.

/// Instruction set of a compiled unit.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Hopper with its own instructions (wgmma, TMA, setmaxnreg): compute capability 9.0.
    Sm90a,
    /// Ampere and Ada: compute capability 8.x.
    Sm80,
    /// PTX of the sm_80 family, which the driver compiles for every newer card.
    Ptx80,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 3] = [Family::Sm90a, Family::Sm80, Family::Ptx80];

    /// NVRTC's name of the target.
    pub const fn target(self) -> &'static str {
        match self {
            Family::Sm90a => "sm_90a",
            Family::Sm80 => "sm_80",
            Family::Ptx80 => "compute_80",
        }
    }
}

/// One compilation: a source with its macros.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Name of the unit in the bundle and in messages, unique.
    pub name: String,
    /// File name in the kernel folder.
    pub source: &'static str,
    /// Macros, as `NAME=VALUE`.
    pub macros: Vec<String>,
    /// Whether it uses Hopper's own instructions and is compiled for that family only.
    pub hopper: bool,
}

impl Unit {
    /// A source that every card runs, without macros, named as its file.
    fn plain(source: &'static str) -> Unit {
        let name = source.trim_end_matches(".cu").to_owned();
        Unit { name, source, macros: Vec::new(), hopper: false }
    }

    /// The options of NVRTC, without the target.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec!["--std=c++17".to_owned(), "-default-device".to_owned()];
        options.extend(self.macros.iter().map(|name| format!("-D{name}")));
        options
    }

    /// The families it is compiled for.
    pub fn families(&self) -> &'static [Family] {
        if self.hopper { &[Family::Sm90a] } else { &Family::ALL }
    }
}

/// Every unit of the bundles.
pub fn units() -> Vec<Unit> {
    let plain = [
        "elementwise.cu",
        "move.cu",
        "rows.cu",
        "image.cu",
        "picture.cu",
        "product.cu",
        "product_tf32.cu",
        "attention.cu",
        "gemm.cu",
    ];
    let mut units: Vec<Unit> = plain.map(Unit::plain).into();
    for element in ["f16", "bf16"] {
        units.extend(ATTENTION_WIDTHS.iter().map(|&widths| attention_unit(element, widths)));
    }
    units.extend(SINGLE_WIDTHS.iter().map(|&widths| single_unit(widths)));
    units.extend(crate::fast::units::units());
    units
}

/// Widths of queries and values in shared memory that the attention of f32 numbers on the tensor cores is compiled for, smallest first.
pub const SINGLE_WIDTHS: &[(usize, usize)] = &[(16, 16), (32, 32), (64, 64), (256, 256)];

fn single_unit((width, value_width): (usize, usize)) -> Unit {
    let name = format!("attention_tf32_{width}_{value_width}");
    let macros =
        vec![format!("WIDTH={width}"), format!("VALUES={value_width}"), format!("NAME={name}")];
    Unit { name, source: "attention_tf32.cu", macros, hopper: false }
}

/// Widths of queries and values in shared memory that the attention of halves is compiled for, smallest first.
pub const ATTENTION_WIDTHS: &[(usize, usize)] =
    &[(32, 32), (64, 64), (80, 80), (96, 96), (128, 128), (256, 64), (256, 256)];

fn attention_unit(element: &str, (width, value_width): (usize, usize)) -> Unit {
    let name = format!("attention_{element}_{width}_{value_width}");
    let macros = vec![
        format!("ELEMENT={}", element.to_uppercase()),
        format!("DQ={width}"),
        format!("DV={value_width}"),
        format!("NAME={name}"),
    ];
    Unit { name, source: "attention_half.cu", macros, hopper: false }
}
