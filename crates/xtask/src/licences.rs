//! `cargo xtask licences`: keeps copyleft code out.

use anyhow::{Result, bail};

use crate::metadata::{packages, read, text};

/// Accepted licences. Of an `OR` one must be accepted, of an `AND` all.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "CC0-1.0",
    "0BSD",
    "MIT-0",
];

/// Fails if a package that our programs are built from has no accepted licence.
pub(crate) fn check() -> Result<()> {
    let metadata = read(&["--locked"])?;
    let refused: Vec<String> = packages(&metadata)
        .filter(|package| !is_allowed(text(package, "license")))
        .map(|package| format!("{}: {:?}", text(package, "name"), text(package, "license")))
        .collect();
    if !refused.is_empty() {
        bail!("licences outside the list in crates/xtask/src/licences.rs:\n{}", refused.join("\n"));
    }
    println!("licences: {} packages, none copyleft", packages(&metadata).count());
    Ok(())
}

/// Whether a licence expression can be satisfied from the list. Old manifests write `/` for `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let all = |part: &str| part.split(" AND ").all(|name| ALLOWED.contains(&name.trim()));
    // Without parentheses, `A OR B AND C` offers A alone, which is enough.
    expression.split(" OR ").any(all)
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn expressions_are_read() {
        assert!(is_allowed("MIT OR Apache-2.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("GPL-3.0 OR MIT"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("GPL-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed(""));
    }
}
