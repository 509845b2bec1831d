package terraform

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Terraform's plugin cache setting makes it use cached providers regardless of the lock file. So the runner links only
// providers that match the lock file.
func TestOnlyProvidersOfTheLockFileAreLinked(t *testing.T) {
	const (
		aws    = "registry.opentofu.org/hashicorp/aws/6.1.0/linux_amd64"
		locked = `provider "registry.opentofu.org/hashicorp/aws" {
  version     = "6.1.0"
  constraints = "~> 6.0"
  hashes      = ["h1:AAAA", "zh:bbbb"]
}
`
	)
	for name, tc := range map[string]struct {
		lock   string
		cached []providers.Package
		want   string // hash
	}{
		"the locked hash, of another install":                    {locked, []providers.Package{{Name: aws, Hash: "h1:AAAA"}}, "h1:AAAA"},
		"another hash, of the same install":                      {locked, []providers.Package{{Name: aws, Hash: "h1:BBBB", Own: true}}, ""},
		"both":                                                   {locked, []providers.Package{{Name: aws, Hash: "h1:BBBB", Own: true}, {Name: aws, Hash: "h1:AAAA"}}, "h1:AAAA"},
		"another version, of the same install":                   {strings.ReplaceAll(locked, "6.1.0", "6.0.0"), []providers.Package{{Name: aws, Hash: "h1:AAAA", Own: true}}, ""},
		"no hash for this platform":                              {strings.ReplaceAll(locked, `"h1:AAAA", `, ""), []providers.Package{{Name: aws, Hash: "h1:AAAA", Own: true}}, ""},
		"no lock file, of the same install":                      {"", []providers.Package{{Name: aws, Hash: "h1:BBBB", Own: true}}, "h1:BBBB"},
		"no lock file, of another install":                       {"", []providers.Package{{Name: aws, Hash: "h1:BBBB"}}, ""},
		"no lock file, two of the same install":                  {"", []providers.Package{{Name: aws, Hash: "h1:CCCC", Own: true}, {Name: aws, Hash: "h1:BBBB", Own: true}}, "h1:CCCC"},
		"a lock file without this provider, of the same install": {strings.ReplaceAll(locked, "aws", "time"), []providers.Package{{Name: aws, Hash: "h1:BBBB", Own: true}}, "h1:BBBB"},
		"a lock file without this provider, of another install":  {strings.ReplaceAll(locked, "aws", "time"), []providers.Package{{Name: aws, Hash: "h1:BBBB"}}, ""},
		"a lock file that does not parse":                        {"provider {", []providers.Package{{Name: aws, Hash: "h1:BBBB"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			j := &job{p: New(Config{Data: t.TempDir(), Providers: tc.cached}), env: plugin.Env{Workspace: work}, src: t.TempDir()}
			if tc.lock != "" {
				if err := os.WriteFile(filepath.Join(j.src, dependencyLock), []byte(tc.lock), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(j.install(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := j.linkProviders(); err != nil {
				t.Fatal(err)
			}
			want := ""
			if tc.want != "" {
				want = providers.Package{Name: aws, Hash: tc.want}.Path(j.p.cfg.PluginCache)
			}
			if got, _ := os.Readlink(filepath.Join(j.install(), filepath.FromSlash(aws))); got != want {
				t.Errorf("init gets a link to %q, want %q", got, want)
			}
		})
	}
}
