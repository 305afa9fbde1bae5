//! Resizes compared with results of Pillow and torchvision (fixtures/make_imaging.py).

use cutout_imaging::{Filter, Image, Size, resize_pillow, resize_torch_bytes, resize_torch_floats};
use cutout_parallel::Pool;
use safetensors::SafeTensors;

const FIXTURE: &[u8] = include_bytes!("../../../fixtures/imaging/resize.safetensors");

fn fixture() -> SafeTensors<'static> {
    SafeTensors::deserialize(FIXTURE).unwrap()
}

fn input(tensors: &SafeTensors<'_>, key: &str) -> Image {
    if key == "large" {
        return large(&input(tensors, "a"));
    }
    let tensor = tensors.tensor(&format!("input.{key}")).unwrap();
    let size = Size::new(tensor.shape()[1], tensor.shape()[0]);
    Image::from_rgb(size, tensor.data().to_vec()).unwrap()
}

/// The small image, repeated to 2431×1003.
fn large(small: &Image) -> Image {
    let size = Size::new(2431, 1003);
    let pixels = (0..size.height)
        .flat_map(|y| (0..size.width).map(move |x| (x, y)))
        .flat_map(|(x, y)| small.pixel(x % small.width(), y % small.height()).unwrap());
    Image::from_rgb(size, pixels.collect()).unwrap()
}

fn parse_size(text: &str) -> Size {
    let (width, height) = text.split_once('x').unwrap();
    Size::new(width.parse().unwrap(), height.parse().unwrap())
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

fn resized(what: &str, image: &Image, size: Size) -> Option<Image> {
    let pool = &Pool::new(2);
    let result = match what {
        "pillow_bilinear" => resize_pillow(image, size, Filter::Bilinear, pool),
        "pillow_bicubic" => resize_pillow(image, size, Filter::Bicubic, pool),
        "torch_bytes" => resize_torch_bytes(image, size, Filter::Bilinear, pool),
        _ => return None,
    };
    Some(result.unwrap())
}

#[test]
fn byte_resizes_are_bit_exact() {
    let tensors = fixture();
    let mut checked = 0;
    for name in tensors.names() {
        let tensor = tensors.tensor(name).unwrap();
        let parts: Vec<&str> = name.trim_start_matches("crc.").split('.').collect();
        let [what, key, size] = parts[..] else { continue };
        if !size.contains('x') {
            continue;
        }
        let Some(result) = resized(what, &input(&tensors, key), parse_size(size)) else { continue };
        checked += 1;
        if name.starts_with("crc.") {
            let expected = i64::from_le_bytes(tensor.data().try_into().unwrap());
            assert_eq!(i64::from(crc32(result.as_rgb())), expected, "{name}");
        } else {
            assert!(result.as_rgb() == tensor.data(), "{name} differs");
        }
    }
    assert_eq!(checked, 2 * 6 * 3 + 6 * 3);
}

#[test]
fn float_resize_matches_torchvision() {
    let tensors = fixture();
    let mut checked = 0;
    for name in tensors.names().into_iter().filter(|name| name.starts_with("torch_floats")) {
        let parts: Vec<&str> = name.split('.').collect();
        let image = input(&tensors, parts[1]);
        let (size, pool) = (parse_size(parts[2]), Pool::new(2));
        let result = resize_torch_floats(&image, size, Filter::Bilinear, &pool).unwrap();
        let expected = tensors.tensor(name).unwrap();
        assert_eq!(expected.data().len(), result.len() * 4);
        for (bytes, found) in expected.data().chunks_exact(4).zip(result) {
            let wanted = f32::from_le_bytes(bytes.try_into().unwrap());
            assert!((wanted - found).abs() < 1e-6, "{name}: {wanted} and {found}");
        }
        checked += 1;
    }
    assert_eq!(checked, 4);
}
