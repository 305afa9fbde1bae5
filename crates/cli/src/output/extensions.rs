//! What the extension of an output means. A format that is not written is an error before any work starts: no file gets
//! another content than its name says.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::failure::Usage;

/// The extension of a path, in lower case.
fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
}

/// Whether a path names a folder: an existing one, or a path without extension or with a slash at its end.
pub(crate) fn names_folder(path: &Path) -> bool {
    let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    slash || path.extension().is_none() || path.is_dir()
}

/// Returns an error unless a path names a folder or has one of these extensions.
pub(crate) fn check_extension(path: &Path, known: &[&str]) -> anyhow::Result<()> {
    let found = extension(path);
    if names_folder(path) || found.is_some_and(|found| known.contains(&found.as_str())) {
        return Ok(());
    }
    let wanted = match known {
        [] => "this must be a folder".to_owned(),
        known => format!("the extension must be {}", listed(known)),
    };
    let path = path.display();
    Err(Usage::error(format!(
        "{path}: {wanted}; a folder has no extension, exists already or ends with /"
    )))
}

/// Parses the path of a picture that is written as PNG.
pub(crate) fn parse_png(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match extension(&path).as_deref() {
        None | Some("png") => Ok(path),
        Some(_) => Err("it is written as PNG: the extension must be .png".to_owned()),
    }
}

/// ".json, .png or .npy".
fn listed(extensions: &[&str]) -> String {
    let dotted: Vec<String> = extensions.iter().map(|extension| format!(".{extension}")).collect();
    match &dotted[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        all => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_no_extension_or_a_slash() {
        for folder in ["masks", "a.b/masks", "x.foo/", ".hidden", "."] {
            assert!(names_folder(Path::new(folder)), "{folder}");
            assert!(check_extension(Path::new(folder), &["json"]).is_ok(), "{folder}");
        }
        assert!(check_extension(Path::new("x.JSON"), &["json", "png"]).is_ok());
        let error = check_extension(Path::new("x.foo"), &["json", "png", "npy"]).unwrap_err();
        assert!(error.to_string().contains(".json, .png or .npy"), "{error}");
    }

    #[test]
    fn pictures_are_png() {
        assert!(parse_png("a.png").is_ok() && parse_png("a.PNG").is_ok());
        assert!(parse_png("/dev/null").is_ok());
        assert!(parse_png("a.jpg").is_err() && parse_png("a.png.jpeg").is_err());
    }
}
