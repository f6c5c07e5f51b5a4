//! Repeatable randomness: one small generator, seeded from `DECANT_TEST_SEED` or a fixed value, and printed.
//!
//! Invariant: the same seed gives the same bytes on every machine.

/// The seed used when `DECANT_TEST_SEED` does not name one.
const DEFAULT_SEED: u64 = 0x00de_ca17;

/// A SplitMix64 generator: fast, tiny, and good enough for test data (never for keys).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator for the purpose `name`; its seed is printed, so that a failure can be run again.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let base = std::env::var("DECANT_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let base: u64 = base.unwrap_or(DEFAULT_SEED);
        eprintln!("seed of {name}: {base} (set DECANT_TEST_SEED to change it)");
        let mixed = name.bytes().fold(base, |seed, byte| Self(seed ^ u64::from(byte)).next_u64());
        Self(mixed)
    }

    /// A generator that starts from exactly `seed`.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("usize fits u64");
        usize::try_from(self.next_u64() % bound).expect("below a usize")
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// `length` characters drawn from `alphabet`.
    pub fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }
}
