package codebuildtest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/tools/program"
)

// privilegedVariable tells the program docker that the build may start containers. CodeBuild starts Docker's daemon only in
// the privileged mode.
const privilegedVariable = "CODEBUILDTEST_PRIVILEGED"

// Docker returns a folder with a program docker that has the commands buildx create and buildx build, as CodeBuild's image
// has. It passes them to the program buildctl of BuildKit, and to the daemon at the address.
func Docker(t testing.TB, buildctl, address string) string {
	t.Helper()
	dir := t.TempDir()
	program.Write(t, filepath.Join(dir, "docker"), fmt.Appendf(nil, dockerScript, privilegedVariable, buildctl, address))
	return dir
}

// dockerScript refuses each argument that it does not translate, so that a change of the buildspec fails a test.
const dockerScript = `#!/bin/bash
set -eu
fail() { echo "ERROR: $*" >&2; exit 1; }
if [ "${%s:-}" != 1 ]; then fail "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"; fi
[ "$1" = buildx ] || fail "docker $1 is not simulated"
case $2 in
create)
	shift 2
	[ "$1 $2 $3 $4 $5" = "--name fairlead --driver docker-container --driver-opt" ] && [[ "$6" == image=?*:?* ]] && [ "$7" = --bootstrap ] && [ $# = 7 ] || fail "docker buildx create $* is not simulated"
	echo fairlead > "$HOME/builder"
	exit ;;
build) shift 2 ;;
*) fail "docker buildx $2 is not simulated" ;;
esac
options=() stores=0 file=Dockerfile context= output=
while [ $# -gt 0 ]; do
	case $1 in
	--builder) [ "$2" = "$(cat "$HOME/builder")" ] || fail "no builder \"$2\" found"; shift 2 ;;
	--progress) [ "$2" = plain ]; shift 2 ;;
	--provenance=false) shift ;;
	--output) output=$2; shift 2 ;;
	--file) file=$2; shift 2 ;;
	--target) options+=(--opt "target=$2"); shift 2 ;;
	--attest) [[ "$2" == type=sbom,generator=?* ]] || fail "--attest $2 is not simulated"; options+=(--opt "attest:sbom=${2#type=sbom,}"); shift 2 ;;
	--platform) options+=(--opt "platform=$2"); shift 2 ;;
	--build-context)
		[[ "$2" =~ ^([^=]+)=oci-layout://([^@:]+)@(sha256:[0-9a-f]{64})$ ]] || fail "--build-context $2 is not simulated"
		stores=$((stores+1))
		options+=(--oci-layout "store$stores=${BASH_REMATCH[2]}" --opt "context:${BASH_REMATCH[1]}=oci-layout://store$stores@${BASH_REMATCH[3]}")
		shift 2 ;;
	--build-arg) options+=(--opt "build-arg:$2"); shift 2 ;;
	-*) fail "unknown flag: $1" ;;
	*) [ -z "$context" ] || fail "docker buildx build requires 1 argument"; context=$1; shift ;;
	esac
done
[ -n "$context" ] || fail "docker buildx build requires 1 argument"
exec '%s' --addr '%s' build --progress plain --frontend dockerfile.v0 --local "context=$context" --local "dockerfile=$(dirname "$file")" --opt "filename=$(basename "$file")" ${options+"${options[@]}"} --output "$output"
`
