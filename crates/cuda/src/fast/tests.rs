//! Every shape of the published models that a fast kernel should take, and what it must refuse.

use std::collections::HashSet;

use cutout_graph::ops::{Activation, Attention as Op, BiasForm, SeparableBias, Windows};
use cutout_tensor::DType;

use super::attention::{Attention, attention};
use super::convolution::{Convolution, Taps, convolution};
use super::norm::{Norm, NormOutput, norm, quantize};
use super::product::{Finish, Parameters, Product, Rotation, product};
use super::split::{SplitProduct, split_product};
use super::tiles::{BYTE_TILES, CONVOLUTION_TILES, SWAPPED, TILES, Tile};
use super::units::units;
use super::{Matrix, Tokens};
use crate::launch::{Argument, Launch, Place, Region};
use crate::lower::Target;

const H200: Target = Target::HOPPER;

fn place(bytes: usize) -> Place {
    Place { region: Region::Arena, offset: 0, bytes }
}

/// Static shared memory of the kernels is below this.
const STATIC_SHARED: usize = 512;

/// Checks everything that a card would refuse.
fn check(launch: &Launch) {
    let name = &launch.kernel.0;
    assert!(symbols().contains(&**name), "{name} is not compiled");
    assert!(launch.grid.iter().all(|&blocks| blocks > 0), "{name}: {:?}", launch.grid);
    assert!(launch.grid[1] <= 65535 && launch.grid[2] <= 65535, "{name}: {:?}", launch.grid);
    assert!(launch.shared_bytes as usize + STATIC_SHARED <= H200.shared_bytes, "{name}");
    for argument in &launch.arguments {
        let Argument::TensorMap(map) = argument else { continue };
        assert!(map.box_dims.iter().all(|length| (1..=256).contains(length)), "{name}: {map:?}");
        assert!(map.strides.iter().all(|stride| stride % 16 == 0), "{name}: {map:?}");
        assert_eq!(map.strides.len() + 1, map.dims.len(), "{name}");
        assert_eq!(map.box_dims.len(), map.dims.len(), "{name}");
        let inner = map.box_dims[0] as usize * map.element.size();
        assert!([32, 64, 128].contains(&inner), "{name}: rows of {inner} bytes");
        let spans = map.dims[1..].iter().zip(&map.strides).map(|(n, stride)| (n - 1) * stride);
        let bytes = spans.sum::<u64>() + map.dims[0] * map.element.size() as u64;
        assert!(bytes <= map.place.bytes as u64, "{name}: {map:?}");
    }
}

/// Kernels that the units export.
fn symbols() -> HashSet<String> {
    let mut symbols = HashSet::new();
    for unit in units() {
        if unit.source.ends_with("norm.cu") {
            let half = unit.name.trim_start_matches("norm_");
            for lanes in [4, 8, 16, 32] {
                for per in 3..=10 {
                    symbols.insert(format!("norm_{half}_{lanes}x{per}"));
                    symbols.insert(format!("norm_bytes_{half}_{lanes}x{per}"));
                }
            }
            for per in 1..=8 {
                symbols.extend((per <= 5).then(|| format!("quantize_{half}_32x{per}")));
                symbols.extend((per >= 2).then(|| format!("quantize_{half}_128x{per}")));
            }
            continue;
        }
        if unit.name.ends_with("_split") {
            symbols.insert(format!("{}_combine", unit.name));
        }
        symbols.insert(unit.name);
    }
    symbols
}

#[test]
fn units_have_names_of_their_own() {
    let names: HashSet<String> = units().into_iter().map(|unit| unit.name).collect();
    assert_eq!(names.len(), units().len());
}

fn matrix(rows: usize, columns: usize, stored: DType) -> Matrix {
    Matrix::dense(place(rows * columns * stored.size()), stored, [rows, columns])
}

fn of([tokens, depth, outputs]: [usize; 3], finish: Finish) -> Product {
    let single = matches!(finish, Finish::Single(_));
    Product {
        a: matrix(tokens, depth, DType::F16),
        weight: matrix(outputs, depth, DType::F16),
        bias: Some(place(outputs * 4)),
        scales: None,
        finish,
        out: matrix(tokens, outputs, if single { DType::F32 } else { DType::F16 }),
    }
}

fn single(tokens: usize, outputs: usize) -> Finish {
    Finish::Single(Some(matrix(tokens, outputs, DType::F32)))
}

/// Tokens and width of the blocks of every encoder, with the width of its MLP.
const BLOCKS: [[usize; 3]; 16] = [
    [4096, 768, 3072],
    [4096, 1024, 4096],
    [4096, 1280, 5120],
    [5184, 1024, 4736],
    [65536, 96, 384],
    [16384, 192, 768],
    [4096, 384, 1536],
    [1024, 768, 3072],
    [65536, 112, 448],
    [16384, 224, 896],
    [4096, 448, 1792],
    [1024, 896, 3584],
    [65536, 144, 576],
    [16384, 288, 1152],
    [4096, 576, 2304],
    [1024, 1152, 4608],
];

/// The parameters of a product, and the tile of its name.
fn decoded(launch: &Launch) -> (Parameters, Tile, bool) {
    let Some(Argument::Bytes(bytes)) = launch.arguments.last() else { panic!("no parameters") };
    let name = &launch.kernel.0;
    let part = name.split('_').nth(2).expect("a tile");
    let swapped = name.ends_with("_swap");
    let tiles: Vec<Tile> = match () {
        () if swapped => SWAPPED.into(),
        () if name.starts_with("conv") => CONVOLUTION_TILES.into(),
        () if name.contains("_s8_") => BYTE_TILES.into(),
        () => TILES.into(),
    };
    let tile = *tiles.iter().find(|tile| tile.name == part).expect("a known tile");
    (bytemuck::pod_read_unaligned(bytes), tile, swapped)
}

/// Checks that the tiles of a launch cover its result.
fn covers(launch: &Launch) {
    let (p, tile, _) = decoded(launch);
    assert!(p.row_tiles as usize * tile.block_rows() >= p.rows as usize, "{launch:?}");
    assert!(p.column_tiles as usize * tile.columns >= p.columns as usize, "{launch:?}");
    assert!((launch.grid[0] as usize).is_multiple_of(tile.cluster));
}

#[test]
fn every_product_of_the_encoders_has_a_kernel() {
    for [tokens, width, hidden] in BLOCKS {
        for pictures in [1, 4] {
            let tokens = tokens * pictures;
            for product_of in [
                of([tokens, width, 3 * width], Finish::Half(Activation::Identity)),
                of([tokens, width, width], single(tokens, width)),
                of([tokens, width, hidden], Finish::Half(Activation::Gelu)),
                of([tokens, hidden, width], single(tokens, width)),
                of([tokens, width, 2 * width], Finish::Single(None)),
            ] {
                let launch = product(&product_of, H200).expect("a kernel");
                check(&launch);
                covers(&launch);
            }
        }
    }
}

#[test]
fn odd_lengths_have_kernels() {
    for shape in [[1, 8, 8], [7, 16, 24], [77, 96, 40], [1000, 144, 432], [129, 4104, 72]] {
        for finish in [Activation::Identity, Activation::Gelu, Activation::Relu] {
            let launch = product(&of(shape, Finish::Half(finish)), H200).expect("a kernel");
            check(&launch);
            covers(&launch);
        }
        let launch = product(&of(shape, single(shape[0], shape[2])), H200).expect("a kernel");
        check(&launch);
        covers(&launch);
    }
}

#[test]
fn products_of_the_mask_decoder_have_kernels() {
    let of = |[rows, depth, columns]: [usize; 3], shuffle| SplitProduct {
        a: matrix(rows, depth, DType::F32),
        weight: matrix(columns, 2 * depth.next_multiple_of(32), DType::BF16),
        matrices: 1,
        bias: Some(place(4 * columns)),
        residual: None,
        activation: Activation::Identity,
        shuffle,
        output: place(4 * rows * columns),
    };
    for prompts in [4, 16, 64] {
        let pixels = prompts * 4096;
        for product in [
            of([pixels, 256, 128], None),
            of([pixels, 128, 256], None),
            of([pixels, 256, 256], Some([64, 64])),
            of([4 * pixels, 64, 128], Some([128, 32])),
        ] {
            check(&split_product(&product, H200).expect("a kernel"));
        }
    }
    // Several matrices, a residual that is repeated, and one whose rows would be cut.
    let several = SplitProduct {
        weight: matrix(16 * 256, 2 * 64, DType::BF16),
        matrices: 16,
        bias: Some(place(4 * 256)),
        ..of([16 * 4096, 64, 256], None)
    };
    check(&split_product(&several, H200).expect("a kernel"));
    let added = |period| SplitProduct { residual: Some((place(4 * period), period)), ..several };
    check(&split_product(&added(4096 * 256), H200).expect("a kernel"));
    assert!(split_product(&added(128), H200).is_none());
    // Too few rows, an activation that the kernel does not have, a depth that cannot be copied in pieces of 16 bytes.
    assert!(split_product(&of([4096, 256, 128], None), H200).is_none());
    let sigmoid = SplitProduct { activation: Activation::Sigmoid, ..of([65536, 256, 128], None) };
    assert!(split_product(&sigmoid, H200).is_none());
    assert!(split_product(&of([65536, 30, 128], None), H200).is_none());
    assert!(split_product(&of([65536, 256, 128], None), Target::AMPERE).is_none());
}

#[test]
fn bytes_have_kernels() {
    for [tokens, width, hidden] in BLOCKS {
        for [depth, outputs] in [[width, hidden], [hidden, width]] {
            let mut bytes = of([tokens, depth, outputs], single(tokens, outputs));
            bytes.a = matrix(tokens, depth, DType::I8);
            bytes.weight = matrix(outputs, depth, DType::I8);
            bytes.scales = Some([place(tokens * 4), place(outputs * 4)]);
            let launch = product(&bytes, H200).expect("a kernel");
            check(&launch);
            covers(&launch);
            for activation in [Activation::Identity, Activation::Gelu, Activation::Relu] {
                let finish = Finish::Half(activation);
                let out = matrix(tokens, outputs, DType::F16);
                let launch = product(&Product { finish, out, ..bytes }, H200).expect("a kernel");
                check(&launch);
                covers(&launch);
            }
            bytes.scales = None;
            assert!(product(&bytes, H200).is_none(), "bytes need scales");
        }
    }
}

#[test]
fn unsuitable_products_are_refused() {
    let good = of([64, 64, 64], Finish::Half(Activation::Identity));
    assert!(product(&good, H200).is_some());
    assert!(product(&good, Target::AMPERE).is_none());
    let mut odd = good;
    odd.a.stride = 68;
    assert!(product(&odd, H200).is_none(), "rows that are not aligned");
    let mut odd = good;
    odd.a.place.offset = 8;
    assert!(product(&odd, H200).is_none(), "a place that is not aligned");
    let mut odd = good;
    odd.out.stored = DType::BF16;
    assert!(product(&odd, H200).is_none(), "another type of output");
    assert!(product(&of([64, 64, 60], good.finish), H200).is_none(), "60 outputs");
    let sigmoid = of([64, 64, 64], Finish::Half(Activation::Sigmoid));
    assert!(product(&sigmoid, H200).is_none());
    let mut short = good;
    short.a.place.bytes -= 2;
    assert!(product(&short, H200).is_none(), "rows beyond the place");
}

#[test]
fn rotated_products_have_kernels() {
    let rotation = Rotation {
        cos: place(576 * 32 * 4),
        sin: place(576 * 32 * 4),
        columns: 2048,
        head: 64,
        tokens: 5184,
        grid: 72,
        window: 24,
    };
    let launch = product(&of([5184, 1024, 3072], Finish::Rotated(rotation)), H200);
    check(&launch.expect("a kernel"));
    let bytes = |rotation| {
        let mut product_of = of([5184, 1024, 3072], Finish::Rotated(rotation));
        product_of.a = matrix(5184, 1024, DType::I8);
        product_of.weight = matrix(3072, 1024, DType::I8);
        product_of.scales = Some([place(5184 * 4), place(3072 * 4)]);
        product(&product_of, H200)
    };
    let launch = bytes(rotation).expect("a kernel");
    check(&launch);
    covers(&launch);
    assert!(bytes(Rotation { head: 256, ..rotation }).is_none(), "bytes with wide heads");
    let memory =
        Rotation { columns: 256, head: 256, tokens: 4096, grid: 64, window: 64, ..rotation };
    check(&product(&of([4096, 256, 256], Finish::Rotated(memory)), H200).expect("a kernel"));
    let wide = Rotation { head: 128, ..memory };
    assert!(product(&of([4096, 256, 256], Finish::Rotated(wide)), H200).is_none());
}

#[test]
fn convolutions_have_kernels() {
    for (shape, outputs, taps) in [
        ([1, 64, 64, 256], 256, Taps::Three),
        ([1, 288, 288, 256], 256, Taps::Three),
        ([1, 288, 288, 256], 32, Taps::Three),
        ([2, 144, 144, 256], 64, Taps::Three),
        ([1, 72, 72, 1024], 2048, Taps::Upscale),
        ([1, 144, 144, 512], 1024, Taps::Upscale),
    ] {
        for to in [DType::F16, DType::F32] {
            let [pictures, height, width, channels] = shape;
            let pixels = pictures * height * width;
            let taps_of = if taps == Taps::Three { 9 } else { 1 };
            let c = Convolution {
                pixels: place(pixels * channels * 2),
                stored: DType::F16,
                shape,
                taps,
                weight: matrix(outputs, taps_of * channels, DType::F16),
                bias: None,
                activation: Activation::Identity,
                output: place(pixels * outputs * to.size()),
                to,
            };
            let launch = convolution(&c, H200);
            assert_eq!(launch.is_some(), to == DType::F16 || taps == Taps::Three);
            let Some(launch) = launch else { continue };
            check(&launch);
            let (p, tile, _) = decoded(&launch);
            let box_x = 1 << p.box_x_log2;
            let box_y = tile.block_rows() / box_x;
            assert!(p.tiles_x as usize * box_x >= width && p.tiles_y as usize * box_y >= height);
            assert_eq!(p.row_tiles, p.tiles_x * p.tiles_y * pictures as i32);
        }
    }
}

fn heads(op: &Op, [queries, keys]: [usize; 2], widths: [usize; 2]) -> Attention<'_> {
    let tokens = |count: usize, channels: usize| Tokens {
        place: place(count * channels * 2),
        picture: count * channels,
        token: channels,
    };
    let channels = widths.map(|width| op.heads * width);
    Attention {
        op,
        stored: DType::F16,
        pictures: 1,
        tokens: [queries, keys],
        widths,
        operands: [
            tokens(queries, channels[0]),
            tokens(keys, channels[0]),
            tokens(keys, channels[1]),
        ],
        padding: op.has_padding().then(|| [place(channels[0] * 4), place(channels[1] * 4)]),
        tables: op.bias.map(|bias| [place((2 * bias.grid[0] - 1) * widths[0] * 2); 2]),
        output: place(queries * channels[1] * 2),
    }
}

fn launches(a: &Attention<'_>) -> Option<Vec<Launch>> {
    let all = attention(a, H200, &mut place)?;
    all.iter().for_each(check);
    Some(all)
}

#[test]
fn whole_attention_has_kernels() {
    for (count, width, value_width, tokens) in [
        (16, 64, 64, [5184, 5184]),
        (8, 32, 32, [5184, 5184]),
        (4, 96, 96, [4096, 4096]),
        (8, 56, 56, [4096, 4096]),
        (8, 72, 72, [4096, 4096]),
        (1, 256, 64, [4096, 28736]),
        (1, 256, 256, [4096, 4096]),
        (8, 32, 32, [5184, 33]),
    ] {
        let op = Op::new(count, 0.1);
        let all = launches(&heads(&op, tokens, [width, value_width])).expect("kernels");
        assert_eq!(all.len(), if width == 256 { 2 } else { 1 });
    }
    let op = Op::new(8, 0.1);
    assert!(launches(&heads(&op, [7, 4096], [32, 32])).is_none(), "few queries");
    assert!(launches(&heads(&op, [4096, 4096], [48, 48])).is_none(), "an unknown width");
    let masked = Op { causal: true, ..op };
    assert!(launches(&heads(&masked, [4096, 4096], [64, 64])).is_none());
}

#[test]
fn relative_bias_needs_a_grid_of_64() {
    let bias = |side: usize| Some(SeparableBias { form: BiasForm::Relative, grid: [side, side] });
    for (count, width) in [(12, 64), (16, 80)] {
        let op = Op { bias: bias(64), ..Op::new(count, 0.1) };
        assert!(launches(&heads(&op, [4096, 4096], [width, width])).is_some());
        let op = Op { bias: bias(32), ..op };
        assert!(launches(&heads(&op, [1024, 1024], [width, width])).is_none());
    }
}

fn windows(grid: usize, side: usize, pool: usize) -> Windows {
    Windows {
        query_grid: [grid / pool; 2],
        key_grid: [grid; 2],
        query_window: [side / pool; 2],
        key_window: [side; 2],
    }
}

#[test]
fn windows_have_kernels() {
    for (grid, side, pool, count, width, biased) in [
        (64, 14, 1, 12, 64, true),
        (64, 14, 1, 16, 80, true),
        (64, 14, 1, 4, 96, false),
        (64, 14, 2, 8, 96, false),
        (64, 14, 1, 8, 56, false),
        (64, 16, 1, 8, 72, false),
        (64, 16, 2, 16, 72, false),
        (72, 24, 1, 16, 64, false),
        (256, 8, 1, 1, 96, false),
        (256, 8, 2, 4, 72, false),
        (128, 4, 1, 4, 56, false),
        (128, 4, 2, 8, 72, false),
        (32, 7, 1, 16, 56, false),
        (32, 8, 1, 16, 72, false),
    ] {
        let bias = biased.then_some(SeparableBias { form: BiasForm::Relative, grid: [side, side] });
        let op = Op { windows: Some(windows(grid, side, pool)), bias, ..Op::new(count, 0.1) };
        let queries = (grid / pool) * (grid / pool);
        let a = heads(&op, [queries, grid * grid], [width, width]);
        assert!(launches(&a).is_some(), "{op:?}");
    }
    let op = Op { windows: Some(windows(60, 16, 1)), ..Op::new(8, 0.1) };
    assert!(launches(&heads(&op, [3600, 3600], [72, 72])).is_none(), "16×16 with padding");
}

#[test]
fn norms_have_kernels() {
    for [rows, width, _] in BLOCKS {
        for to in [NormOutput::Half(DType::BF16), NormOutput::Bytes(place(rows * 4))] {
            let launch = norm(
                &Norm {
                    x: place(rows * width * 4),
                    rows,
                    width,
                    gain: place(width * 4),
                    bias: place(width * 4),
                    epsilon: 1e-6,
                    output: place(rows * width * 2),
                    to,
                },
                H200,
            );
            check(&launch.expect("a kernel"));
        }
        let out = [place(rows * width), place(rows * 4)];
        check(
            &quantize((place(rows * width * 2), DType::F16), [rows, width], out, H200)
                .expect("a kernel"),
        );
        assert!(quantize((place(1 << 20), DType::F16), [4, 9000], out, H200).is_none());
    }
}
