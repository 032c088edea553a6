"""`nodeward setup relay`: points kubelet at the relay, and back at the runtime."""

import asyncio
import os

import click

from nodeward.cli.flags import set_option


@click.command("relay")
@click.option("--undo", is_flag=True, help="Point kubelet at the runtime again.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML), for relay.*.")
@set_option("relay.listen=/run/nodeward/cri.sock")
@click.option("--kubelet-config", "config", metavar="FILE", default="", help="KubeletConfiguration.")
@click.option("--kubelet-config-dir", "config_dir", metavar="FOLDER", default="", help="Its drop-ins.")
@click.option("--flags-file", "flag_files", metavar="FILE", multiple=True, help="An environment file with its flags.")
@click.option("--dry-run", is_flag=True, help="Show the change and make none.")
@click.option("--force", is_flag=True, help="Also if nothing answers at the new endpoint.")
def command(
    undo: bool,
    config_path: str | None,
    flags: dict[str, str],
    config: str,
    config_dir: str,
    flag_files: tuple[str, ...],
    dry_run: bool,
    force: bool,
) -> None:
    """Point this machine's kubelet at the relay; with --undo at the runtime again.

    Changes containerRuntimeEndpoint and imageServiceEndpoint in KubeletConfiguration (a drop-in where kubelet reads a
    folder of them), or the flags of like name where kubelet is told by flags. A comment keeps what stood there. Kubelet
    is not restarted: the last line says how. Pods go on meanwhile.

    Which files: those of --kubelet-config, --kubelet-config-dir and --flags-file (repeatable). Without any of them what
    the running kubelet's command line names, else kubeadm's, /etc/default/kubelet and /etc/sysconfig/kubelet.

    \b
    Examples:
      nodeward setup relay --dry-run     what would be changed
      nodeward setup relay               after systemctl enable --now nodeward-relay
      nodeward setup relay --undo        before the relay is taken away
    """
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.once import kubelet_endpoint as endpoint
    from nodeward.settings import load as settings

    relay, files = settings.load(config_path, os.environ, flags).relay, OsFiles()
    where = endpoint.places(files, config, config_dir, flag_files)
    plan = endpoint.to_runtime if undo else endpoint.to_relay
    edits, said = plan(files, where, relay)
    for edit in edits:
        print(edit.shown())
    for line in said:
        print(line)
    if not edits:
        return
    sockets = endpoint.sockets(edits, relay, "runtime" if undo else "relay")
    whys = [asyncio.run(endpoint.answers(socket)) for socket in sockets]
    if why := "; ".join(filter(None, whys)):
        remedy = "start the runtime" if undo else "start the relay (systemctl enable --now nodeward-relay)"
        told = f"nothing answers there: {why}. With that kubelet cannot start pods: {remedy}, or give --force"
        if not (force or dry_run):
            raise click.ClickException(f"{told}; nothing was changed")
        print(told)
    if dry_run:
        print("nothing was changed; without --dry-run it is done")
        return
    endpoint.write(files, edits)
    print("done; now: systemctl restart kubelet")
