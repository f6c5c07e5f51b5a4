//! Published samples, generated ones, and near misses of each check.
//!
//! One character of every token is an escape, so that this file holds nothing a scanner would report.

use super::{Outcome, Validator, azure, crc32};
use Outcome::{Failed, Unknown, Unrelated, Valid};
use Validator::*;

#[rustfmt::skip]
const SAMPLES: &[(Validator, &str, Outcome)] = &[
    (GithubCrc32, "g\x68p_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17", Valid),
    (GithubCrc32, "g\x68o_Ky9Pf34qY6Nb3wWD25RQ4F5ZR3qa7y3gm1IL", Valid),
    (GithubCrc32, "g\x68o_Ky9Pf34qY6Nb3wWD25RQ4F5ZR3qa7y3gmAIL", Failed),
    (GithubCrc32, "g\x68r_Eeeby3abP3E2Zs8IQ9Y7aJZqhB6bae2dTjzx", Valid),
    (GithubCrc32, "g\x68r_Eeeby3abP3E2Zs8IQ9Y7aJZqhB6bae2dTAzx", Failed),
    (GithubCrc32, "n\x70m_CN6Zj4a3dDVhYRnKTbxTNJFoBinF5a42GyMy", Valid),
    (GithubCrc32, "n\x70m_CN6Zj4a3dDVhYRnKTbxTNJFoBinF5a42GAMy", Failed),
    (GithubCrc32, "g\x68r_JXVuLkSIc47WQAmL9xVQ2zg4mZaouqKLiMcVbpT4r5yHUig43kiJfahqSIjOugM1yTMAd7V3DnI8", Unknown),
    (GithubCrc32, "g\x68p_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", Failed),
    (GitlabCrc32, "g\x6cpat-bzoxCnU6ZnBwduf5oBQa-5YqAvL9cnYo0mYQ.01.1000tbhb8", Valid),
    (GitlabCrc32, "g\x6cpat-bzoxCnU6ZnBwduf5oBQa-5YqAvL9cnYo0mYQ.01.1000tb0b8", Failed),
    (GitlabCrc32, "g\x6crt-t1_bzoxCnU6emg4cgkWLt1fMNuMTZpGRzpq1rQQ.01.1015hw03r", Valid),
    (GitlabCrc32, "g\x6crt-t1_bzoxCnU6emg4cgkWLt1fMNuMTZpGRzpq1rQQ.01.1015hw13r", Failed),
    (GitlabCrc32, "g\x6cpat-bzoxCnU6cW1vZb3AoiYqfD4V8JocLb19uyYQ.1012pxe98", Valid),
    (GitlabCrc32, "g\x6cpat-bzoxCnU6cW1vZb3AoiYqfD4V8JocLb19uyYQ.1012px098", Failed),
    (GitlabCrc32, "g\x6cpat-TT1-NXa0IrleG6woopoD", Unknown),
    (GrafanaCrc32, "g\x6csa_HOruNAb7SOiCdshU9algkrq7FDsNSLAa_54e2f8be", Valid),
    (GrafanaCrc32, "g\x6csa_UeP3C4DSA7Lc360a9Y6yNd14tDdO9eGz_22acba2e", Valid),
    (GrafanaCrc32, "g\x6csa_UeP3C4DSA7Lc360a9Y6yNd14tDdO9eGz_22acb02e", Failed),
    (ZuploCrc32, "z\x70ka_bbf33feff9243a8f506b40928b5b7a76_aa7d8216", Valid),
    (ZuploCrc32, "z\x70ka_bbf33feff9243a8f506b40928b5b7a76_aa7d8016", Failed),
    (ConfluentCrc32, "c\x66ltUpTP/j33ZyXOivikASDTyPhQz0ziAFnPzMtgBoxpAKLG3JxIyiJG21YcjYeA", Valid),
    (ConfluentCrc32, "c\x66ltUpTP/j33ZyXOivikASDTyPhQz0ziAFnPzMtgBoxpAKLG3JxIyiJG21YcjAeA", Failed),
    (AzureKey, "K6mizCtCjPhcY/O5RRRRpvlETxr5A86GFfzevwsJAu+I76UjiSIOb7OAjvx5iyrf9MTeMRXpftMN+A\x53t0QHlOw==", Valid),
    (AzureKey, "A6mizCtCjPhcY/O5RRRRpvlETxr5A86GFfzevwsJAu+I76UjiSIOb7OAjvx5iyrf9MTeMRXpftMN+A\x53t0QHlOw==", Failed),
    (AzureKey, "/N4GNtKYKgcKP3hAjbx4NtHc/0rWJUyATAI\x6fTHT3usU=", Valid),
    (AzureKey, "AN4GNtKYKgcKP3hAjbx4NtHc/0rWJUyATAI\x6fTHT3usU=", Failed),
    (AzureKey, "oISAww2/IJYCCXRTMbtlQu6zWosGaERrtM2N1XsLji+A\x43RCng06P", Valid),
    (AzureKey, "AISAww2/IJYCCXRTMbtlQu6zWosGaERrtM2N1XsLji+A\x43RCng06P", Failed),
    (AzureKey, "veD26BqIa73wlpFa+u3P5c0JSnVR85epXlhWlRfsptBI/n/nNHBKhFtLrmsBbb/T0sTv6kyrz+C1AC\x44bsiMaug==", Valid),
    (AzureKey, "AeD26BqIa73wlpFa+u3P5c0JSnVR85epXlhWlRfsptBI/n/nNHBKhFtLrmsBbb/T0sTv6kyrz+C1AC\x44bsiMaug==", Failed),
    (AzureKey, "fbN5IVauJYjbv94mGYcEhpk1s4KN18kEFAz\x43aFfWpGw=", Unknown),
    (Bech32, "A\x47E-SECRET-KEY-1UTQFTF78R57XR0V3ZXUPYU5V3U70SVUG68EU5Y0MYDN8FHFSGAWQ8ASW3A", Valid),
    (Bech32, "A\x47E-SECRET-KEY-1UTQFTF78R57XR0V3ZXUPYU5V3U70SVUG68EU5Y0MYDN8FHFSGAWQ8ASA3A", Failed),
    (AwsKeyId, "A\x53IAY34FZKBOKMUTVV7A", Unknown),
    (AwsKeyId, "A\x4bIAUJZDEGXDNCF32EPF", Unknown),
    (AwsKeyId, "A\x4bIAIOSFODNN7EXAMPLE", Failed),
    (AwsKeyId, "A\x4bIA0123456789ABCDEF", Failed),
    (AwsKeyId, "A\x4bIAAAAAAAAAAAAAAAAA", Unrelated),
    (DiscordToken, "ODQ1ODYwOTEzOTA5OTYwMzA4.GxY3zQ.HbrIFdNDOlC87Q_sexwkcVNVAc_hva9FrLhJ-r", Valid),
    (DiscordToken, "aaaaaaaaaaaaaaaaaaaaaaaa.bbbbbb.ccccccccccccccccccccccccccc", Unrelated),
    (Jwt, "e\x79JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIwMTg5NTU1OTc5IiwiaWF0IjoxNTE2MjM5MDIyfQ.3RwBzGrfyXTRcpoR_iAI1zfo9RfWntbxgb0aRSmCXnk", Valid),
    (Jwt, "e\x77ogICJ0eXAiOiAiSldUIiwKICAiYWxnIjogIm5vbmUiCn0.eyJzdWIiOiIxMDQ5NzQ2NTA3IiwiaWF0IjoxNTE2MjM5MDIyfQ.KbL_WuY3BSs4OWWceP35HQqqYn4AoxcP-3bcN8HqqsQ", Valid),
    (Jwt, "ghs_123456_e\x79JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI0MjM2NjcxMjc2IiwiaWF0IjoxNTE2MjM5MDIyfQ.ERiojB93IEdZcSXifpcNI9lSvNGwqjZuCRYu3V8w24w", Valid),
    (Jwt, "e\x79JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.bm90IGpzb24gYXQgYWxs.TZpGRzpq1rRN31BqShuJ_EBt2Fsk8MauBXZa4smZZGE", Unknown),
    (Jwt, "e\x79J0eXAiOiJhbGcifQ.eyJzdWIiOiIzMjEyMjMzMDc5IiwiaWF0IjoxNTE2MjM5MDIyfQ.zwWuLsVcQ0O8nCxIWUcMAU4MSyXvE0BrAfTaiO1mh14", Unrelated),
    (Jwt, "e\x79J4Ijp7ImFsZyI6IkhTMjU2In19.eyJzdWIiOiI5OTUyODkwNzg2IiwiaWF0IjoxNTE2MjM5MDIyfQ.I-TnZQR6I2atDOVkLGiBGlwURXsLzWCihmiDZih57w8", Unrelated),
    (Jwt, "eyJmb28iOiJiYXIi.eyJhIjoxfQ.x", Unrelated),
    (Luhn, "79927398713", Valid),
    (Luhn, "79927398714", Unrelated),
    (Card, "4111111111111111", Failed),
    (Card, "4012888888881881", Failed),
    (Card, "4222222222222", Failed),
    (Card, "378282246310005", Failed),
    (Card, "6011111111111117", Failed),
    (Card, "3530111333300000", Failed),
    (Card, "5555555555554444", Failed),
    (Card, "5105105105105100", Failed),
    (Card, "30569309025904", Valid),
    (Card, "6200000000000005", Failed),
    (Card, "2223003122003222", Failed),
    (Card, "4111 1111 1111 1111", Failed),
    (Card, "5105-1051-0510-5100", Failed),
    (Card, "4526018159083012", Valid),
    (Card, "4661318609133", Valid),
    (Card, "4909960308246281946", Valid),
    (Card, "5182199351819098", Valid),
    (Card, "2221378657975438", Valid),
    (Card, "342319487574916", Valid),
    (Card, "371862527601896", Valid),
    (Card, "6011555979711477", Valid),
    (Card, "6510497465075297", Valid),
    (Card, "3528170342366711", Valid),
    (Card, "30027684268466", Valid),
    (Card, "36563212233071", Valid),
    (Card, "62924402685995285", Valid),
    (Card, "4907-8666-6176-0314", Valid),
    (Card, "3737 215901 09286", Valid),
    (Card, "4111111111111112", Unrelated),
    (Card, "1234-5678-1234-5678", Unrelated),
    (Card, "1700000000000", Unrelated),
    (Card, "1712345678901", Unrelated),
    (Card, "0000000000000000", Unrelated),
    (Card, "4111 1111-1111 1111", Unrelated),
    (Card, "9876543210987", Unrelated),
    (Card, "41111111111111114", Unrelated),
    (Card, "1234567812345670", Unrelated),
    (Iban, "DE89370400440532013000", Failed),
    (Iban, "GB82 WEST 1234 5698 7654 32", Failed),
    (Iban, "GB82-WEST-1234-5698-7654-32", Failed),
    (Iban, "FR1420041010050500013M02606", Failed),
    (Iban, "NO9386011117947", Failed),
    (Iban, "MT84MALT011000012345MTLCAST001S", Valid),
    (Iban, "CH93 0076 2011 6238 5295 7", Failed),
    (Iban, "UA213223130000026007233566001", Valid),
    (Iban, "DE89 3704 0044 0532 0130 00 Bank", Failed),
    (Iban, "DE50526018159083016613", Valid),
    (Iban, "GB94NWBK18609139099603", Valid),
    (Iban, "NO2408246281948", Valid),
    (Iban, "FR502199351819093786579754M", Valid),
    (Iban, "LC65HEMM3C2BC3194875B74911862C52", Valid),
    (Iban, "EG657601895559797114710497465", Valid),
    (Iban, "DE60 0752 9170 3423 6671 27", Valid),
    (Iban, "DE60 0752 9170 3423 6671 27 Bank", Valid),
    (Iban, "DE60075291703423667127X", Unrelated),
    (Iban, "DE89370400440532013001", Unrelated),
    (Iban, "XX89370400440532013000", Unrelated),
    (Iban, "DE8937040044053201300", Unrelated),
    (Iban, "GB82WEST12345698765433", Unrelated),
    (Iban, "SHA256abcdef0123456789", Unrelated),
    (UsSsn, "536-22-8745", Unknown),
    (UsSsn, "212 09 7694", Unknown),
    (UsSsn, "000-12-3456", Unrelated),
    (UsSsn, "111-22-3333", Unrelated),
    (UsSsn, "666-12-3456", Unrelated),
    (UsSsn, "912-34-5678", Unrelated),
    (UsSsn, "123-00-4567", Unrelated),
    (UsSsn, "123-45-0000", Unrelated),
    (UsSsn, "078-05-1120", Unrelated),
    (UsSsn, "123-45-6789", Unrelated),
    (UsSsn, "219-09-9999", Unrelated),
    (Entropy, "sk\x5flive_C4DSA7Lc360a9Y6yNd14tDdO", Unknown),
    (Entropy, "hf\x5fjOqwMxEhhFDEEtfjgVvVqESkHbnHxjSIbW", Unknown),
    (Entropy, "92\x38b5b7a767c76fb008f86bebb2737f6", Unknown),
    (Entropy, "LD\x55dvdr0UwfMpf5rg7wO", Unknown),
    (Entropy, "sk\x5flive_xxxxxxxxxxxxxxxxxxxxxxxx", Unrelated),
    (Entropy, "sk\x5ftest_1234567890abcdefghijklmn", Unrelated),
    (Entropy, "hf\x5fyourTokenHereExampleYourToken", Unrelated),
    (Entropy, "sk\x2dyour-secret-api-key-here", Unrelated),
    (Entropy, "00\x3000000000000000000000000000000", Unrelated),
    (Entropy, "xo\x78b-your-token-here", Unrelated),
    (Entropy, "ab\x63abcabcabcabcabcabcabc", Failed),
    (Credential, "private\x5fkey: Curve25519SeedBin", Unrelated),
    (Credential, "private\x5fkey_buffer: EcPrivateKeyRfc5915Der", Unrelated),
    (Credential, "Password\x3a cfg.influxdbPassword", Unrelated),
    (Credential, "AuthToken\x3a SpCompleteAuthTokenFn", Unrelated),
    (Credential, "password = \"xK9#mP2$vL5q\"", Unknown),
    (Credential, "\"api_key\": \"ojmCUuBRoeL5pykPTPly5kAA819bvTpf\"", Unknown),
    (Credential, "SECRET_KEY=4fb440034d6608697a8d41bed440e50454f31af3", Unknown),
    (Credential, "db_password: S3cur3!Pass#91x", Unknown),
    (Credential, "token := 'uZ3FCH2n6WSZ1mvw4SKdWcWC'", Unknown),
    (Credential, "\\\"secret\\\": \\\"ZvzVXPvHrFoue9Us9RcFJkIWHxSCo+KSKtphrPje\\\"", Unknown),
    (Credential, "password = \"changeme\"", Unrelated),
    (Credential, "password: ${DB_PASSWORD}", Unrelated),
    (Credential, "api_key = YOUR_API_KEY_HERE", Unrelated),
    (Credential, "secret: REDACTED", Unrelated),
    (Credential, "token = getAuthenticationTokenFromRequest", Unrelated),
    (Credential, "vaultKey: 'inf-role-id'", Unrelated),
    (Credential, "X_SECRET_NAME = \"TEAM-API-KEY\"", Unrelated),
    (Credential, "keyword = \"Word_P2\"", Unrelated),
    (Credential, "token: 123e4567-e89b-12d3-a456-426614174000", Unrelated),
    (Credential, "secret_path: /etc/ssl/private/server.key", Unrelated),
    (Credential, "password = process.env.DB_PASSWORD", Unrelated),
    (Credential, "token=xxxxxxxxxxxxxxxxxxxx", Unrelated),
    (Credential, "secret = \"correct-horse-battery-staple\"", Unrelated),
    (Credential, "shared_secret_size: ML_KEM_512_SHARED_SECRET_LENGTH", Unrelated),
    (Credential, "key_password=certs[0][2]", Unrelated),
    (Credential, "api_key: String", Unrelated),
    (Credential, "password = \"12345678\"", Unrelated),
    (Credential, "secret: {{ vault.password }}", Unrelated),
    (UrlPassword, "postgres://app:k3Jd8sLq0Zx7@db.internal:5432/app", Unknown),
    (UrlPassword, "https://deploy:9fK2mQ7xT4bV@git.corp.net/repo.git", Unknown),
    (UrlPassword, "redis://:Zx8Kq2Lm9Pw4Rt6Y@cache:6379/0", Unknown),
    (UrlPassword, "postgres://postgres:postgres@localhost:5432/db", Unrelated),
    (UrlPassword, "https://user:he%2F%2Fo@pypi.company.com", Unrelated),
    (UrlPassword, "mysql://root:password@db:3306/app", Unrelated),
    (UrlPassword, "postgres://user:mysecretpassword@db", Unrelated),
    (UrlPassword, "https://user:pass@example.com", Unrelated),
    (UrlPassword, "mongodb://${USER}:${PASS}@db", Unrelated),
    (UrlPassword, "amqp://guest:guest@rabbit", Unrelated),
    (UrlPassword, "postgres://app:k3Jd8sLq0Zx7@localhost/app", Unrelated),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIB4HmheB4N64bRCvXVXV/AQk1oVWuTzWjYlya3Wh3MFw", Valid),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\\nMC4CAQAwBQYDK2VwBCIEIB4HmheB4N64\\nbRCvXVXV/AQk1oVWuTzWjYlya3Wh3MFw", Valid),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0011AABB\n\nhboBtEcFoQS6Z2RipQvdVIyLdoRQr7mfYeGiS/WeI4PtVPX1l1x1EAy84xxZai78ofgl61Ap0slZgYI6", Unknown),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\",\"MC4CAQAwBQYDK2VwBCIEIB4HmheB4N64bRCvXVXV\",\"/AQk1oVWuTzWjYlya3Wh3MFw", Valid),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\n...\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", Unrelated),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\nMIIE", Unrelated),
    (Pem, "-----\x42EGIN PRIVATE KEY-----", Unrelated),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", Unrelated),
    (Pem, "-----\x42EGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ+xDB+BM+W+Dx1dIaAwqFFScF/ENclJxFhXMiCvb56Oc/YGzH6SZ6LpH0O0ViknrBm40qIVPs3NGC2Rhs", Valid),
];

#[test]
fn samples_are_judged() {
    let wrong: Vec<_> = SAMPLES
        .iter()
        .map(|(check, text, expected)| (check, text, expected, check.check(text.as_bytes())))
        .filter(|(_, _, expected, got)| *expected != got)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_check_has_a_sample_that_passes_and_one_that_does_not() {
    for check in Validator::ALL {
        let outcomes = SAMPLES.iter().filter(|(sample, ..)| sample == check).map(|sample| sample.2);
        let (good, bad): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| matches!(outcome, Valid | Unknown));
        assert!(!good.is_empty() && !bad.is_empty(), "{check}");
    }
}

#[test]
fn any_bytes_are_judged_without_panicking() {
    let mut text = Vec::new();
    for length in 0..80u8 {
        for check in Validator::ALL {
            check.check(&text);
            for (_, sample, _) in SAMPLES {
                check.check(&sample.as_bytes()[..usize::from(length).min(sample.len())]);
            }
        }
        text.push(length.wrapping_mul(37));
    }
}

#[test]
fn names_lead_back_to_their_check() {
    for check in Validator::ALL {
        assert_eq!(check.name().parse(), Ok(*check));
    }
    let unknown = "crc16".parse::<Validator>().unwrap_err().to_string();
    assert!(unknown.contains("crc16") && unknown.contains("github-crc32"), "{unknown}");
}

#[test]
fn sums_agree_with_published_vectors() {
    assert_eq!(crc32::crc32(&[b"1234", b"56789"]), 0xCBF4_3926);
    let vectors = [(&[][..], 0x3020_09BC), (&[0xAF], 0x3592_E206), (&[0xE7, 0x0F], 0xFDAB_5E04)];
    for (data, expected) in vectors {
        assert_eq!(azure::marvin32(data, 0x004F_B61A_001B_DBCC), expected);
    }
}
