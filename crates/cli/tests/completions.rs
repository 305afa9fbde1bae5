//! `cutout completions`.

use crate::support::folder;

#[test]
fn every_shell_completes_our_flags() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.cutout(&["completions", shell]).succeeds();
        for word in ["segment", "mask-threshold", "quantize", "doctor"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    folder.cutout(&["completions", "csh"]).wrong_usage(&["csh", "bash"]);
    folder.cutout(&["completions"]).wrong_usage(&["<SHELL>"]);
}
