//! From a phrase to tokens: the byte-pair encoding of CLIP, with its vocabulary inside the binary.

mod clean;

use instant_clip_tokenizer::Token;

/// Most bytes of a phrase. A few dozen words fill the context of any model; far longer text is a mistake.
pub const LONGEST_PHRASE: usize = 4096;

/// Why a phrase cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhraseError {
    /// No text at all.
    #[error("the phrase is empty")]
    Empty,
    /// More text than a phrase.
    #[error("a phrase has at most {LONGEST_PHRASE} bytes, this one has {found}")]
    TooLong {
        /// Its length in bytes.
        found: usize,
    },
}

/// The tokens of a phrase, start and end included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tokens {
    /// Their numbers in the vocabulary.
    pub numbers: Vec<i64>,
    /// Indices of the tokens passed to the detector: all but token 0, which Meta's code treats as padding.
    pub kept: Vec<i64>,
    /// Whether the phrase was longer than the context.
    pub cut: bool,
}

/// Encodes phrases. Making one reads the whole vocabulary: keep it.
pub struct Tokenizer {
    pairs: instant_clip_tokenizer::Tokenizer,
}

impl Default for Tokenizer {
    fn default() -> Self {
        Tokenizer::new()
    }
}

impl Tokenizer {
    /// With the vocabulary that all models share.
    pub fn new() -> Self {
        Tokenizer { pairs: instant_clip_tokenizer::Tokenizer::new() }
    }

    /// The tokens of a phrase, `context` of them at most. Longer phrases are truncated before the end token. An empty
    /// phrase is a start and an end.
    pub fn encode(&self, phrase: &str, context: usize) -> Result<Tokens, PhraseError> {
        if phrase.len() > LONGEST_PHRASE {
            return Err(PhraseError::TooLong { found: phrase.len() });
        }
        let mut tokens = vec![self.pairs.start_of_text()];
        self.pairs.encode(&clean::clean(phrase), &mut tokens);
        let cut = tokens.len() >= context;
        tokens.truncate(context.saturating_sub(1));
        tokens.push(self.pairs.end_of_text());
        let numbers: Vec<i64> = tokens.into_iter().map(Token::to_u16).map(i64::from).collect();
        let kept = (0i64..).zip(&numbers).filter(|(_, number)| **number != 0);
        Ok(Tokens { kept: kept.map(|(index, _)| index).collect(), numbers, cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_that_does_not_fit_keeps_its_end() {
        let tokenizer = Tokenizer::new();
        let tokens = tokenizer.encode("one two three four five", 4).unwrap();
        assert_eq!(tokens.numbers.len(), 4);
        assert_eq!((tokens.numbers[0], tokens.numbers[3]), (49406, 49407));
        assert!(tokens.cut);
        let whole = tokenizer.encode("one two three four five", 7).unwrap();
        assert_eq!((whole.numbers.len(), whole.cut), (7, false));
        assert_eq!(tokenizer.encode("", 32).unwrap().numbers, [49406, 49407]);
        let found = LONGEST_PHRASE + 1;
        assert_eq!(tokenizer.encode(&"x".repeat(found), 32), Err(PhraseError::TooLong { found }));
    }

    #[test]
    fn the_token_that_looks_like_padding_is_hidden() {
        let tokens = Tokenizer::new().encode("red != blue", 32).unwrap();
        assert_eq!(tokens.numbers, [49406, 736, 0, 284, 1746, 49407]);
        assert_eq!(tokens.kept, [0, 1, 3, 4, 5]);
    }
}
