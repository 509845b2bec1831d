# testtools.sh installs the Debian packages that tests use: a Docker engine,
# runc, systemd-analyze, and ip and iptables for a runner behind a firewall. On another system, install them by hand.
set -eu
missing=
command -v dockerd >/dev/null || missing="$missing docker.io"
command -v systemd-analyze >/dev/null || missing="$missing systemd"
PATH="$PATH:/usr/sbin:/sbin"
command -v runc >/dev/null || missing="$missing runc"
command -v ip >/dev/null || missing="$missing iproute2"
command -v iptables >/dev/null || missing="$missing iptables"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	echo "install$missing, or run this as root on a system with apt-get" >&2
	exit 1
fi
apt-get update -qq
# shellcheck disable=SC2086 # the list must be split at spaces
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
