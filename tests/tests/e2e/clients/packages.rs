//! Package repositories small enough to be made on the spot: a Debian one and a Python index.

use std::fs;
use std::io::Write;

use super::{Place, Ran, finish};

/// The one module of the Python package.
pub(super) const PYTHON_MODULE: &str = "VALUE = 'installed through the gateway'\n";

/// Makes `debian/` with one package and its index.
pub(super) async fn debian_repository(place: &Place) {
    let control = "Package: decant-sample\nVersion: 1.0\nArchitecture: all\nMaintainer: Tests <t@site.test>\n\
                   Description: A sample\n A package that installs nothing.\n";
    fs::create_dir_all(place.path("package/DEBIAN")).expect("a writable folder");
    fs::create_dir_all(place.path("debian")).expect("a writable folder");
    fs::write(place.path("package/DEBIAN/control"), control).expect("a writable folder");
    let script = "dpkg-deb --root-owner-group --build package debian/decant-sample_1.0_all.deb && cd debian && \
                  dpkg-scanpackages . /dev/null > Packages && gzip -k Packages && \
                  printf 'Origin: tests\\nSuite: ./\\nSHA256:\\n %s %s Packages\\n %s %s Packages.gz\\n' \
                  $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) \
                  $(sha256sum Packages.gz | cut -d' ' -f1) $(stat -c %s Packages.gz) > Release";
    place.run("bash", &["-c", script]).await.succeeds();
}

/// Options that keep `apt-get` within the place's folder and send it through the gateway.
pub(super) fn apt_options(place: &Place, url: &str) -> Vec<String> {
    for folder in ["apt/lists/partial", "apt/cache/archives/partial", "apt/etc"] {
        fs::create_dir_all(place.path(folder)).expect("a writable folder");
    }
    fs::write(place.path("apt/status"), "").expect("a writable folder");
    fs::write(place.path("apt/etc/sources.list"), format!("deb [trusted=yes] {url} ./\n"))
        .expect("a writable folder");
    let at = |name: &str| place.path(name).display().to_string();
    [
        format!("Dir::State={}", at("apt")),
        format!("Dir::State::lists={}", at("apt/lists")),
        format!("Dir::State::status={}", at("apt/status")),
        format!("Dir::Cache={}", at("apt/cache")),
        format!("Dir::Etc={}", at("apt/etc")),
        format!("Dir::Etc::sourcelist={}", at("apt/etc/sources.list")),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Retries=0".to_owned(),
    ]
    .into_iter()
    .collect()
}

/// Runs `apt-get` with options and arguments.
pub(super) async fn apt_get(place: &Place, options: &[String], arguments: &[&str]) -> Ran {
    let mut command = place.command("apt-get");
    for option in options {
        command.args(["-o", option]);
    }
    finish(command.args(arguments)).await
}

/// Makes `simple/` with one wheel, and a package whose wheel is on the denied host.
pub(super) fn python_index(place: &Place) {
    let wheel = "decant_sample-1.0-py3-none-any.whl";
    python_package(place, "decant-sample", wheel);
    fs::write(place.path("simple/decant-sample").join(wheel), zip(&wheel_files()))
        .expect("a writable folder");
    let elsewhere = place.denied("/decant_elsewhere-1.0-py3-none-any.whl");
    python_package(place, "decant-elsewhere", &elsewhere);
}

fn python_package(place: &Place, name: &str, link: &str) {
    let (folder, file) = (place.path("simple").join(name), link.rsplit('/').next().unwrap_or(link));
    fs::create_dir_all(&folder).expect("a writable folder");
    let page = format!("<!DOCTYPE html><html><body><a href=\"{link}\">{file}</a></body></html>");
    fs::write(folder.join("index.html"), page).expect("a writable folder");
}

fn wheel_files() -> Vec<(&'static str, String)> {
    vec![
        ("decant_sample.py", PYTHON_MODULE.to_owned()),
        (
            "decant_sample-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: decant-sample\nVersion: 1.0\n".to_owned(),
        ),
        (
            "decant_sample-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned(),
        ),
        ("decant_sample-1.0.dist-info/RECORD", "decant_sample.py,,\n".to_owned()),
    ]
}

/// The one module of the Rust crate.
pub(super) const RUST_MODULE: &str = "pub const VALUE: &str = \"fetched through the gateway\";\n";

/// Makes a sparse registry with one crate, and two packages: one that depends on it, one that asks a registry on the
/// denied host.
pub(super) async fn cargo_registry(place: &Place) {
    let manifest = "[package]\nname = \"decant-sample\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    write(place, "decant-sample-1.0.0/Cargo.toml", manifest);
    write(place, "decant-sample-1.0.0/src/lib.rs", RUST_MODULE);
    place
        .run("bash", &["-c", "mkdir crates && tar -czf crates/decant-sample.crate decant-sample-1.0.0"])
        .await
        .succeeds();
    let sum = super::sum_of(&place.path("crates/decant-sample.crate"));
    let line = format!(
        "{{\"name\":\"decant-sample\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{sum}\",\"features\":{{}},\"yanked\":false}}\n"
    );
    write(place, "index/de/ca/decant-sample", &line);
    write(place, "index/config.json", &format!("{{\"dl\":\"{}\"}}", place.url("/crates/{crate}.crate")));
    for (package, index) in [("wanted", place.url("/index/")), ("unwanted", place.denied("/index/"))] {
        write(place, &format!("{package}/src/lib.rs"), "");
        let manifest = format!(
            "[package]\nname = \"{package}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n\
             [dependencies]\ndecant-sample = {{ version = \"1\", registry = \"local\" }}\n"
        );
        write(place, &format!("{package}/Cargo.toml"), &manifest);
        let registry = format!("[registries]\nlocal = {{ index = \"sparse+{index}\" }}\n");
        write(place, &format!("{package}/.cargo/config.toml"), &registry);
    }
}

fn write(place: &Place, name: &str, text: &str) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
    fs::write(path, text).expect("a writable folder");
}

/// Runs the toolchain's own `cargo` in the folder of `package`: one that a toolchain manager wraps looks for its
/// toolchains at home, where there are none.
pub(super) async fn cargo(place: &Place, package: &str, arguments: &[&str]) -> Ran {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.expect("rustc runs").stdout).expect("a path");
    let tools = std::path::Path::new(sysroot.trim()).join("bin");
    let mut command = place.command(tools.join("cargo"));
    command.env("RUSTC", tools.join("rustc")).current_dir(place.path(package));
    finish(command.args(arguments)).await
}

/// A zip archive whose files are stored as they are.
fn zip(files: &[(&str, String)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in files {
        let offset = u32::try_from(archive.len()).expect("a small archive");
        let common = zip_fields(name, text);
        archive.extend_from_slice(b"PK\x03\x04");
        archive.extend_from_slice(&common);
        archive.write_all(name.as_bytes()).expect("memory");
        archive.write_all(text.as_bytes()).expect("memory");
        directory.extend_from_slice(b"PK\x01\x02\x14\0");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let start = u32::try_from(archive.len()).expect("a small archive");
    let count = u16::try_from(files.len()).expect("few files").to_le_bytes();
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend_from_slice(&[count, count].concat());
    archive.extend_from_slice(&u32::try_from(directory.len()).expect("a small archive").to_le_bytes());
    archive.extend_from_slice(&start.to_le_bytes());
    archive.extend_from_slice(&[0, 0]);
    archive
}

/// The header fields that a file's entry and its line in the directory share.
fn zip_fields(name: &str, text: &str) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(text.as_bytes());
    let size = u32::try_from(text.len()).expect("a small file").to_le_bytes();
    let mut fields = vec![0x14, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    fields.extend_from_slice(&crc.sum().to_le_bytes());
    fields.extend_from_slice(&size);
    fields.extend_from_slice(&size);
    fields.extend_from_slice(&u16::try_from(name.len()).expect("a short name").to_le_bytes());
    fields.extend_from_slice(&[0, 0]);
    fields
}
