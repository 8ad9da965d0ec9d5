"""`dragon service` with a manager of systemd as users have one, in namespaces of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.daemons import ROOT, free_port
from tests.support.missing import skip_without

MANAGER = Path("/lib/systemd/systemd")
DRAGON = Path(sys.executable).with_name("dragon")
PATIENCE = 240.0  # seconds

# Nothing outside the namespaces is touched: /run, /home and the control groups are others there.
WITH_MANAGER = """
set -e
for folder in /run /home; do mount -t tmpfs tmpfs $folder; done
mkdir -p /run/systemd/system /run/user/0 $HOME; chmod 700 /run/user/0
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export XDG_RUNTIME_DIR=/run/user/0
/lib/systemd/systemd --user >/dev/null 2>&1 &
for turn in $(seq 600); do systemctl --user is-system-running >/dev/null 2>&1 && break; sleep 0.1; done
"""
WITH_SERVICES = """
until_served() {
    for turn in $(seq 600); do
        systemctl --user is-active --quiet dragon-$1 && break
        systemctl --user is-failed --quiet dragon-$1 && break
        sleep 0.1
    done
}
told() { systemctl --user show dragon-$1 --property=$2 --value; }
until_restarted() { for turn in $(seq 600); do [ "$(told $1 NRestarts)" = 1 ] && break; sleep 0.1; done; }
mkdir -p $HOME/.config/dragon
"""
# Runs a service, kills its daemon, and removes it; what is to be seen of it goes to stdout.
LIFE = """
printf 'model = "embedded"\\nthreads = 1\\ncloud = "none"\\nport = %s\\n' $PORT > $HOME/.config/dragon/device.toml
$DRAGON service install
until_served device
$DRAGON service status
process=$(told device MainPID)
echo filters $(grep Seccomp: /proc/$process/status) $(grep NoNewPrivs: /proc/$process/status)
echo home $(grep -E ' /home r[ow],' /proc/$process/mountinfo | cut -d ' ' -f 6)
kill -KILL $process
until_restarted device
until_served device
$DRAGON service status
$DRAGON service uninstall
$DRAGON service status || echo exit code $?
find $HOME -type d -path '*/dragon/*' -prune -printf 'left %P\\n'
"""
# Runs a cloud of a gateway and two workers beside a device, kills a worker, then the gateway, and stops both.
WORKERS = """
workers() { pgrep -f "cloud[.]gateway[.]worker" | sort | xargs echo; }
until_workers() {
    for turn in $(seq 600); do
        seen=$(workers)
        [ $(echo $seen | wc -w) = $1 ] && [ "$seen" != "$2" ] && break
        sleep 0.1
    done
}
common='model = "embedded"\\nthreads = 1\\n'
printf "$common"'workers = 2\\nbind = "tcp://127.0.0.1:%s"\\n' $LINK > $HOME/.config/dragon/cloud.toml
printf "$common"'cloud = "tcp://127.0.0.1:%s"\\nport = %s\\n' $LINK $PORT > $HOME/.config/dragon/device.toml
$DRAGON service install --role cloud
$DRAGON service install
until_served cloud
until_served device
until_workers 2 ""
first=$seen
echo workers $(echo $first | wc -w)
kill -KILL ${first%% *}
until_workers 2 "$first"
second=$seen
echo workers $(echo $second | wc -w), restarts $(told cloud NRestarts)
kill -KILL $(told cloud MainPID)
until_restarted cloud
until_served cloud
until_workers 2 "$second"
echo workers $(echo $seen | wc -w), restarts $(told cloud NRestarts)
for turn in $(seq 600); do $DRAGON status | grep --quiet connected && break; sleep 0.1; done
$DRAGON status
$DRAGON service uninstall
$DRAGON service uninstall --role cloud
echo workers $(workers | wc -w)
"""


def in_namespaces(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--mount-proc", "--kill-child"]
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/someone", "LC_ALL": "C.UTF-8"} | variables
    return subprocess.run(
        [*unshare, "bash", "-c", script],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def manager() -> None:
    """Skips where no manager of a user's own can be run."""
    if not MANAGER.exists() or shutil.which("unshare") is None:
        skip_without("systemd", "apt-get install systemd")
    if not DRAGON.exists() or DRAGON.is_relative_to("/tmp") or DRAGON.is_relative_to("/home"):
        pytest.skip("`dragon` is where a service of this test does not see it")
    if in_namespaces(f"{WITH_MANAGER}\nsystemctl --user is-system-running").stdout != "running\n":
        pytest.skip("a user's manager does not run here")


@pytest.mark.walkthrough
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.usefixtures("manager")
def test_a_service_runs_comes_again_and_goes() -> None:
    port = str(free_port())
    done = in_namespaces(WITH_MANAGER + WITH_SERVICES + LIFE, DRAGON=str(DRAGON), PORT=port)
    assert done.returncode == 0, done.stdout + done.stderr
    serving = f"dragon-device.service: active (running), enabled\n  serving on http://127.0.0.1:{port}\n"
    assert done.stdout.count(serving) == 2, done.stdout
    assert "filters Seccomp: 2 NoNewPrivs: 1\nhome ro," in done.stdout
    assert f"{serving}  restarted 1 times\nremoved: " in done.stdout
    rest = done.stdout.partition("settings and data stay\n")[2].splitlines()
    assert "dragon-device.service is not installed" in rest[0] and rest[1] == "exit code 1"
    assert set(rest[2:]) == {f"left .local/share/dragon/{name}" for name in ("device", "cache")}


@pytest.mark.walkthrough
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.usefixtures("manager")
def test_a_cloud_of_workers_runs_comes_again_and_goes() -> None:
    ports = {"PORT": str(free_port()), "LINK": str(free_port())}
    done = in_namespaces(WITH_MANAGER + WITH_SERVICES + WORKERS, DRAGON=str(DRAGON), **ports)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith(("workers", "cloud ", "removed"))]
    assert told[:3] == ["workers 2", "workers 2, restarts 0", "workers 2, restarts 1"], done.stdout
    assert told[3] == f"cloud       connected (tcp://127.0.0.1:{ports['LINK']})", done.stdout
    assert told[-1] == "workers 0", done.stdout
