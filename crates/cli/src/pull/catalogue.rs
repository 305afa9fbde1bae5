//! The published checkpoints that `cutout pull` knows by name.

use super::{Origin, Wanted};

/// A checkpoint published by Meta. Size and digest are those of the released file: no host and no mirror can replace it.
#[derive(Debug)]
pub(crate) struct Published {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// Family and size.
    pub(crate) model: &'static str,
    pub(crate) bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub(crate) sha256: &'static str,
    site: Site,
    pub(crate) file: &'static str,
}

/// Where Meta publishes a family.
#[derive(Clone, Copy, Debug)]
enum Site {
    /// Meta's own host: SAM 1. The hub has SAM 1 in another layout only.
    Meta,
    /// A repository of Hugging Face's hub.
    Hub(&'static str),
    /// A repository that asks for an account and the acceptance of its licence.
    Gated(&'static str),
}

impl Published {
    /// The entry with a name, or with the name of a file.
    pub(crate) fn named(text: &str) -> Option<&'static Published> {
        let same = |name: &str| name.eq_ignore_ascii_case(text);
        PUBLISHED.iter().find(|entry| same(entry.name) || same(entry.file))
    }

    /// Whether the host asks for an account and the acceptance of a licence.
    pub(crate) fn is_gated(&self) -> bool {
        matches!(self.site, Site::Gated(_))
    }

    /// Licence of the weights.
    pub(crate) fn licence(&self) -> &'static str {
        if self.is_gated() { "SAM License" } else { "Apache-2.0" }
    }

    /// The file to fetch.
    pub(crate) fn wanted(&self) -> Wanted {
        let origin = match self.site {
            Site::Meta => Origin::Meta { folder: "segment_anything".to_owned() },
            Site::Hub(repository) | Site::Gated(repository) => {
                Origin::Hub { repository: repository.to_owned() }
            }
        };
        Wanted {
            origin,
            file: self.file.to_owned(),
            bytes: Some(self.bytes),
            sha256: Some(self.sha256.to_owned()),
        }
    }
}

/// One entry of the table.
const fn entry(
    name: &'static str,
    model: &'static str,
    site: Site,
    file: &'static str,
    (bytes, sha256): (u64, &'static str),
) -> Published {
    Published { name, model, bytes, sha256, site, file }
}

/// All entries, by family and size.
pub(crate) const PUBLISHED: &[Published] = &[
    entry(
        "sam-vit-b",
        "SAM 1 ViT-B",
        Site::Meta,
        "sam_vit_b_01ec64.pth",
        (375_042_383, "ec2df62732614e57411cdcf32a23ffdf28910380d03139ee0f4fcbe91eb8c912"),
    ),
    entry(
        "sam-vit-l",
        "SAM 1 ViT-L",
        Site::Meta,
        "sam_vit_l_0b3195.pth",
        (1_249_524_607, "3adcc4315b642a4d2101128f611684e8734c41232a17c648ed1693702a49a622"),
    ),
    entry(
        "sam-vit-h",
        "SAM 1 ViT-H",
        Site::Meta,
        "sam_vit_h_4b8939.pth",
        (2_564_550_879, "a7bf3b02f3ebf1267aba913ff637d9a2d5c33d3173bb679e46d9f338c26f262e"),
    ),
    entry(
        "sam2-tiny",
        "SAM 2 tiny",
        Site::Hub("facebook/sam2-hiera-tiny"),
        "sam2_hiera_tiny.pt",
        (155_906_050, "65b50056e05bcb13694174f51bb6da89c894b57b75ccdf0ba6352c597c5d1125"),
    ),
    entry(
        "sam2-small",
        "SAM 2 small",
        Site::Hub("facebook/sam2-hiera-small"),
        "sam2_hiera_small.pt",
        (184_309_650, "95949964d4e548409021d47b22712d5f1abf2564cc0c3c765ba599a24ac7dce3"),
    ),
    entry(
        "sam2-base-plus",
        "SAM 2 base+",
        Site::Hub("facebook/sam2-hiera-base-plus"),
        "sam2_hiera_base_plus.pt",
        (323_493_298, "d0bb7f236400a49669ffdd1be617959a8b1d1065081789d7bbff88eded3a8071"),
    ),
    entry(
        "sam2-large",
        "SAM 2 large",
        Site::Hub("facebook/sam2-hiera-large"),
        "sam2_hiera_large.pt",
        (897_952_466, "7442e4e9b732a508f80e141e7c2913437a3610ee0c77381a66658c3a445df87b"),
    ),
    entry(
        "sam2.1-tiny",
        "SAM 2.1 tiny",
        Site::Hub("facebook/sam2.1-hiera-tiny"),
        "sam2.1_hiera_tiny.pt",
        (156_008_466, "7402e0d864fa82708a20fbd15bc84245c2f26dff0eb43a4b5b93452deb34be69"),
    ),
    entry(
        "sam2.1-small",
        "SAM 2.1 small",
        Site::Hub("facebook/sam2.1-hiera-small"),
        "sam2.1_hiera_small.pt",
        (184_416_285, "6d1aa6f30de5c92224f8172114de081d104bbd23dd9dc5c58996f0cad5dc4d38"),
    ),
    entry(
        "sam2.1-base-plus",
        "SAM 2.1 base+",
        Site::Hub("facebook/sam2.1-hiera-base-plus"),
        "sam2.1_hiera_base_plus.pt",
        (323_606_802, "a2345aede8715ab1d5d31b4a509fb160c5a4af1970f199d9054ccfb746c004c5"),
    ),
    entry(
        "sam2.1-large",
        "SAM 2.1 large",
        Site::Hub("facebook/sam2.1-hiera-large"),
        "sam2.1_hiera_large.pt",
        (898_083_611, "2647878d5dfa5098f2f8649825738a9345572bae2d4350a2468587ece47dd318"),
    ),
    entry(
        "sam3",
        "SAM 3",
        Site::Gated("facebook/sam3"),
        "sam3.pt",
        (3_450_062_241, "9999e2341ceef5e136daa386eecb55cb414446a00ac2b55eb2dfd2f7c3cf8c9e"),
    ),
    entry(
        "sam3.1",
        "SAM 3.1",
        Site::Gated("facebook/sam3.1"),
        "sam3.1_multiplex.pt",
        (3_502_755_717, "0567debeec80ba4ac6369540c6c248025283cb3ff2b92827509e57e2b3541cb6"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull::is_sha256;

    #[test]
    fn entries_are_distinct_and_complete() {
        for (index, entry) in PUBLISHED.iter().enumerate() {
            assert!(is_sha256(entry.sha256), "{}", entry.name);
            assert!(entry.bytes > 100_000_000, "{}", entry.name);
            for other in &PUBLISHED[..index] {
                assert_ne!(entry.name, other.name);
                assert_ne!(entry.file, other.file);
                assert_ne!(entry.sha256, other.sha256);
            }
        }
    }

    #[test]
    fn names_of_models_and_files_are_found() {
        let name = |text: &str| Published::named(text).map(|entry| entry.name);
        assert_eq!(name("sam2.1-tiny"), Some("sam2.1-tiny"));
        assert_eq!(name("SAM_VIT_B_01ec64.pth"), Some("sam-vit-b"));
        assert_eq!(name("sam2.1"), None);
    }
}
