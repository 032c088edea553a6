// cgroupsrs places a sandbox as Kata's runtime-rs does, with the library that runtime-rs uses for it.
//
// It answers each line of stdin, a request in JSON, with a line in JSON. Every request names a sandbox:
//   cgroups_path  the OCI cgroupsPath; null where runtime-rs finds no OCI spec
//   sandbox, only the sandbox's id, and sandbox_cgroup_only
// Operations:
//   paths   says where the sandbox and the overhead cgroup are; changes nothing
//   place   `shim`: this process joins, before it starts others; `vcpus`: after the VM's start, its vCPU threads by
//           index; `read`: processes and threads whose /proc/ID/cgroup is the answer
//   delete  removes the cgroups, as at the sandbox's end

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};

use cgroups_rs::fs::{hierarchies, Cgroup};
use cgroups_rs::manager::is_systemd_cgroup;
use cgroups_rs::systemd::utils::expand_slice;
use cgroups_rs::{FsManager, Manager, SystemdManager};
use serde_json::{json, Map, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Placer = Box<dyn Manager>;

/// Where the cgroups of one sandbox are, in the form in which runtime-rs hands it to the library.
struct Sandbox {
    path: String,
    overhead: Option<String>,
}

impl Sandbox {
    fn of(request: &Value) -> Outcome<Sandbox> {
        let id = request["sandbox"].as_str().ok_or("sandbox: not a text")?;
        let only = request["only"].as_bool().ok_or("only: neither true nor false")?;
        let path = match &request["cgroups_path"] {
            Value::Null => format!("kata_sandboxed_pod/{id}"),
            Value::String(path) => path.trim_start_matches('/').to_string(),
            other => return Err(format!("cgroups_path: neither a text nor null: {other}").into()),
        };
        let overhead = match is_systemd_cgroup(&path) {
            true => format!("kata-overhead.slice:runtime-rs:{id}"),
            false => format!("kata_overhead/{id}"),
        };
        Ok(Sandbox { path, overhead: (!only).then_some(overhead) })
    }

    fn managers(&self) -> Outcome<(Placer, Option<Placer>)> {
        let systemd = is_systemd_cgroup(&self.path);
        let overhead = self.overhead.as_deref().map(|path| manager(path, systemd)).transpose()?;
        Ok((manager(&self.path, systemd)?, overhead))
    }
}

fn manager(path: &str, systemd: bool) -> Outcome<Placer> {
    if !systemd {
        return Ok(Box::new(FsManager::new(path)?));
    }
    let mut made = SystemdManager::new(path)?;
    made.set_term_timeout(300)?;
    Ok(Box::new(made))
}

/// The cgroup below the root of its hierarchy. On cgroup v1 a manager's own `cgroup_path` is that of the caller.
fn cgroup(path: &str, systemd: bool) -> Outcome<String> {
    if !systemd {
        return Ok(format!("/{}", Cgroup::load(hierarchies::auto(), path).path()));
    }
    let made = SystemdManager::new(path)?;
    Ok(format!("/{}/{}", expand_slice(made.slice())?, made.unit()))
}

fn paths(sandbox: &Sandbox) -> Outcome<Value> {
    let systemd = is_systemd_cgroup(&sandbox.path);
    let overhead = sandbox.overhead.as_deref().map(|path| cgroup(path, systemd)).transpose()?;
    Ok(json!({"systemd": systemd, "sandbox": cgroup(&sandbox.path, systemd)?, "overhead": overhead}))
}

fn place(sandbox: &Sandbox, request: &Value) -> Outcome<Value> {
    let (mut inner, mut overhead) = sandbox.managers()?;
    if let Some(shim) = request["shim"].as_u64() {
        join(overhead.as_mut().unwrap_or(&mut inner), shim)?;
        if overhead.is_none() && inner.v2() {
            fs::write(format!("{}/cgroup.procs", inner.cgroup_path(None)?), shim.to_string())?;
        }
    }
    if !request["vcpus"].is_null() && overhead.is_some() {
        let vcpus = ids(&request["vcpus"])?;
        let first = *vcpus.first().ok_or("vcpus: none, so runtime-rs cannot move the hypervisor")?;
        if inner.systemd() || inner.v2() {
            inner.add_proc(thread_group(first)?.into())?;
        } else {
            vcpus.iter().try_for_each(|id| inner.add_thread((*id).into()))?;
        }
    }
    let read = |id: u64| Ok((id.to_string(), fs::read_to_string(format!("/proc/{id}/cgroup"))?.into()));
    ids(&request["read"])?.into_iter().map(read).collect::<Outcome<Map<_, _>>>().map(Value::Object)
}

/// systemd may make the cgroup at the same time, so one failure because it is there is not the end.
fn join(manager: &mut Placer, id: u64) -> Outcome<()> {
    let joined = manager.add_proc(id.into());
    let mut cause = joined.as_ref().err().and_then(|error| error.source());
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            return Ok(manager.add_proc(id.into())?);
        }
        cause = error.source();
    }
    Ok(joined?)
}

fn ids(value: &Value) -> Outcome<Vec<u64>> {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(all.iter().map(Value::as_u64).collect::<Option<_>>().ok_or("an id is not a number")?)
}

fn thread_group(id: u64) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:")).ok_or("no Tgid in the status")?;
    Ok(line.trim().parse()?)
}

fn delete(sandbox: &Sandbox) -> Outcome<Value> {
    let (mut inner, overhead) = sandbox.managers()?;
    inner.destroy()?;
    overhead.map_or(Ok(()), |mut overhead| overhead.destroy())?;
    Ok(Value::Null)
}

fn answer(line: &str) -> Outcome<Value> {
    let request: Value = serde_json::from_str(line)?;
    let sandbox = Sandbox::of(&request)?;
    match request["op"].as_str() {
        Some("paths") => paths(&sandbox),
        Some("place") => place(&sandbox, &request),
        Some("delete") => delete(&sandbox),
        _ => Err("op: none of paths, place, delete".into()),
    }
}

fn main() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let said = match answer(&line?) {
            Ok(value) => json!({"error": "", "value": value}),
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(io::stdout(), "{said}")?;
    }
    Ok(())
}
