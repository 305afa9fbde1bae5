//! Identification of the model that a set of tensors belongs to.

use std::collections::HashMap;
use std::fmt;

/// A generation of Segment Anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Segment Anything (2023).
    Sam1,
    /// SAM 2 as first published.
    Sam2,
    /// SAM 2.1: adds position encodings of object pointers and an embedding for occluded objects.
    Sam2_1,
    /// The image model of SAM 2 or 2.1, which is the same in both.
    Sam2Image,
    /// SAM 3.
    Sam3,
    /// SAM 3.1: the detector of SAM 3 with a multi-object tracker; clicks have their own neck and mask decoder.
    Sam3_1,
}

/// Size of a model, given by width and depth of its image encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// SAM 2: Hiera-T.
    Tiny,
    /// SAM 2: Hiera-S.
    Small,
    /// SAM 1: ViT-B.
    Base,
    /// SAM 2: Hiera-B+.
    BasePlus,
    /// SAM 1: ViT-L; SAM 2: Hiera-L.
    Large,
    /// SAM 1: ViT-H.
    Huge,
    /// The only size of SAM 3 and 3.1.
    Only,
    /// A known structure with an unpublished width or depth.
    Custom {
        /// Channels after the patch embedding.
        width: usize,
        /// Blocks of the image encoder.
        depth: usize,
    },
}

/// Naming scheme of the tensors in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The names of Meta's repositories, which are canonical here.
    Meta,
    /// The names of `transformers`.
    HuggingFace,
}

/// Family and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The generation.
    pub family: Family,
    /// The size within it.
    pub size: Size,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.family {
            Family::Sam1 => "SAM 1",
            Family::Sam2 => "SAM 2",
            Family::Sam2_1 => "SAM 2.1",
            Family::Sam2Image => "SAM 2 (image part)",
            Family::Sam3 => "SAM 3",
            Family::Sam3_1 => "SAM 3.1",
        })?;
        match self.size {
            Size::Tiny => f.write_str(" tiny"),
            Size::Small => f.write_str(" small"),
            Size::Base => f.write_str(" ViT-B"),
            Size::BasePlus => f.write_str(" base plus"),
            Size::Large if self.family == Family::Sam1 => f.write_str(" ViT-L"),
            Size::Large => f.write_str(" large"),
            Size::Huge => f.write_str(" ViT-H"),
            Size::Only => Ok(()),
            Size::Custom { width, depth } => write!(f, ", {width} channels, {depth} blocks"),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Meta => "Meta",
            Dialect::HuggingFace => "Hugging Face",
        })
    }
}

/// Prefixes that training scripts and wrappers add to every name.
const PREFIXES: &[&str] =
    &["module.", "model.", "sam_model.", "_orig_mod.", "detector.", "tracker.", "tracker_model."];

/// The concatenated [`PREFIXES`] that all names share.
pub(super) fn shared_prefix<'n>(names: impl Iterator<Item = &'n str> + Clone) -> &'n str {
    let Some(first) = names.clone().next() else { return "" };
    let mut length = 0;
    while let Some(prefix) = PREFIXES.iter().find(|prefix| first[length..].starts_with(**prefix)) {
        let longer = &first[..length + prefix.len()];
        if !names.clone().all(|name| name.starts_with(longer)) {
            break;
        }
        length = longer.len();
    }
    &first[..length]
}

/// Tensor names by which an image encoder is recognised.
struct Signature {
    family: Family,
    dialect: Dialect,
    /// Weight of the patch embedding, `[width, 3, patch, patch]`.
    patch: &'static str,
    /// Prefix of the block number.
    blocks: &'static str,
}

const SIGNATURES: &[Signature] = &[
    Signature {
        family: Family::Sam1,
        dialect: Dialect::Meta,
        patch: "image_encoder.patch_embed.proj.weight",
        blocks: "image_encoder.blocks.",
    },
    Signature {
        family: Family::Sam1,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.patch_embed.projection.weight",
        blocks: "vision_encoder.layers.",
    },
    Signature {
        family: Family::Sam2,
        dialect: Dialect::Meta,
        patch: "image_encoder.trunk.patch_embed.proj.weight",
        blocks: "image_encoder.trunk.blocks.",
    },
    Signature {
        family: Family::Sam2,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.backbone.patch_embed.projection.weight",
        blocks: "vision_encoder.backbone.blocks.",
    },
    Signature {
        family: Family::Sam3,
        dialect: Dialect::Meta,
        patch: "detector.backbone.vision_backbone.trunk.patch_embed.proj.weight",
        blocks: "detector.backbone.vision_backbone.trunk.blocks.",
    },
    Signature {
        family: Family::Sam3,
        dialect: Dialect::Meta,
        patch: "backbone.vision_backbone.trunk.patch_embed.proj.weight",
        blocks: "backbone.vision_backbone.trunk.blocks.",
    },
    Signature {
        family: Family::Sam3,
        dialect: Dialect::Meta,
        patch: "sam3_model.backbone.vision_backbone.trunk.patch_embed.proj.weight",
        blocks: "sam3_model.backbone.vision_backbone.trunk.blocks.",
    },
    Signature {
        family: Family::Sam3,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.backbone.embeddings.patch_embeddings.projection.weight",
        blocks: "vision_encoder.backbone.layers.",
    },
    Signature {
        family: Family::Sam3,
        dialect: Dialect::HuggingFace,
        patch: "detector_model.vision_encoder.backbone.embeddings.patch_embeddings.projection.weight",
        blocks: "detector_model.vision_encoder.backbone.layers.",
    },
];

/// Published sizes: family, width, depth.
const SIZES: &[(Family, usize, usize, Size)] = &[
    (Family::Sam1, 768, 12, Size::Base),
    (Family::Sam1, 1024, 24, Size::Large),
    (Family::Sam1, 1280, 32, Size::Huge),
    (Family::Sam2, 96, 12, Size::Tiny),
    (Family::Sam2, 96, 16, Size::Small),
    (Family::Sam2, 112, 24, Size::BasePlus),
    (Family::Sam2, 144, 48, Size::Large),
    (Family::Sam3, 1024, 32, Size::Only),
];

/// Family and size of a set of tensors, given their names (in either dialect, with or without prefixes) and shapes.
pub fn identify<'n>(tensors: impl IntoIterator<Item = (&'n str, &'n [usize])>) -> Option<Identity> {
    let tensors: Vec<_> = tensors.into_iter().collect();
    recognise(tensors.iter().copied()).map(|(identity, _)| identity)
}

/// Identity and dialect of a set of tensors.
pub(super) fn recognise<'n>(
    tensors: impl Iterator<Item = (&'n str, &'n [usize])> + Clone,
) -> Option<(Identity, Dialect)> {
    let prefix = shared_prefix(tensors.clone().map(|(name, _)| name)).len();
    let shapes: HashMap<&str, &[usize]> =
        tensors.map(|(name, shape)| (&name[prefix..], shape)).collect();
    let (signature, width) =
        SIGNATURES.iter().find_map(|signature| match shapes.get(signature.patch) {
            Some(&&[width, 3, height, across]) if height == across => Some((signature, width)),
            Some(_) | None => None,
        })?;
    let depth = depth(shapes.keys().copied(), signature.blocks);
    let published = SIZES.iter().find(|(family, known, blocks, _)| {
        (*family, *known, *blocks) == (signature.family, width, depth)
    });
    let size = published.map_or(Size::Custom { width, depth }, |(.., size)| *size);
    let family = match signature.family {
        Family::Sam2 => sam2_version(|name| shapes.contains_key(name)),
        Family::Sam3 => sam3_version(shapes.keys().copied()),
        Family::Sam1 | Family::Sam2_1 | Family::Sam2Image | Family::Sam3_1 => signature.family,
    };
    Some((Identity { family, size }, signature.dialect))
}

/// Number of blocks: one more than the largest number after `prefix`.
fn depth<'n>(names: impl Iterator<Item = &'n str>, prefix: &str) -> usize {
    let numbers = names.filter_map(|name| {
        let (number, _) = name.strip_prefix(prefix)?.split_once('.')?;
        number.parse::<u16>().ok()
    });
    numbers.max().map_or(0, |largest| usize::from(largest) + 1)
}

/// 2.1 added the projection of pointer positions. Without memory tensors, 2 and 2.1 cannot be told apart.
fn sam2_version(has: impl Fn(&str) -> bool) -> Family {
    let either = |meta: &str, hugging_face: &str| has(meta) || has(hugging_face);
    if either("obj_ptr_tpos_proj.weight", "temporal_positional_encoding_projection_layer.weight") {
        Family::Sam2_1
    } else if either("maskmem_tpos_enc", "memory_temporal_positional_encoding") {
        Family::Sam2
    } else {
        Family::Sam2Image
    }
}

/// Name fragments that only 3.1 has: its other two necks and the model inside its tracker.
const SAM3_1_MARKS: &[&str] =
    &["vision_backbone.interactive_convs.", "vision_backbone.propagation_convs.", "tracker.model."];

/// 3.1 has three necks and another tracker. A file with its detector alone is reported as SAM 3, whose detector is equal.
fn sam3_version<'n>(mut names: impl Iterator<Item = &'n str>) -> Family {
    if names.any(|name| SAM3_1_MARKS.iter().any(|part| name.contains(part))) {
        Family::Sam3_1
    } else {
        Family::Sam3
    }
}
