//! Which variants of the fast kernels are compiled.

use super::attention;
use super::product::{RELU_BYTES, ROTATED_BYTES};
use super::split;
use super::split_attention;
use super::tiles::{BYTE_TILES, CONVOLUTION_TILES, SWAPPED, TILES, Tile};
use super::window;
use crate::variants::Unit;

/// Half precision types.
const HALVES: [&str; 2] = ["f16", "bf16"];

/// A unit whose kernel is named as the unit.
fn unit(name: String, source: &'static str, half: &str, macros: &[(&str, usize)]) -> Unit {
    let mut all = vec![format!("NAME={name}")];
    all.extend(macros.iter().map(|(name, value)| format!("{name}={value}")));
    all.extend((half == "bf16").then(|| "HALF_BF16=1".to_owned()));
    Unit { name, source, macros: all, hopper: true }
}

/// Operands and epilogue of a GEMM unit.
#[derive(Clone, Copy)]
struct Gemm {
    kind: &'static str,
    ending: &'static str,
    swapped: bool,
    convolution: bool,
}

impl Gemm {
    fn unit(self, tile: &Tile) -> Unit {
        let Gemm { kind, ending, swapped, convolution } = self;
        let prefix = if convolution { "conv" } else { "gemm" };
        let suffix = if swapped { "_swap" } else { "" };
        let name = format!("{prefix}_{kind}_{}_{ending}{suffix}", tile.name);
        let (epilogue, head) = match ending {
            "half" => (0, 0),
            "gelu" => (1, 0),
            "f32" => (2, 0),
            "relu" => (3, 0),
            "rope256" => (4, 256),
            _ => (4, 64),
        };
        let [stages, slots] = if epilogue == 2 { tile.single_stages() } else { [tile.stages, 1] };
        let macros = [
            ("KIND", usize::from(kind == "s8")),
            ("WM", tile.rows),
            ("BN", tile.columns),
            ("PP", usize::from(tile.ping_pong)),
            ("CL", tile.cluster),
            ("ST", stages),
            ("SL", slots),
            ("EPI", epilogue),
            ("SWAP", usize::from(swapped)),
            ("CONV", usize::from(convolution)),
            ("HEAD", head),
        ];
        unit(name, "sm90/gemm.cu", kind, &macros)
    }
}

fn gemms() -> Vec<Unit> {
    let mut units = Vec::new();
    for kind in HALVES {
        let plain = Gemm { kind, ending: "half", swapped: false, convolution: false };
        for ending in ["half", "gelu", "f32"] {
            let of = Gemm { ending, ..plain };
            units.extend(TILES.iter().map(|tile| of.unit(tile)));
            units.extend(SWAPPED.iter().map(|tile| Gemm { swapped: true, ..of }.unit(tile)));
            let convolution = Gemm { convolution: true, ..of };
            units.extend(CONVOLUTION_TILES.iter().map(|tile| convolution.unit(tile)));
        }
        for (ending, names) in [
            ("relu", &["p128x192", "p128x128", "p64x128"][..]),
            ("rope64", &["p128x192", "p128x128"]),
            ("rope256", &["p64x128"]),
        ] {
            let tiles = TILES.iter().filter(|tile| names.contains(&tile.name));
            units.extend(tiles.map(|tile| Gemm { ending, ..plain }.unit(tile)));
        }
    }
    let bytes = Gemm { kind: "s8", ending: "half", swapped: false, convolution: false };
    for ending in ["half", "gelu", "f32"] {
        // The widest tile needs more registers than there are for this epilogue.
        let tiles = if ending == "half" { &BYTE_TILES[1..] } else { &BYTE_TILES[..] };
        units.extend(tiles.iter().map(|tile| Gemm { ending, ..bytes }.unit(tile)));
    }
    let swapped = Gemm { ending: "f32", swapped: true, ..bytes };
    units.extend(SWAPPED.iter().map(|tile| swapped.unit(tile)));
    for (ending, names) in [("rope64", &ROTATED_BYTES[..]), ("relu", &RELU_BYTES)] {
        let tiles = BYTE_TILES.iter().filter(|tile| names.contains(&tile.name));
        units.extend(tiles.map(|tile| Gemm { ending, ..bytes }.unit(tile)));
    }
    units
}

fn splits() -> Vec<Unit> {
    let one = |variant: split::Variant| {
        let macros = [("MI", variant.rows / 128), ("BN", split::COLUMNS), ("ST", variant.stages)];
        unit(variant.name(), "sm90/gemm_split.cu", "", &macros)
    };
    let mut units: Vec<Unit> = split::VARIANTS.map(one).into();
    units.push(unit(split_attention::NAME.to_owned(), "sm90/attention_split.cu", "", &[]));
    units
}

fn attentions() -> Vec<Unit> {
    let one = |half: &str, variant: &attention::Variant| {
        let macros = [
            ("HD", variant.widths[0]),
            ("HV", variant.widths[1]),
            ("BN", variant.keys),
            ("NW", variant.warpgroups),
            ("ST", attention::Variant::STAGES),
            ("QROWS", variant.rows),
            ("BIAS", usize::from(variant.bias)),
            ("SPLIT", usize::from(variant.split)),
            ("PING", usize::from(variant.ping)),
        ];
        unit(variant.name(half), "sm90/attention.cu", half, &macros)
    };
    let of = |half| attention::VARIANTS.iter().map(move |variant| one(half, variant));
    HALVES.into_iter().flat_map(of).collect()
}

fn windows() -> Vec<Unit> {
    let mut units = Vec::new();
    for half in HALVES {
        units.extend(window::VARIANTS.iter().map(|variant| {
            let macros = [
                ("SIDE", variant.side),
                ("HD", variant.width),
                ("BIAS", usize::from(variant.bias)),
                ("WG", variant.warpgroups),
            ];
            unit(variant.name(half), "sm90/window.cu", half, &macros)
        }));
        for width in window::SMALL_WIDTHS {
            units.extend(window::SMALL_KEYS.iter().map(|&keys| {
                let name = window::small_name(half, width, keys);
                unit(name, "sm90/window_small.cu", half, &[("HD", width), ("KP", keys)])
            }));
        }
    }
    units
}

fn norms() -> Vec<Unit> {
    let one = |half: &'static str| {
        let mut macros = vec![format!("KIND={half}")];
        macros.extend((half == "bf16").then(|| "HALF_BF16=1".to_owned()));
        Unit { name: format!("norm_{half}"), source: "sm90/norm.cu", macros, hopper: true }
    };
    HALVES.map(one).into()
}

/// Every unit of the fast kernels.
pub fn units() -> Vec<Unit> {
    [gemms(), splits(), attentions(), windows(), norms()].into_iter().flatten().collect()
}
