//! Whether text is made of words: what tells an identifier or prose from characters drawn at random.

/// Letter pairs that are frequent in English and in identifiers: bit `b` of entry `a`.
/// The 250 most frequent of 676; they make 9 of 10 pairs in words and 4 of 10 in random letters.
#[rustfmt::skip]
const PAIRS: [u32; 26] = [
    0x13E_BD4E, 0x016_4911, 0x01E_5D95, 0x016_491F, 0x1EE_F97F, 0x016_4931, 0x016_6911, 0x002_4111,
    0x22E_F87F, 0x000_0010, 0x004_0111, 0x11C_4919, 0x014_D913, 0x03C_657D, 0x07E_F86F, 0x01E_CD91,
    0x010_0000, 0x11E_7D5D, 0x11C_DD95, 0x11E_D9BD, 0x00E_B937, 0x000_0111, 0x002_0111, 0x00C_8000,
    0x004_A000, 0x000_0010,
];
/// Text in which more than this share of the letter pairs is frequent is made of words. Words have
/// about 0.89 on average; letters drawn at random 0.37, with a deviation of 0.1 in a token's length.
pub(super) const LIKELY: f32 = 0.66;
/// As [`LIKELY`], where a mistake costs more, and where a prefix of words may stand in front.
pub(super) const CERTAIN: f32 = 0.8;

/// Whether `value` is made of words or of an identifier: few digits in few places, regular case, and
/// familiar letter pairs.
pub(super) fn is_wordy(value: &[u8], share: f32) -> bool {
    let count = |class: fn(&u8) -> bool| value.iter().filter(|byte| class(byte)).count();
    let (letters, signs) = (count(u8::is_ascii_alphabetic), count(u8::is_ascii_alphanumeric));
    let begins_digits = |pair: &&[u8]| !pair[0].is_ascii_digit() && pair[1].is_ascii_digit();
    let numbers = value.windows(2).filter(begins_digits).count();
    // One number in a name may be a long one.
    let few = if numbers > 1 { letters * 4 < signs * 3 } else { letters * 3 < signs * 2 };
    if few || (numbers > 2 && numbers * 8 > signs) {
        return false;
    }
    let letter_pairs = || value.windows(2).filter(|pair| pair.iter().all(u8::is_ascii_alphabetic));
    let rises = letter_pairs().filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let (pairs, rises) = (letter_pairs().count(), rises.count());
    let known = letter_pairs().filter(|pair| is_frequent(pair[0], pair[1])).count();
    rises * 5 < pairs && known as f32 > share * pairs as f32
}

fn is_frequent(first: u8, second: u8) -> bool {
    let place = |letter: u8| letter.to_ascii_lowercase() - b'a';
    PAIRS[usize::from(place(first))] >> place(second) & 1 == 1
}
