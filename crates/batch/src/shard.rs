//! Division of the items among processes.

use std::fmt;
use std::str::FromStr;

/// One of several shares of the items. An item belongs to a share by the hash of its id, whatever else is in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

/// A shard that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no shard: expected I/N with I from 0 to N - 1")]
pub struct ShardError(String);

impl Shard {
    /// All items.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// Share `index`, from 0 on, of `count`.
    pub fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        if index < count {
            Ok(Shard { index, count })
        } else {
            Err(ShardError(format!("{index}/{count}")))
        }
    }

    /// Number of the share, from 0 on.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Number of shares.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Whether an item with this id belongs to the share.
    pub fn holds(self, id: &str) -> bool {
        hash(id) % u64::from(self.count) == u64::from(self.index)
    }
}

/// FNV-1a: the same on every machine and in every version.
fn hash(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let wrong = || ShardError(text.to_owned());
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| wrong());
        Shard::new(number(index)?, number(count)?).map_err(|_| wrong())
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_has_one_share() {
        let shards: Vec<Shard> = (0..3).map(|index| Shard::new(index, 3).unwrap()).collect();
        let mut sizes = [0; 3];
        for number in 0..300 {
            let id = format!("picture-{number}.jpg");
            let holders: Vec<u32> =
                shards.iter().filter(|shard| shard.holds(&id)).map(|shard| shard.index()).collect();
            assert_eq!(holders.len(), 1);
            sizes[holders[0] as usize] += 1;
        }
        assert!(sizes.iter().all(|size| *size > 60), "{sizes:?}");
        assert!(Shard::WHOLE.holds("anything"));
    }

    #[test]
    fn the_hash_never_changes() {
        // Published values of FNV-1a.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn text() {
        assert_eq!("2/7".parse(), Shard::new(2, 7));
        for wrong in ["", "3", "3/3", "-1/3", "1/0", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
