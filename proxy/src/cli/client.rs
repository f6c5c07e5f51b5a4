//! `decant exec` and `decant env`: a client of this host, behind the gateway.
//!
//! Asks the running gateway where its proxy is and what to trust, keeps the certificates in files (most tools read
//! nothing else), and hands the variables to a command or prints them. Invariant: files are replaced whole, so that a
//! client that runs meanwhile reads one version or the other.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::args::{ClientArgs, EnvArgs, EnvFormat, ExecArgs};
use super::health::get;
use super::status::Status;
use super::{Exit, Failure, print};

/// Runs a command in place of this one.
pub(super) fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let variables = variables(&args.client)?;
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Failure::usage("which command shall run?"))?;
    let error = Command::new(program).args(arguments).envs(variables).exec();
    Err(Failure::usage(format!("{} does not start: {error}", program.display())))
}

/// Prints the variables.
pub(super) fn env(args: &EnvArgs) -> Result<Exit, Failure> {
    let variables = variables(&args.client)?;
    print(&shown(&variables, args.format))
}

fn variables(args: &ClientArgs) -> Result<BTreeMap<String, String>, Failure> {
    let status = Status::ask(args.admin.admin)?;
    let proxy = reachable(status.proxy()?, args.admin.admin.ip());
    let trust = Trust::keep(args)?;
    let mut variables = decant_config::proxy_variables(&format!("http://{proxy}"), &[]);
    variables.extend(decant_config::trust_variables(&trust.bundle, &trust.ca));
    // What a user has set up for these two tools stays as it is.
    for (name, file) in [("WGETRC", &trust.wgetrc), ("APT_CONFIG", &trust.apt)] {
        if std::env::var_os(name).is_none() {
            variables.insert(name.to_owned(), file.display().to_string());
        }
    }
    Ok(variables)
}

/// A proxy that listens on every address is reached where its admin port is.
fn reachable(proxy: SocketAddr, admin: IpAddr) -> SocketAddr {
    let local = match admin {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    if proxy.ip().is_unspecified() { SocketAddr::new(local, proxy.port()) } else { proxy }
}

/// The files by which clients trust the gateway.
struct Trust {
    bundle: PathBuf,
    ca: PathBuf,
    /// wget and apt take roots from no variable, only from a file that a variable names.
    wgetrc: PathBuf,
    apt: PathBuf,
}

impl Trust {
    fn keep(args: &ClientArgs) -> Result<Self, Failure> {
        let folder = match &args.trust_dir {
            Some(folder) => std::path::absolute(folder).map_err(|error| unwritable(folder, &error))?,
            None => default_folder(args.admin.admin)?,
        };
        fs::create_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
        let file = |name: &str, text: &str| replace(&folder.join(name), text);
        let bundle = file("bundle.pem", &get(args.admin.admin, "/bundle.pem")?)?;
        let ca = file("ca.pem", &get(args.admin.admin, "/ca.pem")?)?;
        let own = std::env::home_dir().and_then(|home| fs::read_to_string(home.join(".wgetrc")).ok());
        let wgetrc = format!("{}\nca_certificate = {}\n", own.unwrap_or_default(), bundle.display());
        let apt = format!("Acquire::https::CAInfo \"{}\";\n", bundle.display());
        Ok(Self { wgetrc: file("wgetrc", &wgetrc)?, apt: file("apt.conf", &apt)?, bundle, ca })
    }
}

fn default_folder(admin: SocketAddr) -> Result<PathBuf, Failure> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::usage("there is no home folder: name one by --trust-dir"))?;
    Ok(cache.join("decant").join(admin.to_string().replace(':', "-")))
}

fn replace(path: &Path, text: &str) -> Result<PathBuf, Failure> {
    let next = path.with_extension(format!("{}.next", std::process::id()));
    let written = fs::File::create(&next)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&next, path));
    written.map(|()| path.to_owned()).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("{}: {error}; another folder may be named by --trust-dir", path.display()))
}

fn shown(variables: &BTreeMap<String, String>, format: EnvFormat) -> String {
    let line = |(name, value): (&String, &String)| match format {
        EnvFormat::Sh => format!("export {name}='{}'\n", value.replace('\'', r"'\''")),
        EnvFormat::Dotenv => format!("{name}=\"{}\"\n", value.replace('\\', r"\\").replace('"', "\\\"")),
        EnvFormat::Docker | EnvFormat::Json => format!("{name}={value}\n"),
    };
    match format {
        EnvFormat::Json => serde_json::to_string_pretty(variables).unwrap_or_default() + "\n",
        _ => variables.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_on_every_address_is_where_its_admin_port_is() {
        for (proxy, admin, reached) in [
            ("127.0.0.1:9099", "127.0.0.1", "127.0.0.1:9099"),
            ("0.0.0.0:9099", "10.1.2.3", "10.1.2.3:9099"),
            ("0.0.0.0:9099", "0.0.0.0", "127.0.0.1:9099"),
            ("[::]:9099", "::1", "[::1]:9099"),
            ("10.9.9.9:9099", "127.0.0.1", "10.9.9.9:9099"),
        ] {
            assert_eq!(reachable(proxy.parse().unwrap(), admin.parse().unwrap()).to_string(), reached);
        }
    }

    #[test]
    fn values_are_quoted_for_their_reader() {
        let variables = BTreeMap::from([("A".to_owned(), "it's \"x\" \\".to_owned())]);
        for (format, text) in [
            (EnvFormat::Sh, "export A='it'\\''s \"x\" \\'\n"),
            (EnvFormat::Dotenv, "A=\"it's \\\"x\\\" \\\\\"\n"),
            (EnvFormat::Docker, "A=it's \"x\" \\\n"),
            (EnvFormat::Json, "{\n  \"A\": \"it's \\\"x\\\" \\\\\"\n}\n"),
        ] {
            assert_eq!(shown(&variables, format), text);
        }
    }
}
