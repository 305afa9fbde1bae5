//! Sizes of the coded frames of a WebP file. The decoder allocates by them before it compares them with the canvas, so a
//! small canvas can hold a frame of 16384 by 16384 pixels.

use crate::Size;

/// Size of the largest frame among these chunks, along each axis; `None` if there is no frame. `chunks` are those after
/// the RIFF header, or those of one frame of an animation.
pub fn webp_frame_size(chunks: &[u8]) -> Option<Size> {
    let mut largest: Option<Size> = None;
    let mut rest = chunks;
    while let Some((header, after)) = rest.split_at_checked(8) {
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let content = &after[..length.min(after.len())];
        let found = match &header[..4] {
            b"VP8 " => lossy_size(content),
            b"VP8L" => lossless_size(content),
            // A frame of an animation has 16 bytes of its own before its chunks.
            b"ANMF" => content.get(16..).and_then(webp_frame_size),
            _ => None,
        };
        if let Some(found) = found {
            let before = largest.unwrap_or(found);
            let width = before.width.max(found.width);
            largest = Some(Size::new(width, before.height.max(found.height)));
        }
        // Chunks start at even positions.
        rest = after.get(length.saturating_add(length % 2)..).unwrap_or_default();
    }
    largest
}

/// Three bytes of flags, a start code, then 14 bits each of width and height.
fn lossy_size(content: &[u8]) -> Option<Size> {
    let side = |at: usize| {
        let bytes = content.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]]) & 0x3fff))
    };
    Some(Size::new(side(6)?, side(8)?))
}

/// A signature, then 14 bits each of width and height, both less one.
fn lossless_size(content: &[u8]) -> Option<Size> {
    let bytes = content.get(1..5)?;
    let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    Some(Size::new(1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_every_chunk() {
        let lossy = b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x40\0\x30\0";
        let lossless = b"VP8L\x05\0\0\0\x2f\x04\xc0\x01\0\0";
        assert_eq!(webp_frame_size(lossy), Some(Size::new(64, 48)));
        assert_eq!(webp_frame_size(lossless), Some(Size::new(5, 8)));
        let other = b"EXIF\x01\0\0\0x\0";
        assert_eq!(
            webp_frame_size(&[other, &lossless[..], lossy].concat()),
            Some(Size::new(64, 48))
        );
        let mut frame = b"ANMF\x22\0\0\0".to_vec();
        frame.extend([0; 16]);
        frame.extend(lossy);
        assert_eq!(webp_frame_size(&frame), Some(Size::new(64, 48)));
        assert_eq!(webp_frame_size(&frame[..20]), None);
        assert_eq!(webp_frame_size(b"VP8 \xff\xff\xff\xff"), None);
    }
}
