//! The token of a Hugging Face account.

use std::fmt;
use std::fs;

use ureq::http::HeaderValue;

use crate::environment::Environment;

/// Longest token file that is read.
const LONGEST_FILE: u64 = 4096;

/// A token. It is never printed.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// The token of `HF_TOKEN`, or of the file in which `hf auth login` keeps it.
    pub(crate) fn find(environment: &Environment) -> Option<Token> {
        environment.hub_token.clone().or_else(|| {
            let path = environment.token_file()?;
            let short = fs::metadata(&path).is_ok_and(|found| found.len() <= LONGEST_FILE);
            let text = fs::read_to_string(path).ok().filter(|_| short)?;
            Token::new(&text)
        })
    }

    /// A token without the blanks around it. `None` if it cannot be part of a header.
    pub(crate) fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        let fits = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic());
        fits.then(|| Token(text.to_owned()))
    }

    /// The value of the `Authorization` header, marked as a secret.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_cleaned_and_hidden() {
        assert_eq!(Token::new(" hf_abc\n").unwrap().header().unwrap(), "Bearer hf_abc");
        assert!(Token::new("hf_a\r\nHost: evil").is_none());
        assert!(Token::new("  ").is_none());
        assert!(!format!("{:?}", Token::new("hf_abc")).contains("hf_abc"));
    }
}
