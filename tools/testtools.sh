# Installs the Debian packages that tests use: a Docker engine and systemd's
# checker of units. On another system they are to be installed by hand.
set -eu
missing=
command -v dockerd >/dev/null || missing="$missing docker.io"
command -v systemd-analyze >/dev/null || missing="$missing systemd"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	echo "install$missing, or run this as root where apt-get is" >&2
	exit 1
fi
apt-get update -qq
# shellcheck disable=SC2086 # the list is words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
