//! Numbers about people and money: payment cards, IBANs, US social security numbers.
//!
//! These checks decide what the text *is*: a number that fails is not a damaged card, it is an
//! order number. So they answer `Unrelated`, never `Failed`.

use super::Outcome;

/// Most digits a card number has (ISO/IEC 7812).
const CARD_MAX: usize = 19;

/// Luhn's sum over the digits; other characters are separators.
pub(super) fn luhn(matched: &[u8]) -> Outcome {
    related(luhn_holds(matched))
}

fn related(holds: bool) -> Outcome {
    if holds { Outcome::Valid } else { Outcome::Unrelated }
}

fn digits(text: &[u8]) -> impl DoubleEndedIterator<Item = u8> + '_ {
    text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0')
}

fn luhn_holds(text: &[u8]) -> bool {
    let sum: u32 = digits(text)
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let weighted = if place % 2 == 0 { digit } else { digit * 2 };
            u32::from(weighted / 10 + weighted % 10)
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Numbers that payment providers publish for tests; nobody's, and in every shop's source code.
#[rustfmt::skip]
const SANDBOX: &[u64] = &[
    4_242_424_242_424_242, 4_111_111_111_111_111, 4_012_888_888_881_881, 4_000_056_655_665_556, 4_222_222_222_222,
    4_000_000_000_000_002, 5_555_555_555_554_444, 5_105_105_105_105_100, 5_200_828_282_828_210, 2_223_003_122_003_222,
    378_282_246_310_005, 371_449_635_398_431, 6_011_111_111_111_117, 6_011_000_990_139_424, 3_056_930_009_020_004,
    3_530_111_333_300_000, 3_566_002_020_360_505, 6_200_000_000_000_005,
];

/// A card number: an issuer's range with one of its lengths, and Luhn. A provider's published test
/// number is a stand-in: it fails, it does not vanish.
pub(super) fn card(matched: &[u8]) -> Outcome {
    let length = digits(matched).count();
    if !(13..=CARD_MAX).contains(&length) || !one_style(matched) || !luhn_holds(matched) {
        return Outcome::Unrelated;
    }
    let number = |digits: &mut dyn Iterator<Item = u8>| {
        digits.fold(0u64, |value, digit| value * 10 + u64::from(digit))
    };
    if SANDBOX.contains(&number(&mut digits(matched))) {
        return Outcome::Failed;
    }
    related(issued(number(&mut digits(matched).take(6)), length))
}

/// Groups are divided by one kind of character; mixed spaces and hyphens are a table, not a card.
fn one_style(text: &[u8]) -> bool {
    let mut separators = text.iter().filter(|byte| !byte.is_ascii_digit());
    let first = separators.next();
    separators.all(|byte| Some(byte) == first)
}

/// Whether an issuer hands out numbers of `length` digits that begin with the six of `lead`.
///
/// Times in milliseconds (13 digits), microseconds and nanoseconds begin with 1 or 2 until the
/// year 2096: no range here does, so a log full of them holds no card.
fn issued(lead: u64, length: usize) -> bool {
    match lead {
        400_000..=499_999 => matches!(length, 13 | 16 | 19), // Visa
        510_000..=559_999 | 222_100..=272_099 => length == 16, // Mastercard
        340_000..=349_999 | 370_000..=379_999 => length == 15, // American Express
        601_100..=601_199 | 644_000..=659_999 => (16..=19).contains(&length), // Discover
        352_800..=358_999 => (16..=19).contains(&length),    // JCB
        300_000..=305_999 | 309_500..=309_599 => (14..=19).contains(&length), // Diners Club
        360_000..=369_999 => (14..=19).contains(&length),
        380_000..=399_999 => (16..=19).contains(&length),
        620_000..=629_999 | 810_000..=817_199 => (16..=19).contains(&length), // UnionPay
        _ => false,
    }
}

/// Countries and the length of their IBAN, from the SWIFT registry.
#[rustfmt::skip]
const IBAN: &[([u8; 2], usize)] = &[
    (*b"AD", 24), (*b"AE", 23), (*b"AL", 28), (*b"AT", 20), (*b"AZ", 28), (*b"BA", 20), (*b"BE", 16),
    (*b"BG", 22), (*b"BH", 22), (*b"BI", 27), (*b"BR", 29), (*b"BY", 28), (*b"CH", 21), (*b"CR", 22),
    (*b"CY", 28), (*b"CZ", 24), (*b"DE", 22), (*b"DJ", 27), (*b"DK", 18), (*b"DO", 28), (*b"EE", 20),
    (*b"EG", 29), (*b"ES", 24), (*b"FI", 18), (*b"FK", 18), (*b"FO", 18), (*b"FR", 27), (*b"GB", 22),
    (*b"GE", 22), (*b"GI", 23), (*b"GL", 18), (*b"GR", 27), (*b"GT", 28), (*b"HN", 28), (*b"HR", 21),
    (*b"HU", 28), (*b"IE", 22), (*b"IL", 23), (*b"IQ", 23), (*b"IS", 26), (*b"IT", 27), (*b"JO", 30),
    (*b"KW", 30), (*b"KZ", 20), (*b"LB", 28), (*b"LC", 32), (*b"LI", 21), (*b"LT", 20), (*b"LU", 20),
    (*b"LV", 21), (*b"LY", 25), (*b"MC", 27), (*b"MD", 24), (*b"ME", 22), (*b"MK", 19), (*b"MN", 20),
    (*b"MR", 27), (*b"MT", 31), (*b"MU", 30), (*b"NI", 28), (*b"NL", 18), (*b"NO", 15), (*b"OM", 23),
    (*b"PK", 24), (*b"PL", 28), (*b"PS", 29), (*b"PT", 25), (*b"QA", 29), (*b"RO", 24), (*b"RS", 22),
    (*b"RU", 33), (*b"SA", 24), (*b"SC", 31), (*b"SD", 18), (*b"SE", 24), (*b"SI", 19), (*b"SK", 24),
    (*b"SM", 27), (*b"SO", 23), (*b"ST", 25), (*b"SV", 28), (*b"TL", 23), (*b"TN", 24), (*b"TR", 26),
    (*b"UA", 29), (*b"VA", 22), (*b"VG", 24), (*b"XK", 20), (*b"YE", 30),
];

/// Numbers of the registry's own examples; nobody's, and in every manual.
const IBAN_SAMPLES: &[&[u8]] = &[
    b"DE89370400440532013000",
    b"GB29NWBK60161331926819",
    b"GB82WEST12345698765432",
    b"GB33BUKB20201555555555",
    b"FR1420041010050500013M02606",
    b"FR7630006000011234567890189",
    b"ES9121000418450200051332",
    b"IT60X0542811101000000123456",
    b"NL91ABNA0417164300",
    b"BE68539007547034",
    b"CH9300762011623852957",
    b"AT611904300234573201",
    b"PL61109010140000071219812874",
    b"NO9386011117947",
    b"SE4550000000058398257466",
    b"DK5000400440116243",
    b"IE29AIBK93115212345678",
    b"LU280019400644750000",
    b"PT50000201231234567890154",
    b"FI2112345600000785",
];

/// An IBAN: a country of the registry, its length, and the remainder 1 modulo 97.
///
/// A word may follow a spaced IBAN and be matched with it, so only the country's length is read.
pub(super) fn iban(matched: &[u8]) -> Outcome {
    let plain = || matched.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let country = plain().take(2).copied();
    let known = IBAN.iter().find(|(code, _)| country.clone().eq(code.iter().copied()));
    let Some(&(_, length)) = known else {
        return Outcome::Unrelated;
    };
    if plain().count() < length || !ends_at(matched, length) {
        return Outcome::Unrelated;
    }
    let rest = plain().skip(4).take(length - 4);
    let remainder =
        rest.chain(plain().take(4)).fold(0u32, |value, &byte| match char::from(byte).to_digit(36) {
            Some(digit @ 0..=9) => (value * 10 + digit) % 97,
            Some(letter) => (value * 100 + letter) % 97,
            None => value,
        });
    if remainder != 1 {
        return Outcome::Unrelated;
    }
    let sample = |sample: &&[u8]| plain().take(length).eq(sample.iter());
    if IBAN_SAMPLES.iter().any(sample) { Outcome::Failed } else { Outcome::Valid }
}

/// Whether the number of `length` letters and digits ends at a separator or with the text.
fn ends_at(matched: &[u8], length: usize) -> bool {
    let mut places = matched.iter().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric());
    let last = places.nth(length - 1).map_or(0, |(place, _)| place);
    matched.get(last + 1).is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

/// Numbers printed on samples, in advertising and by the administration itself; nobody's.
const SSN_SAMPLES: &[[u8; 9]] = &[*b"078051120", *b"219099999", *b"123456789", *b"457555462"];

/// A US social security number: area, group and serial in their ranges; neither a known sample nor
/// one that somebody made up of three repeated digits (111-22-3333).
pub(super) fn us_ssn(matched: &[u8]) -> Outcome {
    let mut number = [0u8; 9];
    let mut length = 0;
    for digit in digits(matched) {
        let Some(slot) = number.get_mut(length) else {
            return Outcome::Unrelated;
        };
        *slot = digit + b'0';
        length += 1;
    }
    let area = &number[..3];
    let refused = area == b"000" || area == b"666" || area[0] == b'9';
    let empty = &number[3..5] == b"00" || &number[5..] == b"0000";
    let uniform = |group: &[u8]| group.iter().all(|digit| *digit == group[0]);
    let invented = uniform(&number[..3]) && uniform(&number[3..5]) && uniform(&number[5..]);
    if length != 9 || refused || empty || invented || SSN_SAMPLES.contains(&number) {
        return Outcome::Unrelated;
    }
    Outcome::Unknown
}
