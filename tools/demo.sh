#!/bin/sh
# demo.sh starts a control plane and a runner in a temporary folder and on a free
# port, deploys examples/shop, prints the outputs and removes everything. `make demo`
# builds the programs and calls demo.sh with FAIRLEAD_TOFU set, from the root of the
# repository.
set -eu

fairlead=$PWD/bin/fairlead
work=$(mktemp -d "${TMPDIR:-/tmp}/fairlead-demo.XXXXXX")
server=

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '\n%s\n' "$*" >&2; }

# stop_server stops the server with SIGTERM, so that the runner can stop its steps in
# order. After ten seconds it kills the server.
stop_server() {
	[ -n "$server" ] || return 0
	pid=$server
	server=
	kill -TERM "$pid" 2>/dev/null || return 0
	tries=0
	while kill -0 "$pid" 2>/dev/null; do
		tries=$((tries + 1))
		if [ "$tries" -eq 25 ]; then
			kill -TERM "$pid" 2>/dev/null || true # on the second SIGTERM the server does not wait for steps
		elif [ "$tries" -ge 50 ]; then
			kill -KILL "$pid" 2>/dev/null || true
		fi
		pause
	done
	wait "$pid" 2>/dev/null || true
}

# pause sleeps for 0.2 s, or for 1 s where sleep accepts only whole seconds, as in POSIX.
pause() { sleep 0.2 2>/dev/null || sleep 1; }

cleanup() {
	status=$?
	trap - EXIT INT TERM HUP
	stop_server
	# A status of 128 or more means that a signal ended the script.
	if [ "$status" -ne 0 ] && [ "$status" -lt 128 ] && [ -s "$work/server.log" ]; then
		say "The demo failed. The end of the server's log:"
		tail -n 30 "$work/server.log" >&2
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# OpenTofu warns if TF_CLI_CONFIG_FILE names a missing file.
[ -e "${TF_CLI_CONFIG_FILE:-/}" ] || unset TF_CLI_CONFIG_FILE
# The demo must not change the user's own CLI profile.
export FAIRLEAD_CONFIG_DIR="$work/config"
unset FAIRLEAD_TOKEN FAIRLEAD_URL FAIRLEAD_TOKEN_FILE

say "Starting a control plane and a runner in $work"
"$fairlead" dev --data "$work/data" --listen 127.0.0.1:0 --ready-file "$work/ready.json" \
	>"$work/server.log" 2>&1 &
server=$!
tries=0
until [ -s "$work/ready.json" ]; do
	tries=$((tries + 1))
	if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 150 ]; then
		echo "The server did not start." >&2
		exit 1
	fi
	pause
done
field() { sed -n 's/.*"'"$1"'" *: *"\([^"]*\)".*/\1/p' "$work/ready.json"; }
FAIRLEAD_URL=$(field url)
FAIRLEAD_TOKEN_FILE=$(field token_file)
export FAIRLEAD_URL FAIRLEAD_TOKEN_FILE

run() {
	say "$ fairlead $*"
	"$fairlead" "$@"
}

run app apply examples/shop
# The shop's required inputs are in a file, because one of them is sensitive and every
# user of the machine can read arguments.
run install create demo --app shop --input-file examples/shop/demo.inputs.yaml
run install deploy demo --auto-approve
run install outputs demo
say "The deployment is complete. \`make dev\` starts a control plane that keeps running."
