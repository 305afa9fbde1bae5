//! Whether a file was written by this program.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The name under which formats with room for it record the program that wrote a file.
pub const SOFTWARE: &str = "cutout";

/// Bytes of a file that are examined.
const BEGINNING: u64 = 1024;

/// Whether a file was written by this program, as far as its beginning tells: PNG and GIF files carry [`SOFTWARE`], the
/// tables and records of masks begin with their field names. A file that cannot be read was not.
pub fn is_written_here(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && has_our_mark(&beginning)
}

fn has_our_mark(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [
        b"# cutout\n",
        b"[{\"segmentation\":{\"size\":",
        b"id,area,bbox_x0,bbox_y0,bbox_w,bbox_h,",
        b"{\"frame\":",
        b"{\n  \"image\":",
        b"{\n  \"info\":",
    ];
    let holds = |mark: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
    let png = [b"tEXtSoftware\0", SOFTWARE.as_bytes()].concat();
    let gif = [b"!\xfe\x06", SOFTWARE.as_bytes()].concat();
    let safetensors = format!("\"software\":\"{SOFTWARE}\"");
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => holds(&png),
        [b'G', b'I', b'F', ..] => holds(&gif),
        // Empty files and empty lists hold nothing to lose.
        [] | b"[]" => true,
        [_, _, _, _, _, _, _, _, b'{', ..] => holds(safetensors.as_bytes()),
        other => BEGINNINGS.iter().any(|beginning| other.starts_with(beginning)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_and_other_files_are_not_ours() {
        assert!(has_our_mark(b"\x89PNG....tEXtSoftware\0cutout...."));
        assert!(!has_our_mark(b"\x89PNG....tEXtSoftware\0gimp...."));
        assert!(has_our_mark(b"GIF89a....!\xfe\x06cutout\0"));
        assert!(!has_our_mark(b"GIF89a...."));
        assert!(has_our_mark(b"[{\"segmentation\":{\"size\":[1,2]}}]"));
        assert!(!has_our_mark(b"\xff\xd8\xff\xe0 a photograph"));
        assert!(!is_written_here(Path::new("no such file")));
    }
}
