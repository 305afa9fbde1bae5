//! The profile that a checkpoint file carries: which parts of its model stay in higher precision, by measured loss.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Precision, Profile, ProfileError, line_of};

/// How the model of a file runs in one precision. It is read from the file's metadata, which is untrusted: it can set precisions
/// and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredProfile {
    /// The precision that was measured.
    pub precision: Precision,
    /// Parts that run in another one, as in [`Profile::parts`].
    #[serde(default)]
    pub parts: BTreeMap<String, Precision>,
}

impl StoredProfile {
    /// Key of the text in the metadata of a file.
    pub const KEY: &str = "cutout.profile";
    /// Most bytes of the text.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Reads the text; what is wrong is an error with its line.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        if text.len() > StoredProfile::MAX_BYTES {
            let message = format!(
                "{} bytes are more than the {} allowed",
                text.len(),
                StoredProfile::MAX_BYTES
            );
            return Err(ProfileError { line: None, message });
        }
        toml::from_str(text).map_err(|error| ProfileError {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().trim().to_owned(),
        })
    }

    /// The text. Each line of `comment` is put before it.
    pub fn to_text(&self, comment: &str) -> String {
        let comment: String = comment.lines().map(|line| format!("# {line}\n")).collect();
        let profile = toml::to_string(self).expect("it has only strings and a table of them");
        format!("{comment}{profile}")
    }

    /// Adds the parts to a profile of the same precision. Parts that it names itself stay as it says.
    pub fn complete(&self, profile: &mut Profile) {
        if profile.precision != self.precision {
            return;
        }
        let open: Vec<&String> = self.parts.keys().filter(|part| !profile.names(part)).collect();
        let parts = open.into_iter().map(|part| (part.clone(), self.parts[part]));
        profile.parts.extend(parts.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "precision = \"int8\"\n\n[parts]\n\"image_encoder.blocks.2\" = \"bf16\"\nprompt_encoder = \"f32\"\n";

    #[test]
    fn a_stored_profile_round_trips() {
        let stored = StoredProfile::parse(TEXT).unwrap();
        assert_eq!(stored.precision, Precision::Int8);
        assert_eq!(stored.parts["image_encoder.blocks.2"], Precision::Bf16);
        let text = stored.to_text("measured\non two lines");
        assert!(text.starts_with("# measured\n# on two lines\nprecision"), "{text}");
        assert_eq!(StoredProfile::parse(&text).unwrap(), stored);
        let empty = StoredProfile { parts: BTreeMap::new(), ..stored };
        assert_eq!(StoredProfile::parse(&empty.to_text("")).unwrap(), empty);
    }

    #[test]
    fn it_completes_a_profile_of_its_precision() {
        let stored = StoredProfile::parse(TEXT).unwrap();
        for (own, block, prompts) in [
            ("precision = \"int8\"", Precision::Bf16, Precision::F32),
            (
                "precision = \"int8\"\n[parts]\nimage_encoder = \"int8\"",
                Precision::Int8,
                Precision::F32,
            ),
            ("precision = \"bf16\"", Precision::Bf16, Precision::Bf16),
            ("", Precision::Auto, Precision::Auto),
        ] {
            let mut profile = Profile::parse(own).unwrap();
            stored.complete(&mut profile);
            let found = ["image_encoder.blocks.2.mlp", "prompt_encoder"]
                .map(|path| profile.precision_of(path));
            assert_eq!(found, [block, prompts], "{own}");
        }
    }

    #[test]
    fn mistakes_and_other_keys_are_errors_with_their_line() {
        for (text, line, part) in [
            ("precision = \"int8\"\ndevice = \"cuda:3\"\n", Some(2), "unknown field `device`"),
            ("precision = \"int8\"\nthreads = 1000\n", Some(2), "unknown field `threads`"),
            (
                "precision = \"int8\"\n[passes]\nfold_constants = false\n",
                Some(2),
                "unknown field `passes`",
            ),
            ("\nprecision = \"int3\"\n", Some(2), "unknown variant `int3`"),
            ("[parts]\na = 1\n", Some(2), "string"),
            ("[parts]\n", Some(1), "missing field `precision`"),
        ] {
            let error = StoredProfile::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text:?}: {error}");
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
        let long = format!("# {}\n{TEXT}", "x".repeat(StoredProfile::MAX_BYTES));
        assert!(StoredProfile::parse(&long).unwrap_err().message.contains("more than the 65536"));
    }
}
