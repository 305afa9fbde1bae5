//! SHA-256, for the manifest of the kernels.

/// First 32 bits of the fractional parts of the square roots of the first 8 primes.
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
fn constants() -> [u32; 64] {
    let mut primes = (2u32..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    std::array::from_fn(|_| cube_root_fraction(primes.next().unwrap_or(2)))
}

/// First 32 bits of the fraction of a cube root: the largest `r` with `r³ <= prime << 96`, without its whole part.
fn cube_root_fraction(prime: u32) -> u32 {
    let cube_is_above = |root: u128| root.pow(3) > u128::from(prime) << 96;
    let (mut low, mut high) = (0u128, 1u128 << 42);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if cube_is_above(middle) { high = middle } else { low = middle }
    }
    low as u32
}

/// The SHA-256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let constants = constants();
    let mut message = bytes.to_vec();
    message.push(0x80);
    let needed = (bytes.len() + 1 + 8).next_multiple_of(64);
    message.resize(needed, 0);
    let length = bytes.len() as u64 * 8;
    message[needed - 8..].copy_from_slice(&length.to_be_bytes());
    let mut state = START;
    for block in message.chunks_exact(64) {
        compress(&mut state, block, &constants);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 8], block: &[u8], constants: &[u32; 64]) {
    let mut words = [0u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for i in 16..64 {
        let (a, b) = (words[i - 15], words[i - 2]);
        let first = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let second = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        words[i] =
            words[i - 16].wrapping_add(first).wrapping_add(words[i - 7]).wrapping_add(second);
    }
    let mut s = *state;
    for i in 0..64 {
        let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
        let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        let sum1 = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
        let sum0 = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
        let added = [sum1, choice, constants[i], words[i]];
        let t = added.iter().fold(s[7], |sum, word| sum.wrapping_add(*word));
        s = [
            t.wrapping_add(sum0).wrapping_add(majority),
            s[0],
            s[1],
            s[2],
            s[3].wrapping_add(t),
            s[4],
            s[5],
            s[6],
        ];
    }
    for (value, added) in state.iter_mut().zip(s) {
        *value = value.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::sha256;

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(
            sha256(long),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
    }
}
