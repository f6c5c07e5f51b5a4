//! Checks on a matched text: checksums, number systems, structure, randomness.
//!
//! A pattern says that bytes have the shape of a credential; a [`Validator`] says whether they are
//! one. It sees the matched bytes alone: no I/O, no clock, no state, so its answer is the same
//! wherever and whenever the bytes pass. The engine calls it once a match has ended; the answer
//! becomes the finding's confidence.

use std::fmt;
use std::str::FromStr;

mod aws;
mod azure;
mod base;
mod bech32;
mod crc32;
mod credential;
mod discord;
mod entropy;
mod jwt;
mod numbers;
mod pem;
#[cfg(test)]
mod tests;
mod words;

/// What a check found out about a matched text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The check holds, and text that is no credential would hardly pass it: raises the confidence.
    Valid,
    /// Nothing speaks for or against it: the confidence stays.
    Unknown,
    /// A checksum does not hold or the text is a stand-in: lowers the confidence, never clears,
    /// since one edited character breaks a checksum.
    Failed,
    /// The text is not of this kind at all (a digit run that fails Luhn is no card): no finding.
    Unrelated,
}

impl Outcome {
    /// Valid when a checksum `holds`, failed when it does not.
    fn of(holds: bool) -> Self {
        if holds { Self::Valid } else { Self::Failed }
    }
}

/// A named check, as a detector's `validate` field calls it.
///
/// ```
/// use decant_detectors::{Outcome, Validator};
///
/// let check: Validator = "luhn".parse()?;
/// assert_eq!(check.check(b"4111 1111 1111 1111"), Outcome::Valid);
/// assert_eq!(check.check(b"4111 1111 1111 1112"), Outcome::Unrelated);
/// # Ok::<(), decant_detectors::UnknownValidator>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Validator {
    /// CRC-32 in base62 at the end of 36 characters: GitHub, npm.
    GithubCrc32,
    /// CRC-32 in base36 at the end of a routable token: GitLab.
    GitlabCrc32,
    /// CRC-32 in hex, low byte first: Grafana service accounts.
    GrafanaCrc32,
    /// CRC-32 in hex, high byte first: Zuplo.
    ZuploCrc32,
    /// CRC-32 in base64: Confluent.
    ConfluentCrc32,
    /// Marvin32 in the last four bytes: Azure's identifiable keys.
    AzureKey,
    /// Base32 without samples: AWS access key ids.
    AwsKeyId,
    /// The checksum of BIP 173: age secret keys.
    Bech32,
    /// A decimal account number in base64: Discord bots.
    DiscordToken,
    /// Header and payload are JSON objects, the header has `alg`.
    Jwt,
    /// A private key's body behind a PEM header.
    Pem,
    /// The token looks random once padding and stand-in words are taken out.
    Entropy,
    /// The value of `name = value` looks random or like a strong password.
    Credential,
    /// The password of `scheme://user:password@host` is not a stand-in.
    UrlPassword,
    /// Luhn's sum alone.
    Luhn,
    /// Luhn, an issuer's range and its lengths.
    Card,
    /// Country, length and the remainder modulo 97.
    Iban,
    /// Ranges and known samples of US social security numbers.
    UsSsn,
}

impl Validator {
    /// Every validator, in the order of the reference.
    pub const ALL: &[Self] = &[
        Self::GithubCrc32,
        Self::GitlabCrc32,
        Self::GrafanaCrc32,
        Self::ZuploCrc32,
        Self::ConfluentCrc32,
        Self::AzureKey,
        Self::AwsKeyId,
        Self::Bech32,
        Self::DiscordToken,
        Self::Jwt,
        Self::Pem,
        Self::Entropy,
        Self::Credential,
        Self::UrlPassword,
        Self::Luhn,
        Self::Card,
        Self::Iban,
        Self::UsSsn,
    ];

    /// The names that a detector file may use.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|validator| validator.name())
    }

    /// The name of this check in a detector file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GithubCrc32 => "github-crc32",
            Self::GitlabCrc32 => "gitlab-crc32",
            Self::GrafanaCrc32 => "grafana-crc32",
            Self::ZuploCrc32 => "zuplo-crc32",
            Self::ConfluentCrc32 => "confluent-crc32",
            Self::AzureKey => "azure-key",
            Self::AwsKeyId => "aws-key-id",
            Self::Bech32 => "bech32",
            Self::DiscordToken => "discord-token",
            Self::Jwt => "jwt",
            Self::Pem => "pem",
            Self::Entropy => "entropy",
            Self::Credential => "credential",
            Self::UrlPassword => "url-password",
            Self::Luhn => "luhn",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::UsSsn => "us-ssn",
        }
    }

    /// Judges the whole matched text, prefix and name included.
    pub fn check(self, matched: &[u8]) -> Outcome {
        match self {
            Self::GithubCrc32 => crc32::github(matched),
            Self::GitlabCrc32 => crc32::gitlab(matched),
            Self::GrafanaCrc32 => crc32::grafana(matched),
            Self::ZuploCrc32 => crc32::zuplo(matched),
            Self::ConfluentCrc32 => crc32::confluent(matched),
            Self::AzureKey => azure::key(matched),
            Self::AwsKeyId => aws::key_id(matched),
            Self::Bech32 => bech32::check(matched),
            Self::DiscordToken => discord::token(matched),
            Self::Jwt => jwt::check(matched),
            Self::Pem => pem::check(matched),
            Self::Entropy => entropy::token(matched),
            Self::Credential => credential::assignment(matched),
            Self::UrlPassword => credential::url(matched),
            Self::Luhn => numbers::luhn(matched),
            Self::Card => numbers::card(matched),
            Self::Iban => numbers::iban(matched),
            Self::UsSsn => numbers::us_ssn(matched),
        }
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Validator {
    type Err = UnknownValidator;

    fn from_str(name: &str) -> Result<Self, UnknownValidator> {
        let named = Self::ALL.iter().find(|validator| validator.name() == name);
        named.copied().ok_or_else(|| UnknownValidator { name: name.to_owned() })
    }
}

/// No check has this name; the message lists those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValidator {
    name: String,
}

impl fmt::Display for UnknownValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no validator is called {:?}; there are ", self.name)?;
        for (place, name) in Validator::names().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownValidator {}
