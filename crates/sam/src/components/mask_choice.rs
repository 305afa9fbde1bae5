//! Choice among mask candidates by stability and predicted IoU.

use cutout_graph::{Reduced, Value};
use cutout_tensor::{DType, Tensor};

use super::mask_decoder::Decoded;
use crate::model::config::SingleMask;
use crate::prompt::Candidates;

/// A mask is stable if little changes when its threshold is moved this far from 0.
const STABILITY_OFFSET: f32 = 0.05;

/// Intersection over union of the masks at the two moved thresholds, from which on a mask is stable.
const STABILITY_THRESHOLD: f32 = 0.98;

/// The masks that answer prompts.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'g> {
    /// `[prompts, candidates, side, side]`.
    pub(crate) logits: Value<'g>,
    /// `[prompts, candidates]`.
    pub(crate) iou: Value<'g>,
}

/// The candidates, or the single mask of a family.
pub(crate) fn choose<'g>(
    decoded: &Decoded<'g>,
    wanted: Candidates,
    single: SingleMask,
) -> Chosen<'g> {
    let Decoded { logits, iou, .. } = *decoded;
    let [_, tokens] = iou.dims();
    let range = match (wanted, single) {
        (Candidates::Three, _) => 1..tokens,
        (Candidates::One, SingleMask::First) => 0..1,
        (Candidates::One, SingleMask::StableOrBest) => {
            return pick(logits, iou, stable_or_best(logits, iou));
        }
    };
    Chosen { logits: logits.slice(1, range.clone()), iou: iou.slice(1, range) }
}

/// One mask of each prompt.
pub(crate) fn pick<'g>(logits: Value<'g>, iou: Value<'g>, token: TokenOfPrompt<'g>) -> Chosen<'g> {
    let [prompts, _, height, width] = logits.dims();
    let picked = token.pick(logits.reshape([prompts, iou.dims::<2>()[1], height * width]));
    let logits = picked.reshape([prompts, 1, height, width]);
    let [_, tokens] = iou.dims();
    Chosen { logits, iou: token.pick(iou.reshape([prompts, tokens, 1])) }
}

/// The number of a mask token for each prompt, `f32[prompts]`: whole numbers.
#[derive(Clone, Copy)]
pub(crate) struct TokenOfPrompt<'g>(Value<'g>);

impl<'g> TokenOfPrompt<'g> {
    /// The rows of `[prompts, tokens, width]` that these tokens have, `[prompts, width]`.
    pub(crate) fn pick(self, rows: Value<'g>) -> Value<'g> {
        let [prompts, tokens, width] = rows.dims();
        let first: Vec<f32> = (0..prompts).map(|prompt| (prompt * tokens) as f32).collect();
        let first = rows.builder().computed(Tensor::from_vec([prompts], first));
        let index = (self.0 + first).cast(DType::I64);
        rows.reshape([prompts * tokens, width]).gather(index)
    }
}

/// The candidate with the largest predicted IoU; of equal ones the first.
pub(crate) fn best_candidate(iou: Value<'_>) -> TokenOfPrompt<'_> {
    let [_, tokens] = iou.dims();
    TokenOfPrompt(iou.slice(1, 1..tokens).arg_max(1).cast(DType::F32) + 1.0)
}

/// The token with the largest predicted IoU where all tokens are candidates; of equal ones the first.
pub(crate) fn best_token(iou: Value<'_>) -> TokenOfPrompt<'_> {
    TokenOfPrompt(iou.arg_max(1).cast(DType::F32))
}

/// The single mask if it is stable, else the candidate with the highest predicted IoU.
pub(crate) fn stable_or_best<'g>(logits: Value<'g>, iou: Value<'g>) -> TokenOfPrompt<'g> {
    let builder = logits.builder();
    let TokenOfPrompt(best) = best_candidate(iou);
    let stable = stability(logits).greater_equal(builder.scalar(STABILITY_THRESHOLD));
    TokenOfPrompt(stable.select(builder.scalar(0.0), best))
}

/// How little the first mask depends on its threshold, `[prompts]`: pixels above the raised one over pixels above the
/// lowered one, and 1 if there are none.
fn stability(logits: Value<'_>) -> Value<'_> {
    let builder = logits.builder();
    let [prompts, _, height, width] = logits.dims();
    let first = logits.slice(1, 0..1).reshape([prompts, height * width]);
    let above = |threshold: f32| {
        first.greater(builder.scalar(threshold)).cast(DType::F32).sum([1], Reduced::Drop)
    };
    let (inner, outer) = (above(STABILITY_OFFSET), above(-STABILITY_OFFSET));
    let one = builder.scalar(1.0);
    outer.greater(builder.scalar(0.0)).select(inner / outer, one)
}

#[cfg(test)]
mod tests {
    use cutout_graph::{Builder, Weights, interpret};
    use cutout_testing::StageFile;

    use super::*;

    /// Runs a function of logits and predicted IoU.
    fn run(
        logits: &Tensor,
        iou: &Tensor,
        function: impl for<'g> Fn(Value<'g>, Value<'g>) -> Vec<Value<'g>>,
    ) -> Vec<Vec<f32>> {
        let builder = Builder::new();
        let input = |name, tensor: &Tensor| builder.input(name, DType::F32, tensor.shape().clone());
        let results = function(input("logits", logits), input("iou", iou));
        for (index, result) in results.into_iter().enumerate() {
            builder.output(&index.to_string(), result);
        }
        let graph = builder.finish().unwrap();
        let inputs = [("logits", logits), ("iou", iou)];
        let outputs = interpret(&graph, &Weights::default(), &inputs).unwrap();
        outputs.into_iter().map(|(_, tensor)| tensor.to_vec().unwrap()).collect()
    }

    #[test]
    fn stability_counts_pixels_between_the_thresholds() {
        let stability = |pixels: &[f32]| {
            let logits = Tensor::from_vec([1, 1, 1, pixels.len()], pixels.to_vec()).unwrap();
            let iou = Tensor::from_vec([1, 1], vec![0f32]).unwrap();
            run(&logits, &iou, |logits, _| vec![stability(logits)])[0][0]
        };
        assert_eq!(stability(&[1.0, 0.06, 0.04, -0.04, -0.06]), 0.5);
        assert_eq!(stability(&[-1.0, -0.05]), 1.0);
        assert_eq!(stability(&[0.05]), 0.0);
    }

    #[test]
    fn the_first_of_equal_candidates_is_best() {
        let logits = Tensor::from_vec([2, 4, 1, 1], vec![0f32; 8]).unwrap();
        let iou = vec![0.9, 0.5, 0.7, 0.7, 0.1, 0.8, 0.2, 0.3];
        let iou = Tensor::from_vec([2, 4], iou).unwrap();
        let best = run(&logits, &iou, |_, iou| vec![best_candidate(iou).0]);
        assert_eq!(best[0], [2.0, 1.0]);
    }

    #[test]
    fn one_mask_is_chosen_as_meta_does() {
        for model in ["2.0", "2.1"] {
            let file = StageFile::load(&format!("sam2/{model}_image.safetensors")).unwrap();
            let inputs = file.inputs("stability");
            let input = |name: &str| &inputs.iter().find(|(other, _)| other == name).unwrap().1;
            let found = run(input("logits"), input("iou"), |logits, iou| {
                let token = stable_or_best(logits, iou);
                let chosen = pick(logits, iou, token);
                vec![chosen.logits, chosen.iou, token.0]
            });
            for (found, stage) in found.iter().zip(["logits", "iou"]) {
                let expected = file.stage("stability", stage).unwrap().to_vec::<f32>().unwrap();
                assert_eq!(*found, expected, "{model}, {stage}");
            }
            let chosen = &found[2];
            let single = |token: &f32| *token == 0.0;
            assert!(chosen.iter().any(single) && !chosen.iter().all(single), "{chosen:?}");
        }
    }
}
