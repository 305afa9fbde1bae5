//! The small SAM 3 of `fixtures/make_sam3_predictor.py`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use cutout_tensor::{Tensor, TensorError, TensorType};

use crate::fixtures::{FixtureError, Metadata, read_tensors};

/// Size of the token vocabulary.
const VOCABULARY: usize = 49408;

/// The fixture: a model, and the results of Meta's code with it.
pub struct SmallSam3 {
    /// Everything in the file, by name.
    pub tensors: HashMap<String, Tensor>,
    /// `config` and `phrases` as JSON, among others.
    pub metadata: Metadata,
}

/// Tables of rotation by name, of which only the shapes are read, for the configuration of a small SAM 3.
pub fn rotation_tables(config: &str) -> Result<BTreeMap<String, Tensor>, TensorError> {
    let config: serde_json::Value = serde_json::from_str(config).expect("the script writes JSON");
    let number =
        |key: &str| config[key].as_u64().expect("the script writes whole numbers") as usize;
    let global = |block: usize| {
        let blocks = config["global_blocks"].as_array().into_iter().flatten();
        blocks.filter_map(serde_json::Value::as_u64).any(|one| one == block as u64)
    };
    let table = |block: usize| {
        let side = number(if global(block) { "grid" } else { "window" });
        let ty = TensorType::f32([side * side, number("width") / number("heads") / 2]);
        let trunk = "detector.backbone.vision_backbone.trunk";
        Ok((format!("{trunk}.blocks.{block}.attn.freqs_cis"), Tensor::zeros(&ty)?))
    };
    (0..number("depth")).map(table).collect()
}

impl SmallSam3 {
    /// Reads the fixture.
    pub fn load() -> Result<Self, FixtureError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let (tensors, metadata) = read_tensors(&root.join("sam3/predictor.safetensors"))?;
        Ok(SmallSam3 { tensors, metadata })
    }

    /// All weights under Meta's names, with tables of rotation, of which only the shapes are read.
    pub fn weights(&self) -> Result<BTreeMap<String, Tensor>, TensorError> {
        let named = self.tensors.iter();
        let weights =
            named.filter_map(|(name, tensor)| Some((name.strip_prefix("weight/")?, tensor)));
        let mut weights: BTreeMap<String, Tensor> =
            weights.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        weights.extend(rotation_tables(&self.metadata["config"])?);
        let table = "detector.backbone.language_backbone.encoder.token_embedding.weight";
        weights.insert(table.to_owned(), self.token_table()?);
        Ok(weights)
    }

    /// All weights, with those of a random memory, so that the model can follow what it finds.
    pub fn weights_with_memory(&self) -> Result<BTreeMap<String, Tensor>, FixtureError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let (memory, _) = read_tensors(&root.join("sam3/memory.safetensors"))?;
        let mut weights = self.weights()?;
        weights.extend(memory);
        Ok(weights)
    }

    /// The rows of the token table that the phrases use, in a table of full height.
    fn token_table(&self) -> Result<Tensor, TensorError> {
        let rows = &self.tensors["rows"];
        let width = rows.shape()[1];
        let used = self.tensors["used"].to_vec::<i64>()?;
        let mut table = vec![0f32; VOCABULARY * width];
        for (row, token) in rows.to_vec::<f32>()?.chunks(width).zip(used) {
            table[token as usize * width..][..width].copy_from_slice(row);
        }
        Tensor::from_vec([VOCABULARY, width], table)
    }
}
