//! Phrases to tokens, against Meta's tokenizer.

use cutout_sam::model::tokenizer::Tokenizer;

const CONTEXT: usize = 32;

/// Phrases with intended differences: mojibake, which `ftfy` repairs, and `'ſ`, which Meta's pattern treats as `'s`.
const DIFFERENT: [&str; 2] = ["caf\u{c3}\u{a9}", "\u{17f} '\u{17f}"];

#[test]
fn phrases_become_metas_tokens() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sam3/phrases.json");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(rows.len() > 80);
    let tokenizer = Tokenizer::new();
    for row in rows {
        let phrase = row["phrase"].as_str().unwrap();
        let expected: Vec<i64> =
            row["tokens"].as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect();
        let mut found = tokenizer.encode(phrase, CONTEXT).unwrap().numbers;
        found.resize(CONTEXT, 0);
        assert_eq!(found != expected, DIFFERENT.contains(&phrase), "{phrase:?}: {found:?}");
    }
}
