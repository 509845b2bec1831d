package fairlead_test

import (
	"bytes"
	"os/exec"
	"path"
	"strings"
	"testing"

	xmodule "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// unlinked are modules that build, describe or test the product and are no part of
// a program of it.
const unlinked = "github.com/aws/aws-cdk-go/... github.com/aws/constructs-go/... github.com/aws/jsii-runtime-go/... github.com/cdklabs/... helm.sh/helm/..."

// A program of the product is made of released modules, none of which only builds
// or tests it.
func TestProgramsLinkReleasedModules(t *testing.T) {
	programs := []string{"./cmd/fairlead", "./runner"}
	for name := range listPackages(t) {
		if match("functions/*", name) {
			programs = append(programs, "./"+name)
		}
	}
	for _, tags := range []string{"", "clusters"} {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-tags", tags, "-f",
			"{{with .Module}}{{.Path}} {{.Version}}{{end}}"}, programs...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
		}
		seen := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
			if !ok || seen[name] { // this module has no version
				continue
			}
			seen[name] = true
			if matchAny(unlinked, name) {
				t.Errorf("with tags %q a program links %s", tags, name)
			}
			if semver.Prerelease(version) != "" && !xmodule.IsPseudoVersion(version) {
				t.Errorf("with tags %q a program links %s %s, which is no release", tags, path.Base(name), version)
			}
		}
		if len(seen) < 10 {
			t.Errorf("with tags %q there are %d modules", tags, len(seen))
		}
	}
}
