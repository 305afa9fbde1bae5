//! `multipart/form-data`: the files of a form.

use axum::body::Bytes;

use crate::problem::Problem;

/// Most bytes of the header of a part.
const HEADER: usize = 8 << 10;
/// Most characters of a boundary, by the standard.
const BOUNDARY: usize = 70;

/// The boundary in a content type; `None` for another type.
fn boundary_of(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (1..=BOUNDARY).contains(&boundary.len()).then_some(boundary)
}

/// The files of a form in their order, at most `most`; `None` if the body is no form. Parts share the memory of the body.
pub(crate) fn pictures_in(
    content_type: &str,
    body: &Bytes,
    most: usize,
) -> Option<Result<Vec<Bytes>, Problem>> {
    let boundary = boundary_of(content_type)?;
    Some(parts(body, format!("\r\n--{boundary}").as_bytes(), most))
}

fn parts(body: &Bytes, line: &[u8], most: usize) -> Result<Vec<Bytes>, Problem> {
    let wrong = |text: &str| Problem::Invalid(format!("the form: {text}"));
    // The first boundary has no line before it, or one that is no part.
    let mut at = if body.starts_with(&line[2..]) {
        line.len() - 2
    } else {
        find(body, line, 0).ok_or_else(|| wrong("it has no part"))? + line.len()
    };
    let mut files = Vec::new();
    loop {
        let rest = &body[at..];
        if rest.starts_with(b"--") {
            return Ok(files);
        }
        if !rest.starts_with(b"\r\n") {
            return Err(wrong("a boundary is not followed by a line"));
        }
        let head = &rest[..rest.len().min(HEADER)];
        let end =
            find(head, b"\r\n\r\n", 0).ok_or_else(|| wrong("the head of a part is too long"))?;
        let start = at + end + 4;
        let stop = find(body, line, start).ok_or_else(|| wrong("it ends inside a part"))?;
        if is_file(&head[..end]) {
            if files.len() == most {
                return Err(wrong(&format!("it has more than {most} files")));
            }
            files.push(body.slice(start..stop));
        }
        at = stop + line.len();
    }
}

/// Whether the head of a part names a file. Other parts are fields.
fn is_file(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = head.lines();
    lines.any(|line| line.starts_with("content-disposition:") && line.contains("filename"))
}

/// Position of `wanted`, which begins with a carriage return, at or after `from`.
fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        from += bytes.get(from..)?.iter().position(|byte| *byte == b'\r')?;
        if bytes[from..].starts_with(wanted) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "multipart/form-data; boundary=\"--x\"";

    fn read(body: &str) -> Result<Vec<String>, String> {
        let body = Bytes::from(body.to_owned());
        let files = pictures_in(KIND, &body, 2).unwrap().map_err(|problem| problem.to_string())?;
        Ok(files.iter().map(|file| String::from_utf8_lossy(file).into_owned()).collect())
    }

    #[test]
    fn files_of_a_form_are_found() {
        let part = |name: &str, text: &str| {
            format!("----x\r\nContent-Disposition: form-data; name=\"a\"{name}\r\n\r\n{text}\r\n")
        };
        let file = |text: &str| part("; filename=\"f\"", text);
        let two = format!("{}{}{}----x--\r\n", file("one\r\n--"), part("", "field"), file(""));
        assert_eq!(read(&two).unwrap(), ["one\r\n--", ""]);
        assert_eq!(read(&format!("\r\n{}----x--", file("1"))).unwrap(), ["1"]);
        let three = format!("{}{}{}----x--", file("1"), file("2"), file("3"));
        assert!(read(&three).unwrap_err().contains("more than 2 files"));
        for (body, words) in [
            ("", "no part"),
            ("----x", "not followed"),
            ("----x\r\nhead", "too long"),
            ("----x\r\nhead\r\n\r\nbody", "inside a part"),
        ] {
            assert!(read(body).unwrap_err().contains(words), "{body:?}");
        }
        let long = format!("----x\r\n{}\r\n\r\n\r\n----x--", "h".repeat(HEADER));
        assert!(read(&long).unwrap_err().contains("too long"));
    }

    #[test]
    fn other_types_are_no_forms() {
        for kind in
            ["image/gif", "multipart/form-data", "multipart/mixed; boundary=x", "a; boundary=x"]
        {
            assert!(pictures_in(kind, &Bytes::new(), 1).is_none(), "{kind}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(pictures_in(&long, &Bytes::new(), 1).is_none());
    }
}
